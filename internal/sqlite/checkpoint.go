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
	// checkpointEvery is the number of pages after which a checkpoint is due, if
	// every write took one and long ones as many as their text fills.
	checkpointEvery = 1024
	// walBound is the length of the write-ahead log, in pages, at which writes
	// wait until all of it is in the file, so that the log starts over.
	walBound = 16 << 10
	// smallRest is how many pages writes may wait for.
	smallRest = 512
	// chases is how many times a checkpoint follows a log that grows meanwhile.
	chases = 4
	// settleSize is how many of the plants that wait are moved at once when nobody
	// pushes them. That happens every settleAfter, and every settlePause if nobody
	// wrote meanwhile.
	settleSize  = 256
	settleAfter = 100 * time.Millisecond
	settlePause = time.Millisecond
	// pageSize is SQLite's own default.
	pageSize = 4096
)

// Run moves the write-ahead log into the file whenever enough was written, and plants
// that wait to their place, all of them while there is nothing else to do, until ctx
// ends. It returns an error that wraps [plantstore.ErrUntrusted] if the file could
// not be synced: the process must then stop.
func (s *Store) Run(ctx context.Context) error {
	pause := time.NewTimer(settleAfter)
	defer pause.Stop()
	seen := s.writes.Load()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-s.due:
			err = explain(s.path, s.checkpoint())
		case <-pause.C:
			idle := s.writes.Load() == seen
			err = s.settle(ctx)
			seen = s.writes.Load()
			next := settleAfter
			if idle && err == nil && s.write.recent.Load().rows > 0 {
				next = settlePause
			}
			pause.Reset(next)
		}
		if errors.Is(err, plantstore.ErrUntrusted) {
			s.untrusted(err)
			return err
		}
		// Any other failure leaves things as they are, and the next time tries
		// again: a full disk empties, a reader ends.
	}
}

// settle moves some of the plants that wait to their place, if there are any, and
// removes what was left of them.
func (s *Store) settle(ctx context.Context) error {
	if s.write.recent.Load().rows == 0 {
		return nil
	}
	return s.writing(ctx, settleSize, func(w *writer) error { return w.move(settleSize) })
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

// wrote counts pages that were written and marks a checkpoint as due when there
// were enough. The caller holds the mutex.
func (s *Store) wrote(pages int) {
	s.sinceDue += pages
	if s.sinceDue < checkpointEvery {
		return
	}
	select {
	case s.due <- struct{}{}:
		s.sinceDue = 0
	default: // one is under way
	}
}

// checkpoint copies the log into the file while writes go on. Such a copy never
// reaches the end of a log that grows, and only a log that was copied whole can
// start over; so, where the log is too long, writes wait for the last few pages.
func (s *Store) checkpoint() error {
	before := 0
	for range chases {
		length, err := copyLog(s.checkpointer)
		if err != nil || length < walBound {
			return err
		}
		if length-before <= smallRest {
			break
		}
		before = length
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := copyLog(s.checkpointer)
	return err
}

// copyLog makes one passive checkpoint, which is complete unless a long read is
// under way, and returns how many pages the log had when it began.
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
