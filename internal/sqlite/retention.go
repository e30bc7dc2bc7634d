package sqlite

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// How the log is trimmed: trimSize rows at once while there are no writes, and trimFactor
// rows for every write of a batch in its transaction. That is up to about trimBytes, or as
// many bytes as the batch appends.
const (
	trimSize     = 2048
	trimFactor   = 4
	trimBytes    = 4 << 20
	trimInterval = time.Second
)

// rowOverhead is the approximate size of a row of the log in addition to its text, in bytes.
const rowOverhead = 32

// rowSize is the expression for the size of a row of the log, in bytes.
var rowSize = strconv.Itoa(rowOverhead) +
	` + octet_length("by") + octet_length(name) + coalesce(octet_length(tag), 0) + coalesce(octet_length(was), 0)`

// KeepLog sets how long, and up to how many bytes, the log of changes is kept,
// whichever is less; 0 means no limit. Rows that have not been flushed are kept in any
// case. KeepLog must be called before Run.
func (s *Store) KeepLog(age time.Duration, bytes int64) {
	s.logAge, s.logBytes = age, bytes
}

// updateTrim finds the rows that are too old, and takes note of rows that other processes
// have appended.
func (s *Store) updateTrim(ctx context.Context) error {
	last, err := readSnapshot(ctx, s.lookups, func(snap *snapshot) (int64, error) {
		if s.logAge == 0 {
			return snap.Last, nil
		}
		expired, err := snap.Before(s.Clock.Ago(s.logAge))
		s.expired.Store(expired.Seq)
		return snap.Last, err
	})
	if err == nil && last > s.lastSeq.Load() {
		err = s.withWriter(ctx, (*writer).catchUp)
	}
	return err
}

// mayTrimAfter reports whether the row after one may be trimmed from a log of that size: it is
// flushed, and it is too old or the log too large.
func (s *Store) mayTrimAfter(seq, size int64) bool {
	return seq < s.write.flushed && (seq < s.expired.Load() || s.logBytes > 0 && size > s.logBytes)
}

// trim removes rows that are too old or beyond the limit, the oldest first: up to that many rows with
// little more than trimBytes, or up to that many bytes, whichever is more.
func (s *Store) trim(rows int, bytes int64) error {
	w := s.write
	to, freed := w.trimmed, int64(0)
	wanted := func() bool {
		return s.mayTrimAfter(to, w.tx.bytes-freed) && (to-w.trimmed < int64(rows) && freed < trimBytes || freed < bytes)
	}
	if !wanted() {
		return nil
	}
	err := query(w.conn, func(row *sqlite.Stmt) error {
		to, freed = row.ColumnInt64(0), freed+row.ColumnInt64(1)
		if !wanted() {
			return errStop
		}
		return nil
	}, "SELECT seq, "+rowSize+" FROM log WHERE seq > ? AND seq <= ? ORDER BY seq", w.trimmed, w.flushed)
	if err != nil {
		return err
	}
	w.tx.bytes -= freed
	w.tx.trimmed = to
	const setTrimmed = "UPDATE log_state SET trimmed = ?1, trimmed_time = (SELECT time FROM log WHERE seq = ?1), bytes = ?2"
	if err := exec(w.conn, setTrimmed, to, w.tx.bytes-w.tx.unflushedBytes); err != nil {
		return err
	}
	return exec(w.conn, "DELETE FROM log WHERE seq <= ?", to)
}

// mayTrim reports whether there are rows to trim.
func (s *Store) mayTrim() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mayTrimAfter(s.write.trimmed, s.write.bytes)
}

// Stats describes the store. It reads a few rows.
func (s *Store) Stats(ctx context.Context) (plantstore.Stats, error) {
	stats, err := readSnapshot(ctx, s.lookups, func(snap *snapshot) (stats plantstore.Stats, err error) {
		stats.Plants, stats.Bytes, stats.SearchIndex = s.plants.Load(), s.logSize.Load(), snap.indexStats()
		if s.lock == nil { // the server is another process
			err = query(snap.conn, func(row *sqlite.Stmt) error {
				stats.Plants, stats.Bytes = row.ColumnInt64(0), row.ColumnInt64(1)
				return nil
			}, selectTotals)
		}
		if err != nil {
			return stats, err
		}
		stats.Events, stats.LastSeq, stats.Unflushed = snap.Last-snap.Trimmed, snap.Last, snap.Last-snap.flushed
		if stats.Events == 0 {
			return stats, nil
		}
		first, err := snap.At(snap.Trimmed + 1)
		stats.Oldest = time.UnixMicro(first.Time).UTC()
		return stats, err
	})
	if err != nil {
		return stats, err
	}
	stats.FileBytes, stats.WALBytes = sizeOf(s.path), sizeOf(s.path+"-wal")
	stats.FreeBytes, stats.Checkpoints = freeBytes(filepath.Dir(s.path)), s.checkpoints.Load()
	return stats, nil
}

// selectTotals has how many plants there are and how large the log is, by its state and by the
// rows that are not flushed.
var selectTotals = `SELECT plants + count(*) FILTER (WHERE type = 1) - count(*) FILTER (WHERE type = 3), bytes + coalesce(sum(` + rowSize + `), 0)
	FROM log_state LEFT JOIN log ON seq > flushed`
