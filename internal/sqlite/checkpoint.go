package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

const (
	// A checkpoint is due when the write-ahead log has checkpointEvery pages that the file
	// does not have. Run looks every checkpointInterval.
	checkpointEvery    = 1024
	checkpointInterval = 100 * time.Millisecond
	// maxLog is the length of the write-ahead log, in pages, at which writes wait
	// until all of it is in the file, so that the log can start over.
	maxLog = 16 << 10
	// maxBlockingPages is how many pages may be copied while writes wait.
	maxBlockingPages = 512
	// maxRounds is how many times a checkpoint copies a log that keeps growing.
	maxRounds = 4
	// When there were no writes for idleAfter, the rest is flushed in transactions of
	// idleFlushTime, with idlePause in between: the longer one lasts, the fewer pages it
	// writes per plant. It ends early if a batch waits, which it notices after every
	// idleFlushSize rows.
	idleFlushSize = 4096
	idleFlushTime = 100 * time.Millisecond
	idleAfter     = 100 * time.Millisecond
	idlePause     = time.Millisecond
	// maxAhead is how far the last event may be ahead of the clock without a warning.
	maxAhead = time.Minute
	// warnInterval is how often a failure of Run is logged, at most.
	warnInterval = time.Minute
	// pageSize is SQLite's default.
	pageSize = 4096
)

// Run copies the write-ahead log into the file whenever enough was written, and flushes
// everything while there are no writes, until ctx ends. It returns an error that wraps
// [plantstore.ErrUntrusted] if the file could not be synced, by Run or by any other call: the
// process must then stop.
func (s *Store) Run(ctx context.Context) error {
	if err := s.checkTrusted(); err != nil {
		if !errors.Is(err, plantstore.ErrDamaged) {
			return err
		}
		// It was too damaged to be opened.
		s.Log.Error(damageAdvice+". Until then it refuses everything", "db", s.path, "err", err)
		<-ctx.Done()
		return nil
	}
	pause, trim, checkpoint := time.NewTimer(idleAfter), time.NewTicker(trimInterval), time.NewTicker(checkpointInterval)
	index := time.NewTimer(indexInterval)
	defer index.Stop()
	defer pause.Stop()
	defer trim.Stop()
	defer checkpoint.Stop()
	s.warnOfTime()
	ctx, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { s.watchPlaces(ctx) }) // also while the disk is slow
	defer watch.Wait()
	defer end()
	var warned time.Time
	for {
		var err error
		select {
		case <-ctx.Done():
			return s.checkTrusted()
		case <-checkpoint.C:
			err = s.classify(s.checkpointIfDue())
		case <-trim.C:
			err = s.updateTrim(ctx)
		case <-pause.C:
			var next time.Duration
			next, err = s.idleFlush(ctx)
			pause.Reset(next)
		case <-index.C:
			var next time.Duration
			next, err = s.stepIndex(ctx)
			index.Reset(next)
		}
		if errors.Is(err, plantstore.ErrUntrusted) {
			s.markUntrusted(err)
			return err
		}
		// After any other failure the next round tries again: disk space is freed, a
		// reader ends.
		if err != nil && ctx.Err() == nil && s.Damaged() == nil && time.Since(warned) > warnInterval {
			warned = time.Now()
			s.Log.Warn("store maintenance failed, retrying", "db", s.path, "err", err)
		}
	}
}

// warnOfTime warns if the last event is from the future: those that follow get its time,
// which never goes back.
func (s *Store) warnOfTime() {
	s.mu.Lock()
	last := time.UnixMicro(s.write.time)
	s.mu.Unlock()
	if ahead := time.Until(last); ahead > maxAhead {
		s.Log.Warn("the last event is ahead of the clock: events keep its time until the clock has caught up", "db", s.path, "time", last.UTC())
	}
}

// idleFlush flushes or trims some rows if there were no writes for a while. It returns when
// to call it again.
func (s *Store) idleFlush(ctx context.Context) (next time.Duration, err error) {
	if s.applying.Load() > 0 {
		return idleAfter, nil
	}
	// It is negative if the clock has been set back.
	if since := time.Since(time.Unix(0, s.lastWrite.Load())); since >= 0 && since < idleAfter {
		return idleAfter - since, nil
	}
	if !s.freezeRest() && !s.mayTrim() && !s.mayMerge() {
		return idleAfter, nil
	}
	if err := s.withWriter(ctx, s.flushWhileIdle); err != nil {
		return idleAfter, err
	}
	return idlePause, nil
}

// flushWhileIdle flushes until idleFlushTime has passed or a batch waits. If there is nothing
// to flush, it merges segments of the index of names, or trims.
func (s *Store) flushWhileIdle(w *writer) error {
	idle := s.unflushed.Load().Frozen == nil
	switch {
	case w.tx.names.merge > 0:
		return w.mergeNames()
	case idle && w.tx.names.state != indexOff && !w.tx.names.merged:
		return w.mergeRest()
	case idle:
		return s.trim(trimSize, 0)
	}
	for began := time.Now(); ; {
		if err := s.flush(idleFlushSize, flushText); err != nil || w.tx.flushed > w.flushed {
			return err
		}
		if s.applying.Load() > 0 || w.tx.text > flushText || time.Since(began) > idleFlushTime {
			return nil
		}
	}
}

// checkpointIfDue runs a checkpoint if there is enough to copy (invariant 9).
func (s *Store) checkpointIfDue() error {
	if err := s.checkWritable(); err != nil {
		return err
	}
	length, copied, err := walCheckpoint(s.checkpointer, "NOOP")
	if err != nil || length-copied < checkpointEvery {
		return err
	}
	return s.checkpoint()
}

// checkpoint copies the log into the file while writes continue. Such a copy never
// reaches the end of a log that grows, and only a log that was copied entirely can
// start over. So if the log is too long, writes wait for its last few pages.
func (s *Store) checkpoint() error {
	s.checkpoints.Add(1)
	before := 0
	for range maxRounds {
		length, _, err := walCheckpoint(s.checkpointer, "PASSIVE")
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
	_, _, err := walCheckpoint(s.checkpointer, "PASSIVE")
	return err
}

// walCheckpoint runs one checkpoint, and returns how many pages the log had when it started,
// and how many of them are in the file. A PASSIVE one copies all unless a long read is in
// progress, and a NOOP one copies none.
func walCheckpoint(c *sqlite.Conn, mode string) (length, copied int, err error) {
	err = query(c, func(row *sqlite.Stmt) error {
		length, copied = row.ColumnInt(1), row.ColumnInt(2)
		return nil
	}, "PRAGMA wal_checkpoint("+mode+")")
	if err != nil {
		return 0, 0, fmt.Errorf("checkpoint: %w", err)
	}
	return length, copied, nil
}
