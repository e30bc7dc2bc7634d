package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

const (
	// checkpointEvery is the number of pages after which a checkpoint is due, counting
	// one for every write and as many as its text fills for a long one.
	checkpointEvery = 1024
	// maxLog is the length of the write-ahead log, in pages, at which writes wait
	// until all of it is in the file, so that the log can start over.
	maxLog = 16 << 10
	// maxBlockingPages is how many pages may be copied while writes wait.
	maxBlockingPages = 512
	// maxPasses is how many times a checkpoint follows a log that keeps growing.
	maxPasses = 4
	// idleFlushSize is how many staged plants are flushed at once without a write that
	// asks for it. That happens every idleFlushInterval, and every idleFlushPause
	// while there are no writes.
	idleFlushSize     = 256
	idleFlushInterval = 100 * time.Millisecond
	idleFlushPause    = time.Millisecond
	// pageSize is SQLite's default.
	pageSize = 4096
)

// Run copies the write-ahead log into the file whenever enough was written, and
// flushes staged plants, all of them while there are no writes, until ctx ends. It
// returns an error that wraps [plantstore.ErrUntrusted] if the file could not be
// synced: the process must then stop.
func (s *Store) Run(ctx context.Context) error {
	pause := time.NewTimer(idleFlushInterval)
	defer pause.Stop()
	seen := s.writes.Load()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-s.due:
			err = s.classify(s.checkpoint())
		case <-pause.C:
			idle := s.writes.Load() == seen
			err = s.idleFlush(ctx)
			seen = s.writes.Load()
			next := idleFlushInterval
			if idle && err == nil && s.write.staging.Load().rows > 0 {
				next = idleFlushPause
			}
			pause.Reset(next)
		}
		if errors.Is(err, plantstore.ErrUntrusted) {
			s.markUntrusted(err)
			return err
		}
		// After any other failure the next round tries again: disk space is freed, a
		// reader ends.
	}
}

// idleFlush flushes some of the staged plants, if there are any, and deletes rows that
// are no longer needed.
func (s *Store) idleFlush(ctx context.Context) error {
	if s.write.staging.Load().rows == 0 {
		return nil
	}
	return s.withWriter(ctx, idleFlushSize, func(w *writer) error { return w.flush(idleFlushSize) })
}

// pages returns about how many pages a batch takes.
func pages(batch []plantstore.Write) int {
	n := len(batch)
	for i := range batch {
		tag, _ := batch[i].Plant.Tag.Text()
		n += (len(batch[i].Plant.Name) + len(tag)) / pageSize
	}
	return n
}

// countPages counts written pages and requests a checkpoint when there are enough.
// The caller holds the mutex.
func (s *Store) countPages(pages int) {
	s.pages += pages
	if s.pages < checkpointEvery {
		return
	}
	select {
	case s.due <- struct{}{}:
		s.pages = 0
	default: // one has been requested already
	}
}

// checkpoint copies the log into the file while writes continue. Such a copy never
// reaches the end of a log that grows, and only a log that was copied entirely can
// start over. So if the log is too long, writes wait for its last few pages.
func (s *Store) checkpoint() error {
	before := 0
	for range maxPasses {
		length, err := copyLog(s.checkpointer)
		if err != nil || length < maxLog {
			return err
		}
		if length-before <= maxBlockingPages {
			break
		}
		before = length
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := copyLog(s.checkpointer)
	return err
}

// copyLog runs one passive checkpoint, which is complete unless a long read is in
// progress, and returns how many pages the log had when it started.
func copyLog(c *sqlite.Conn) (length int, err error) {
	err = sqlitex.Execute(c, "PRAGMA wal_checkpoint(PASSIVE)", &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			length = row.ColumnInt(1)
			return nil
		},
	})
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	return length, nil
}
