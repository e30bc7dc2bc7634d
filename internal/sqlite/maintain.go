package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// maxProblems is how many problems Check reports.
const maxProblems = 100

// Check reads the whole file and returns what is wrong with it: corrupt pages, an
// index that disagrees with its table, text that is not UTF-8, a log with a gap, a wrong
// count, a token or a webhook that cannot be read. A server may have the file open. An
// error says that the check itself could not be done.
func (s *Store) Check(ctx context.Context) ([]string, error) {
	var found problems
	// A copy that was made to be migrated has neither the pages nor the indexes of its original.
	err := cmp.Or(s.original, s).withConn(ctx, found.checkPages)
	if err == nil {
		err = s.withConn(ctx, func(c *sqlite.Conn) error { return errors.Join(found.checkTables(s, c), found.checkIndex(s, c)) })
	}
	switch err = classify(s.path, err); {
	case err == nil:
	case ctx.Err() != nil:
		return found, ctx.Err()
	case errors.Is(err, plantstore.ErrDamaged), errors.Is(err, plantstore.ErrUntrusted):
		return append(found, err.Error()), nil
	default: // the check could not be done
		return found, err
	}
	if _, err := s.Tokens(ctx); err != nil {
		found.add("%v", err)
	}
	hooks, err := s.Webhooks(ctx)
	if err != nil {
		found.add("%v", err)
	}
	for _, hook := range hooks {
		// A server may have deleted it since.
		if _, err := s.Deliveries(ctx, hook.ID); err != nil && !errors.Is(err, plantstore.ErrNoWebhook) {
			found.add("%v", err)
		}
	}
	return found, nil
}

// problems is what a check has found.
type problems []string

// add adds a problem.
func (p *problems) add(format string, args ...any) {
	*p = append(*p, fmt.Sprintf(format, args...))
}

// checkPages checks the pages of the file.
func (p *problems) checkPages(c *sqlite.Conn) error {
	return query(c, func(row *sqlite.Stmt) error {
		for line := range strings.SplitSeq(row.ColumnText(0), "\n") {
			if line != "ok" && line != "*** in database main ***" {
				p.add("%s", line)
			}
		}
		return nil
	}, fmt.Sprintf("PRAGMA integrity_check(%d)", maxProblems))
}

// checkTables checks whether plants and log are as they should be.
func (p *problems) checkTables(s *Store, c *sqlite.Conn) error {
	if err := s.inSnapshot(c, p.checkPlants); err != nil {
		return err
	}
	if err := s.inSnapshot(c, p.checkLog); err != nil {
		return err
	}
	if err := errors.Join(p.checkTotals(c), p.checkTagged(c)); err != nil {
		return err
	}
	// The rows of a large log are sorted on the disk.
	if err := pragma(c, "temp_store=FILE"); err != nil {
		return err
	}
	return s.inSnapshot(c, p.checkHistory)
}

// checkPlants reads all plants.
func (p *problems) checkPlants(snap *snapshot) error {
	var last *plantstore.ID
	return snap.each(plantstore.Query{Details: true}, func(plant plantstore.StoredPlant) bool {
		if last != nil && plant.ID <= *last {
			p.add("plant %d: it exists twice", plant.ID)
		}
		last = &plant.ID
		tag, _ := plant.Tag.Text()
		if !utf8.ValidString(plant.Name) || !utf8.ValidString(tag) {
			p.add("plant %d: its name or tag is not UTF-8", plant.ID)
		}
		if plant.Version.N > snap.Last {
			p.add("plant %d: its version is from row %d of the log, which ends at row %d", plant.ID, plant.Version.N, snap.Last)
		}
		return len(*p) < maxProblems
	})
}

// checkLog reads the whole log.
func (p *problems) checkLog(log *snapshot) error {
	if log.Trimmed > log.flushed || log.flushed > log.Last {
		p.add("the log ends at row %d, but was flushed up to %d and trimmed up to %d", log.Last, log.flushed, log.Trimmed)
	}
	last := log.Trimmed
	err := log.eachEvent(log.Trimmed+1, false, func(e plantstore.Event) bool {
		last++
		tag, _ := e.Plant.Tag.Text()
		switch {
		case e.Type == "":
			p.add("row %d of the log: its type is unknown", last)
		case !utf8.ValidString(e.Plant.Name) || !utf8.ValidString(tag) || !utf8.ValidString(e.By):
			p.add("row %d of the log: its text is not UTF-8", last)
		}
		return len(*p) < maxProblems
	})
	if err == nil && last != log.Last && len(*p) < maxProblems {
		err = inconsistent("the log has no row %d", last+1)
	}
	return err
}

// checkTotals counts the plants, and adds up the sizes of the log's rows, in one statement,
// which is one snapshot.
func (p *problems) checkTotals(c *sqlite.Conn) error {
	return query(c, func(row *sqlite.Stmt) error {
		if kept, found := row.ColumnInt64(0), row.ColumnInt64(2); found != kept {
			p.add("there are %d plants, but the log's state says %d", found, kept)
		}
		if kept, found := row.ColumnInt64(1), row.ColumnInt64(3); found != kept {
			p.add("the log has %d bytes, but its state says %d", found, kept)
		}
		return nil
	}, "SELECT *, (SELECT count(*) FROM plants), (SELECT coalesce(sum("+rowSize+"), 0) FROM log) FROM ("+selectTotals+")")
}

// unflushedIDs are the plants that the log has after the row flushed. About them, the
// tables may be behind each other.
const unflushedIDs = "(SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)"

// checkTagged compares the table of tagged plants with that of all plants: each that has a
// tag is there, and nothing else.
func (p *problems) checkTagged(c *sqlite.Conn) error {
	const tagged = "FROM stored WHERE tag IS NOT NULL AND id NOT IN " + unflushedIDs
	const missing = "SELECT id " + tagged + " AND NOT EXISTS (SELECT 1 FROM stored_by_tag AS t WHERE t.tag = stored.tag AND t.id = stored.id) LIMIT ?"
	err := query(c, func(row *sqlite.Stmt) error {
		p.add("plant %d: it is not found by its tag", row.ColumnInt64(0))
		return nil
	}, missing, maxProblems)
	if err != nil {
		return err
	}
	const counts = "SELECT (SELECT count(*) FROM stored_by_tag WHERE id NOT IN " + unflushedIDs + "), (SELECT count(*) " + tagged + ")"
	return query(c, func(row *sqlite.Stmt) error {
		if found, want := row.ColumnInt64(0), row.ColumnInt64(1); found > want {
			p.add("plants with a tag: %d, rows of stored_by_tag: %d", want, found)
		}
		return nil
	}, counts)
}

// Backup writes a copy of the store at path to a new file, as it is: it keeps its
// schema. A server may read and write the store meanwhile. The copy has been synced and
// checked before it gets its name. It refuses the original's cursors. say is that of [Look].
func Backup(ctx context.Context, path, file string, say func(string)) error {
	switch _, err := os.Lstat(file); {
	case err == nil:
		return fmt.Errorf("%s already exists: name a new file", file)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	partial := partialName(file)
	defer removePartial(partial) // if it has not been renamed
	if err := copyStore(ctx, path, partial, say); err != nil {
		return err
	}
	if err := syncFile(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, file); err != nil {
		return err
	}
	return syncDir(file)
}

// partialName returns a name for a file that will get its own when it is complete. What a
// killed process has left is never in its way.
func partialName(path string) string { return path + "." + rand.Text()[:8] + ".partial" }

// removePartial removes such a file, and what SQLite has left beside it.
func removePartial(path string) error {
	return removeFiles(path, path+"-journal", path+"-wal", path+"-shm")
}

// copyStore writes a copy of the store at path to a new file and checks it. After an error
// the caller removes the file.
func copyStore(ctx context.Context, path, file string, say func(string)) error {
	s, err := lookAsIs(path, say)
	if err != nil {
		return err
	}
	// VACUUM needs an empty file or none. Only the owner can read this one.
	if err = writeNew(file, strings.NewReader("")); err == nil {
		err = s.vacuumInto(ctx, file)
	}
	if err = errors.Join(err, s.Close()); err == nil {
		if err = renameStore(file); err != nil {
			err = fmt.Errorf("%s: %w", file, err)
		}
	}
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := verify(ctx, file); err != nil {
		return fmt.Errorf("check the backup: %w", err)
	}
	return nil
}

// renameStore gives a copy a name of its own in cursors: its log diverges from the
// original's, whose cursors it must refuse.
func renameStore(path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	return errors.Join(exec(c, "UPDATE log_state SET store = lower(hex(randomblob(5)))"), c.Close())
}

// verify reads a copy, of any schema that is supported, and fails if it is damaged.
func verify(ctx context.Context, path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	var found problems
	err = found.checkPages(c)
	if err == nil && len(found) == 0 {
		err = found.checkTagged(c)
	}
	if err == nil && len(found) > 0 {
		err = errors.New(found[0])
	}
	return err
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
