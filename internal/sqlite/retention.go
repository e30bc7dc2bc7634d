package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// How the log is trimmed: trimSize rows at once while there are no writes, trimFactor
// rows for every write, and up to trimText bytes of text in one transaction.
const (
	trimSize     = 2048
	trimFactor   = 4
	trimText     = 4 << 20
	trimInterval = time.Second
)

// sampleSize is the approximate number of rows from which the size of the log is
// estimated.
const sampleSize = 256

// rowOverhead is the approximate size of a row of the log in addition to its text, in
// bytes.
const rowOverhead = 32

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. The size is an estimate. Rows that have not
// been flushed are kept in any case. KeepLog must be called before Run.
func (s *Store) KeepLog(age time.Duration, bytes int64) {
	s.logAge, s.logBytes = age, bytes
}

// updateTrim decides up to which row the log is to be trimmed, and takes note of rows
// that other processes have appended.
func (s *Store) updateTrim(ctx context.Context) error {
	var last int64
	err := s.withReader(ctx, s.read, func(r *reader) error {
		c := r.conn
		log, err := beginRead(c)
		if err != nil {
			return err
		}
		defer log.end()
		last = log.seq
		to := log.trimmed
		if s.logAge > 0 {
			expired, err := log.logRange(c).Before(time.Now().Add(-s.logAge))
			if err != nil {
				return err
			}
			to = max(to, expired.Seq)
		}
		sample, err := log.sample(c)
		if err != nil {
			return err
		}
		s.logBytesUsed.Store(plantstore.LogBytes(sample, log.seq))
		if s.logBytes > 0 {
			to = max(to, plantstore.TrimTo(sample, log.seq, s.logBytes))
		}
		s.flushUrgent.Store(to > log.flushed)
		s.trimTo.Store(min(to, log.flushed))
		return nil
	})
	if err == nil && last > s.lastSeq.Load() {
		err = s.withWriter(ctx, (*writer).catchUp)
	}
	return err
}

// textSize is how many bytes of text a row of the log has.
const textSize = `octet_length("by") + octet_length(name) + coalesce(octet_length(tag), 0) + coalesce(octet_length(was), 0)`

// sample returns the sizes of rows that are spread evenly over the log.
func (log *logState) sample(c *sqlite.Conn) (sample []plantstore.LogSample, err error) {
	row, err := c.Prepare("SELECT " + textSize + " FROM log WHERE seq = ?")
	if err != nil {
		return nil, err
	}
	step := max(1, (log.seq-log.trimmed)/sampleSize)
	for seq := log.trimmed + 1; seq <= log.seq; seq += step {
		row.BindInt64(1, seq)
		err := eachRow(row, func() {
			sample = append(sample, plantstore.LogSample{Seq: seq, Bytes: rowOverhead + row.ColumnInt64(0)})
		})
		if err != nil {
			return nil, err
		}
	}
	return sample, nil
}

// trim removes up to n of the rows that may be trimmed, the oldest first, with no more
// than trimText bytes of text.
func (s *Store) trim(n int) error {
	w := s.write
	limit := min(s.trimTo.Load(), w.trimmed+int64(n))
	if limit <= w.trimmed {
		return nil
	}
	to, text := w.trimmed, int64(0)
	w.logText.BindInt64(1, w.trimmed)
	w.logText.BindInt64(2, limit)
	err := eachRow(w.logText, func() {
		if text += w.logText.ColumnInt64(1); to == w.trimmed || text <= trimText {
			to = w.logText.ColumnInt64(0)
		}
	})
	if err != nil || to == w.trimmed {
		return err
	}
	w.setTrimmed.BindInt64(1, to)
	if err := run(w.setTrimmed); err != nil {
		return err
	}
	w.trim.BindInt64(1, to)
	w.tx.trimmed = to
	w.tx.pages += int(to-w.trimmed)/16 + int(min(text, trimText)/pageSize)
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

// Stats describes the store. It reads a few rows.
func (s *Store) Stats(ctx context.Context) (stats plantstore.Stats, err error) {
	err = s.withReader(ctx, s.read, func(r *reader) error {
		c := r.conn
		log, err := beginRead(c)
		if err != nil {
			return err
		}
		defer log.end()
		if stats.Plants, err = s.countPlants(c); err != nil {
			return err
		}
		stats = plantstore.Stats{Plants: stats.Plants, Events: log.seq - log.trimmed, LastSeq: log.seq, Unflushed: log.seq - log.flushed}
		if stats.Events == 0 {
			return nil
		}
		stats.Bytes = s.logBytesUsed.Load()
		first, err := log.logRange(c).At(log.trimmed + 1)
		stats.Oldest = time.UnixMicro(first.Time).UTC()
		return err
	})
	if err != nil {
		return plantstore.Stats{}, err
	}
	stats.FileBytes, stats.WALBytes = fileSize(s.path), fileSize(s.path+"-wal")
	stats.FreeBytes, stats.Checkpoints = freeBytes(filepath.Dir(s.path)), s.checkpoints.Load()
	return stats, nil
}

func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0 // there is no write-ahead log
	}
	return info.Size()
}

// countKept is the number of plants that the log and its state say there are.
const countKept = `plants + (
	SELECT count(*) FILTER (WHERE type = 1) - count(*) FILTER (WHERE type = 3) FROM log WHERE seq > flushed
)`

// countPlants returns how many plants there are.
func (s *Store) countPlants(c *sqlite.Conn) (n int64, err error) {
	if s.lock != nil {
		return s.plants.Load(), nil
	}
	// The server is another process.
	err = sqlitex.Execute(c, "SELECT "+countKept+" FROM log_state", &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error { n = row.ColumnInt64(0); return nil },
	})
	return n, err
}
