package sqlite

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// How the log is trimmed: trimSize rows at once while there are no writes, and
// trimFactor rows for every row that a batch appends.
const (
	trimSize     = 2048
	trimFactor   = 4
	trimInterval = time.Second
)

// rowOverhead is the approximate size of a row of the log in addition to its text, in
// bytes.
const rowOverhead = 32

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. The size is an estimate. Rows that have not
// been flushed are kept in any case. KeepLog must be called before Run.
func (s *Store) KeepLog(age time.Duration, bytes int64) {
	s.logAge, s.logBytes = age, bytes
}

// updateTrim decides up to which row the log may be trimmed.
func (s *Store) updateTrim(ctx context.Context) error {
	if s.logAge <= 0 && s.logBytes <= 0 {
		return nil
	}
	return s.withReader(ctx, s.read, func(r *reader) error {
		c := r.conn
		defer endSnapshot(c)
		if err := exec(c, "BEGIN"); err != nil {
			return err
		}
		log, err := readState(c)
		if err != nil {
			return err
		}
		to := log.trimmed
		if s.logAge > 0 {
			expired, err := log.logRange(c).Before(time.Now().Add(-s.logAge))
			if err != nil {
				return err
			}
			to = max(to, expired.Seq)
		}
		if s.logBytes > 0 && log.seq > log.trimmed {
			size, err := log.rowSize(c)
			if err != nil {
				return err
			}
			s.logRowSize.Store(size)
			to = max(to, log.seq-s.logBytes/size)
		}
		s.trimTo.Store(min(to, log.flushed))
		return nil
	})
}

// rowSize returns the approximate size of a row of the log in bytes: the average of
// the last ones.
func (log *logState) rowSize(c *sqlite.Conn) (size int64, err error) {
	const sample = 1000
	row, err := c.Prepare(`SELECT coalesce(avg(octet_length("by") + octet_length(name) + coalesce(octet_length(tag), 0)), 0) FROM log WHERE seq > ?`)
	if err != nil {
		return 0, err
	}
	defer row.Reset()
	row.BindInt64(1, log.seq-sample)
	if _, err := row.Step(); err != nil {
		return 0, err
	}
	return rowOverhead + int64(row.ColumnFloat(0)), nil
}

// trim removes up to n of the rows that may be trimmed, the oldest first.
func (s *Store) trim(n int) error {
	w := s.write
	to := min(s.trimTo.Load(), w.trimmed+int64(n))
	if to <= w.trimmed {
		return nil
	}
	w.setTrimmed.BindInt64(1, to)
	if err := run(w.setTrimmed); err != nil {
		return err
	}
	w.trim.BindInt64(1, to)
	w.tx.trimmed = to
	w.tx.pages += n / 16
	return run(w.trim)
}

// idleTrim trims some rows, and reports whether there are more to trim.
func (s *Store) idleTrim(ctx context.Context) (more bool, err error) {
	if !s.mayTrim() {
		return false, nil
	}
	err = s.withWriter(ctx, func(*writer) error { return s.trim(trimSize) })
	return err == nil && s.mayTrim(), err
}

func (s *Store) mayTrim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write.trimmed < s.trimTo.Load()
}

// LogStats describes the log. It reads a few rows.
func (s *Store) LogStats(ctx context.Context) (stats plantstore.LogStats, err error) {
	err = s.withReader(ctx, s.read, func(r *reader) error {
		c := r.conn
		defer endSnapshot(c)
		if err := exec(c, "BEGIN"); err != nil {
			return err
		}
		log, err := readState(c)
		if err != nil {
			return err
		}
		stats = plantstore.LogStats{Events: log.seq - log.trimmed, LastSeq: log.seq, Unflushed: log.seq - log.flushed}
		stats.Bytes = stats.Events * s.logRowSize.Load()
		if stats.Events == 0 {
			return nil
		}
		first, err := log.logRange(c).At(log.trimmed + 1)
		stats.Oldest = time.UnixMicro(first.Time).UTC()
		return err
	})
	return stats, err
}
