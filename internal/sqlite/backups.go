package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Backups are the backups of a store in a directory, named after the store and the time of each.
type Backups struct{ Store, Dir string }

// backupTime is the time in the name of a backup. Names sort by time.
const backupTime = "20060102T150405Z"

// prefix is how their names begin.
func (b Backups) prefix() string {
	name := filepath.Base(b.Store)
	return strings.TrimSuffix(name, filepath.Ext(name)) + "-"
}

// File returns the name of the backup of that time.
func (b Backups) File(at time.Time) string {
	return filepath.Join(b.Dir, b.prefix()+at.UTC().Format(backupTime)+".db")
}

// Times returns the times of the backups, the oldest first. One from the future, when the clock was
// wrong, does not count: no new backup would be the newest.
func (b Backups) Times() (times []time.Time, err error) {
	entries, err := os.ReadDir(b.Dir)
	if err != nil {
		return nil, fmt.Errorf("cannot read the backups: %w", err)
	}
	for _, entry := range entries {
		text, isOurs := strings.CutPrefix(entry.Name(), b.prefix())
		at, err := time.Parse(backupTime+".db", text)
		if isOurs && err == nil && !at.After(time.Now()) {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, nil
}

// Keep removes all backups except the n newest.
func (b Backups) Keep(n int) error {
	times, err := b.Times()
	for _, at := range times[:max(0, len(times)-n)] {
		err = errors.Join(err, os.Remove(b.File(at)))
	}
	return err
}
