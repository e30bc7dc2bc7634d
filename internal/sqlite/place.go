package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/gofrs/flock"

	"plantstore"
)

// ErrLocked says that another server has the file open.
var ErrLocked = errors.New("another server has this store open")

// takeName locks the name of the file for a server. Until 0.2.0 this was the only lock, and
// without it such a server would start. It also keeps servers out while [Restore] gives the
// name to another file.
func (s *Store) takeName() error {
	s.lock = flock.New(s.path+".lock", flock.SetPermissions(0o600))
	for range 10 { // serverRuns has it for a moment
		held, err := s.lock.TryLock()
		if err != nil {
			return fmt.Errorf("lock %s: %w", s.path, err)
		}
		if held {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("open %s: %w", s.path, ErrLocked)
}

// takeFile locks the file itself for a server, by whatever name others open it.
func (s *Store) takeFile() error {
	free, err := lockFile(s.file)
	switch {
	case err != nil:
		return fmt.Errorf("lock %s: %w", s.path, err)
	case !free:
		return fmt.Errorf("open %s: %w", s.path, ErrLocked)
	}
	return nil
}

// openFile opens the file, for a server with its lock. That MUST come before SQLite opens it, and
// the descriptor MUST be closed after SQLite has closed its own (invariant 10).
func (s *Store) openFile(mode Mode) (err error) {
	flag := os.O_RDONLY
	if mode == Serve {
		flag = os.O_RDWR // or it could not be locked
	}
	if s.file, err = os.OpenFile(s.path, flag, 0); err != nil {
		return err
	}
	if mode == Serve {
		return s.takeFile()
	}
	return s.checkName()
}

// checkName refuses a name that has no write-ahead log beside it: SQLite would read and write another
// one.
func (s *Store) checkName() error {
	for range 100 { // a server that starts makes it soon
		if _, err := os.Stat(s.path + "-wal"); err == nil || !isLocked(s.file) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return plantstore.Errorf(plantstore.ErrUnavailable, "a server has %s open by another name: use that one, beside which its write-ahead log is", s.path)
}

// checkLinks refuses a file that has several names: each would have a write-ahead log of its own.
func (s *Store) checkLinks() error {
	info, err := s.file.Stat()
	if err == nil && links(info) > 1 {
		err = fmt.Errorf("open %s: it has %d names (hard links), each with a write-ahead log of its own: find them with find -samefile, and remove all but the one that has the -wal file beside it", s.path, links(info))
	}
	return err
}

// serverRuns reports whether a server has the store open.
func (s *Store) serverRuns() bool {
	if isLocked(s.file) {
		return true
	}
	lock := flock.New(s.path+".lock", flock.SetFlag(os.O_RDONLY)) // the flag keeps it from being created
	defer lock.Close()
	free, err := lock.TryRLock()
	return err == nil && !free
}

// unlock closes the files that hold the locks.
func (s *Store) unlock() error {
	var errs []error
	if s.file != nil {
		errs = append(errs, s.file.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// checkOrphan refuses a log whose file is missing. SQLite would remove it.
func checkOrphan(path string) error {
	info, err := os.Stat(path)
	missing := errors.Is(err, fs.ErrNotExist)
	for _, log := range []string{path + "-wal", path + "-journal"} {
		// An empty file may have a journal: that of the transaction that was to make it a store.
		if sizeOf(log) > 0 && (missing || err == nil && info.Size() == 0 && log == path+"-wal") {
			return fmt.Errorf("%[2]s is the log of a store whose file %[1]s is missing or empty: put that very file back. If it is lost, move the log away, and restore a backup", path, log)
		}
	}
	return nil
}

// place is where SQLite has found a file.
type place struct {
	path string
	file fs.FileInfo
}

// notePlaces takes note of the files that SQLite has open.
func (s *Store) notePlaces() error {
	file, err := s.file.Stat()
	s.places = []place{{s.path, file}}
	for _, suffix := range []string{"-wal", "-shm"} {
		info, statErr := os.Stat(s.path + suffix)
		s.places, err = append(s.places, place{s.path + suffix, info}), errors.Join(err, statErr)
	}
	return err
}

// checkPlaces makes the store refuse writes if one of its files is no longer in its place: what is
// written would be lost, or would destroy what is there now.
func (s *Store) checkPlaces() error {
	for _, p := range s.places {
		is, err := os.Stat(p.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil: // it is not known
			continue
		case os.SameFile(is, p.file) && (links(is) > 0 || links(p.file) == 0): // the mount point of a file keeps it when it is removed
			continue
		}
		return s.refuseWrites(placeAdvice, fmt.Errorf("%s is not the file that was opened", p.path))
	}
	return nil
}

const placeAdvice = "a file of the store was removed, moved or replaced: before you stop the server, put it back, or save the one that the server has open, as the runbook says at PlantstoreDamaged"

// watchPlaces calls checkPlaces now and then, until ctx ends.
func (s *Store) watchPlaces(ctx context.Context) {
	tick := time.NewTicker(placeInterval)
	defer tick.Stop()
	for s.checkPlaces() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const placeInterval = time.Second

// isReplaced reports whether another file has the name of the store's.
func (s *Store) isReplaced() bool {
	if len(s.places) == 0 { // it is not open to serve
		return false
	}
	is, err := os.Stat(s.path)
	return err == nil && !os.SameFile(is, s.places[0].file)
}
