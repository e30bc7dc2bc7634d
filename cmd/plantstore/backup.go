package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"plantstore/internal/cli"
	"plantstore/internal/sqlite"
)

type backupCommand struct {
	storeFlags
	File  string        `arg:"" optional:"" placeholder:"FILE" help:"The new file to write, or - for standard output."`
	To    string        `placeholder:"DIR" help:"Write a new file into this directory, named after the store and the time."`
	Every time.Duration `placeholder:"TIME" help:"With --to, write another one whenever this much time has passed, until interrupted."`
	Keep  int           `min:"0" placeholder:"N" help:"With --to, remove all but the newest N (default: keep all)."`

	Textfile string `placeholder:"PATH" help:"After each good backup, write its time, size and duration to this file, for the textfile collector of Prometheus's node exporter."`
}

func (backupCommand) Help() string {
	return `Writes a consistent copy of the store, even while a server is using it, and checks it. The store is not changed, and the copy has the same schema. To put a copy back, use plantstore restore.

Examples:
  plantstore backup --db plantstore.db plants-$(date +%F).db
  plantstore backup --db plantstore.db --to /var/backups/plantstore --every 6h --keep 14
  plantstore backup --db plantstore.db --to /var/backups/plantstore --textfile /var/lib/prometheus/node-exporter/plantstore.prom
  plantstore backup --db plantstore.db - | zstd > plants.db.zst`
}

func (c *backupCommand) Run(ctx context.Context, std streams) error {
	if err := cmp.Or(c.storeFlags.check(), c.check(std)); err != nil {
		return err
	}
	switch {
	case c.File == "-":
		return wrap("cannot back up the store", sqlite.WriteBackup(ctx, c.DB, std.out, std.say))
	case c.To == "":
		return c.write(ctx, c.File, std)
	case c.Every == 0:
		return c.writeNext(ctx, std)
	}
	return c.repeat(ctx, std)
}

func (c *backupCommand) check(std streams) error {
	switch {
	case c.isPostgres():
		return usage("back up a PostgreSQL store with PostgreSQL's own pg_dump or pg_basebackup")
	case (c.File == "") == (c.To == ""):
		return usage("say where to write the copy: FILE, - for standard output, or --to DIR")
	case c.To == "" && (c.Every != 0 || c.Keep != 0):
		return usage("--every and --keep need --to DIR")
	case c.File == "-" && c.Textfile != "":
		return usage("--textfile needs FILE or --to DIR: whether standard output becomes a good backup is not known here")
	case c.Every != 0 && c.Every < time.Second:
		return usage("--every must be 1s or more, got %s", c.Every)
	case c.File == "-" && cli.IsTerminal(std.out):
		return usage("a backup is not text: redirect standard output to a file or a program")
	}
	return nil
}

// write writes a backup, and then the textfile.
func (c *backupCommand) write(ctx context.Context, file string, std streams) error {
	start := time.Now()
	if err := sqlite.Backup(ctx, c.DB, file, std.say); err != nil {
		return wrap("cannot back up the store", err)
	}
	took := time.Since(start)
	std.say(file + " is a complete copy of the store.")
	return c.writeTextfile(file, took)
}

// Errors after which the backup is good nevertheless: another one would not help.
var (
	errOldBackup = errors.New("cannot remove an old backup")
	errTextfile  = errors.New("cannot write the textfile")
)

// writeTextfile replaces the textfile, if there is to be one, in one step. Its series have
// the store as a label: two of them without one would make the node exporter fail.
func (c *backupCommand) writeTextfile(backup string, took time.Duration) error {
	if c.Textfile == "" {
		return nil
	}
	info, statErr := os.Stat(backup)
	db, pathErr := filepath.Abs(c.DB)
	if err := errors.Join(statErr, pathErr); err != nil {
		return fmt.Errorf("%w: %w", errTextfile, err)
	}
	series := prometheus.NewRegistry()
	add := func(name, help string, value float64) {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"db": db}})
		gauge.Set(value)
		series.MustRegister(gauge)
	}
	add("plantstore_backup_last_success_timestamp_seconds", "When the last good backup was complete.", float64(time.Now().Unix()))
	add("plantstore_backup_size_bytes", "Size of the last good backup.", float64(info.Size()))
	add("plantstore_backup_duration_seconds", "How long the last good backup took.", took.Seconds())
	if err := prometheus.WriteToTextfile(c.Textfile, series); err != nil {
		return fmt.Errorf("%w: %w", errTextfile, err)
	}
	return nil
}

// backups are those in the directory of --to.
func (c *backupCommand) backups() sqlite.Backups { return sqlite.Backups{Store: c.DB, Dir: c.To} }

// writeNext writes a backup into the directory and removes the oldest.
func (c *backupCommand) writeNext(ctx context.Context, std streams) error {
	err := c.write(ctx, c.backups().File(time.Now()), std)
	if c.Keep == 0 || err != nil && !errors.Is(err, errTextfile) {
		return err
	}
	if keepErr := c.backups().Keep(c.Keep); keepErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", errOldBackup, keepErr))
	}
	return err
}

// repeat writes backups until ctx ends. The first is due when the newest one in the
// directory is old enough, so that restarts do not add any. A failure ends only the first
// attempt: later ones are reported and tried again after 5 minutes at most.
func (c *backupCommand) repeat(ctx context.Context, std streams) error {
	times, err := c.backups().Times()
	if err != nil {
		return err
	}
	wait := time.Duration(0)
	if len(times) > 0 {
		wait = c.Every - time.Since(times[len(times)-1])
		std.say(fmt.Sprintf("The next backup is due in %s.", max(0, wait).Round(time.Second)))
	}
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = c.Every
		err := c.writeNext(ctx, std)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil
		case first:
			return err
		case errors.Is(err, errOldBackup), errors.Is(err, errTextfile):
			fmt.Fprintf(std.err, "plantstore: %v\n", err)
		default:
			wait = min(c.Every, 5*time.Minute)
			fmt.Fprintf(std.err, "plantstore: %v; trying again in %s\n", err, wait)
		}
	}
}

type restoreCommand struct {
	storeFlags
	File  string `arg:"" placeholder:"FILE" help:"The copy, or - for standard input."`
	Force bool   `help:"Replace the store if there is one."`
}

func (restoreCommand) Help() string {
	return `Checks the copy and puts it in place of the store in one step. The copy keeps its schema; serve migrates it. If the copy is damaged, or a server is using the store, nothing changes. Run it as the server's user, and start the server afterwards.

Examples:
  plantstore restore --db plantstore.db plants-2026-11-15.db
  zstd -dc plants.db.zst | plantstore restore --db plantstore.db --force -`
}

func (c *restoreCommand) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.isPostgres() {
		return usage("restore a PostgreSQL store with PostgreSQL's own pg_restore or pg_basebackup")
	}
	if info, err := os.Stat(c.File + "-wal"); c.File != "-" && err == nil && info.Size() > 0 {
		return fmt.Errorf("%[1]s is a store with a write-ahead log, and not a copy of one: use plantstore backup --db %[1]s", c.File)
	}
	in, _, err := cli.OpenInput(ctx, c.File, std.in)
	if err != nil {
		return fmt.Errorf("cannot read the copy: %w", err)
	}
	defer in.Close()
	err = sqlite.Restore(ctx, cli.ReaderUntil(ctx, in), c.DB, c.Force)
	if errors.Is(err, fs.ErrExist) {
		return usage("%s exists already: use --force to replace it", c.DB)
	}
	if err != nil {
		return fmt.Errorf("cannot restore the store: %w", err)
	}
	std.say(c.DB + " is restored.")
	return nil
}
