package sqlite

import (
	"fmt"
	"math"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// plantEvents are the events of a plant in a snapshot. The last one is known from the table or from
// memory, and each has the number of the one before it; where one does not, the index log_unlinked has
// it.
type plantEvents struct {
	*snapshot
	id plantstore.ID
}

// isUnlinked is the condition of the index log_unlinked.
const isUnlinked = "type = 3 OR prev IS NULL AND type < 3"

// maxPassed is how many bytes of text events may have whose numbers are read: the number of the one
// before is stored after the text.
const maxPassed = 32 << 20

// Numbers is that of [rules.PlantEvents].
func (p *plantEvents) Numbers(before, low int64, most int) (numbers []int64, more bool, err error) {
	next, passed, found, err := p.previous(before)
	if err == nil && !found {
		next, err = p.last()
	}
	for err == nil && next >= low {
		if len(numbers) == most || passed > maxPassed {
			return numbers, true, nil
		}
		numbers = append(numbers, next)
		var size int64
		if next, size, found, err = p.previous(next); err == nil && !found {
			err = inconsistent("row %d of the log is not about plant %d", numbers[len(numbers)-1], p.id)
		}
		passed += size
	}
	return numbers, false, err
}

// last returns the number of the plant's last event, or 0 if it is not kept.
func (p *plantEvents) last() (int64, error) {
	mem, err := p.unflushed()
	if err != nil {
		return 0, err
	}
	if _, row := mem.Find(p.id, p.Last); row > 0 {
		return row, nil
	}
	stored, err := number(p.conn, "SELECT seq FROM stored WHERE id = ?", int64(p.id))
	if err == nil && stored == 0 {
		return p.unlinked(math.MaxInt64)
	}
	return stored, err
}

// previous returns the number of the plant's event before one of them, or 0 if it is not kept, and the size of
// the row that says so. It reports false if the row is not one of the plant's.
func (p *plantEvents) previous(seq int64) (previous, size int64, found bool, err error) {
	row, err := p.conn.Prepare("SELECT id, type, prev, " + rowSize + " FROM log WHERE seq = ?")
	if err != nil {
		return 0, 0, false, err
	}
	row.BindInt64(1, seq)
	if found, err = row.Step(); err != nil || !found {
		row.Reset()
		return 0, 0, false, err
	}
	found = plantstore.ID(row.ColumnInt64(0)) == p.id && plantstore.EventTypeOf(row.ColumnInt64(1)).OfPlant()
	previous, size = row.ColumnInt64(2), row.ColumnInt64(3)
	if err := row.Reset(); err != nil || !found || previous > 0 {
		return previous, size, found, err
	}
	previous, err = p.unlinked(seq)
	return previous, size, true, err
}

// unlinked returns the number of the last event of the plant before one, of those to which none leads, or 0.
func (p *plantEvents) unlinked(before int64) (int64, error) {
	return number(p.conn, `SELECT seq FROM log INDEXED BY log_unlinked
		WHERE id = ? AND seq < ? AND (`+isUnlinked+`) ORDER BY seq DESC LIMIT 1`, int64(p.id), before)
}

// Each is that of [rules.PlantEvents].
func (p *plantEvents) Each(numbers []int64, f func(plantstore.Event) bool) error {
	for _, seq := range numbers {
		found, more := false, false
		err := query(p.conn, func(row *sqlite.Stmt) error {
			e, err := p.event(row)
			found, more = true, err == nil && f(e)
			return err
		}, "SELECT "+eventColumns+" FROM log WHERE seq = ?", seq)
		if err == nil && !found {
			err = inconsistent("the log has no row %d", seq)
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// checkHistory checks whether each event of a plant leads to the one before it, and each plant to its last
// event.
func (p *problems) checkHistory(snap *snapshot) error {
	var plant struct{ id, last, unlinked, kind int64 } // the rows of a plant so far
	linked := int64(0)
	end := func() error {
		if plant.last == 0 || plant.last > snap.flushed {
			return nil
		}
		stored, err := number(snap.conn, "SELECT coalesce((SELECT seq FROM stored WHERE id = ?), -1)", plant.id)
		deleted := plantstore.EventTypeOf(plant.kind) == plantstore.PlantDeleted
		switch {
		case err != nil:
			return err
		case stored == plant.last && !deleted:
			linked++
		case stored == 0 && plant.unlinked == plant.last && !deleted: // of release 0.2.0
		case stored == -1 && deleted:
		default:
			p.add("plant %d: its version is not that of its last event, row %d of the log", plant.id, plant.last)
		}
		return nil
	}
	err := query(snap.conn, func(row *sqlite.Stmt) error {
		id, seq, kind, prev := row.ColumnInt64(0), row.ColumnInt64(1), row.ColumnInt64(2), row.ColumnInt64(3)
		if id != plant.id || plant.last == 0 {
			if err := end(); err != nil {
				return err
			}
			plant.id, plant.last, plant.unlinked = id, 0, 0
		}
		if prev == 0 {
			prev = plant.unlinked
		}
		if prev != plant.last && (plant.last > 0 || prev > snap.Trimmed) {
			p.add("row %d of the log, of plant %d, leads to row %d, but the one before it is %d", seq, id, prev, plant.last)
		}
		plant.last, plant.kind = seq, kind
		if row.ColumnInt64(4) == 1 {
			plant.unlinked = seq
		}
		if len(*p) >= maxProblems {
			return errStop
		}
		return nil
	}, "SELECT id, seq, type, prev, "+isUnlinked+" FROM log WHERE type <= 3 ORDER BY id, seq")
	if sqlite.ErrCode(err) == sqlite.ResultIOErrGetTempPath {
		return fmt.Errorf("there is no place to sort the log: set TMPDIR to a folder that can be written to: %w", err)
	}
	if err == nil && len(*p) < maxProblems {
		err = end()
	}
	if err != nil || len(*p) >= maxProblems {
		return err
	}
	found, err := number(snap.conn, "SELECT count(*) FROM stored WHERE seq > ? AND id NOT IN "+unflushedIDs, snap.Trimmed)
	if err == nil && found != linked {
		p.add("plants whose last event is kept: %d, rows of the log that are one: %d", found, linked)
	}
	return err
}
