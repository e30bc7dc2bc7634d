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
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

// maxProblems is how many problems Check reports.
const maxProblems = 100

// Check reads the whole file and returns what is wrong with it: corrupt pages, an
// index that disagrees with its table, text that is not UTF-8, a log with a gap, a wrong
// count, a token or a webhook that cannot be read. A server may have the file open. An
// error says that the check itself could not be done.
func (s *Store) Check(ctx context.Context) (problems []string, err error) {
	// A copy that was made to be migrated has neither the pages nor the indexes of its original.
	if problems, err = cmp.Or(s.original, s).checkPages(ctx); err != nil {
		return checkError(ctx, s.path, err, problems)
	}
	c, err := s.connect()
	if err != nil {
		return nil, classify(s.path, err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	var last *plantstore.ID
	err = s.snapshot(c, func(snap *snapshot) error {
		return snap.each(plantstore.Query{}, func(p plantstore.Plant) bool {
			if last != nil && p.ID <= *last {
				problems = append(problems, fmt.Sprintf("plant %d: it exists twice", p.ID))
			}
			last = &p.ID
			tag, _ := p.Tag.Text()
			if !utf8.ValidString(p.Name) || !utf8.ValidString(tag) {
				problems = append(problems, fmt.Sprintf("plant %d: its name or tag is not UTF-8", p.ID))
			}
			return len(problems) < maxProblems
		})
	})
	if err != nil {
		return checkError(ctx, s.path, err, problems)
	}
	if err := checkLog(c, &problems); err != nil {
		return checkError(ctx, s.path, err, problems)
	}
	if err := errors.Join(checkTotals(c, &problems), checkTagged(c, &problems)); err != nil {
		return checkError(ctx, s.path, err, problems)
	}
	if _, err := s.Tokens(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return append(problems, s.checkWebhooks(ctx)...), nil
}

// checkPages returns what is wrong with the pages of the file.
func (s *Store) checkPages(ctx context.Context) (problems []string, err error) {
	c, err := s.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	err = sqlitex.ExecuteTransient(c, fmt.Sprintf("PRAGMA integrity_check(%d)", maxProblems), &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			for line := range strings.SplitSeq(row.ColumnText(0), "\n") {
				if line != "ok" && line != "*** in database main ***" {
					problems = append(problems, line)
				}
			}
			return nil
		},
	})
	return problems, err
}

func (s *Store) checkWebhooks(ctx context.Context) (problems []string) {
	hooks, err := s.Webhooks(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, hook := range hooks {
		// A server may have deleted it since.
		if _, err := s.Deliveries(ctx, hook.ID); err != nil && !errors.Is(err, plantstore.ErrNoWebhook) {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// checkLog reads the whole log.
func checkLog(c *sqlite.Conn, problems *[]string) error {
	log, err := beginRead(c)
	if err != nil {
		return err
	}
	defer log.end()
	if log.trimmed > log.flushed || log.flushed > log.seq {
		*problems = append(*problems, fmt.Sprintf("the log ends at row %d, but was flushed up to %d and trimmed up to %d", log.seq, log.flushed, log.trimmed))
	}
	last := log.trimmed
	err = log.eachEvent(log.trimmed+1, false, func(e plantstore.Event) bool {
		last++
		tag, _ := e.Plant.Tag.Text()
		switch {
		case e.Type == "":
			*problems = append(*problems, fmt.Sprintf("row %d of the log: its type is unknown", last))
		case !utf8.ValidString(e.Plant.Name) || !utf8.ValidString(tag) || !utf8.ValidString(e.By):
			*problems = append(*problems, fmt.Sprintf("row %d of the log: its text is not UTF-8", last))
		}
		return len(*problems) < maxProblems
	})
	if err == nil && last != log.seq && len(*problems) < maxProblems {
		err = inconsistent("the log has no row %d", last+1)
	}
	return err
}

// checkTotals counts the plants, and adds up the sizes of the log's rows, in one statement,
// which is one snapshot.
func checkTotals(c *sqlite.Conn, problems *[]string) error {
	query := "SELECT *, (SELECT count(*) FROM plants), (SELECT coalesce(sum(" + rowSize + "), 0) FROM log) FROM (" + selectTotals + ")"
	return sqlitex.Execute(c, query, &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			if kept, found := row.ColumnInt64(0), row.ColumnInt64(2); found != kept {
				*problems = append(*problems, fmt.Sprintf("there are %d plants, but the log's state says %d", found, kept))
			}
			if kept, found := row.ColumnInt64(1), row.ColumnInt64(3); found != kept {
				*problems = append(*problems, fmt.Sprintf("the log has %d bytes, but its state says %d", found, kept))
			}
			return nil
		},
	})
}

// unflushedIDs are the plants that the log has after the row flushed. About them, the
// tables may be behind each other.
const unflushedIDs = "(SELECT id FROM log WHERE seq > (SELECT flushed FROM log_state) AND type <= 3)"

// checkTagged compares the table of tagged plants with that of all plants: each that has a
// tag is there, and nothing else.
func checkTagged(c *sqlite.Conn, problems *[]string) error {
	const tagged = "FROM stored WHERE tag IS NOT NULL AND id NOT IN " + unflushedIDs
	const missing = "SELECT id " + tagged + " AND NOT EXISTS (SELECT 1 FROM stored_by_tag AS t WHERE t.tag = stored.tag AND t.id = stored.id) LIMIT ?"
	err := sqlitex.Execute(c, missing, &sqlitex.ExecOptions{
		Args: []any{maxProblems},
		ResultFunc: func(row *sqlite.Stmt) error {
			*problems = append(*problems, fmt.Sprintf("plant %d: it is not found by its tag", row.ColumnInt64(0)))
			return nil
		},
	})
	if err != nil {
		return err
	}
	const counts = "SELECT (SELECT count(*) FROM stored_by_tag WHERE id NOT IN " + unflushedIDs + "), (SELECT count(*) " + tagged + ")"
	return sqlitex.Execute(c, counts, &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			if found, want := row.ColumnInt64(0), row.ColumnInt64(1); found > want {
				*problems = append(*problems, fmt.Sprintf("plants with a tag: %d, rows of stored_by_tag: %d", want, found))
			}
			return nil
		},
	})
}

// checkError adds an error to the problems if it says that the file is damaged, and
// otherwise returns it: the check could not be done.
func checkError(ctx context.Context, path string, err error, problems []string) ([]string, error) {
	if ctx.Err() != nil {
		return problems, ctx.Err()
	}
	if err := classify(path, err); !errors.Is(err, plantstore.ErrDamaged) && !errors.Is(err, plantstore.ErrUntrusted) {
		return problems, err
	}
	return append(problems, err.Error()), nil
}

// Backup writes a snapshot of the store at path to a new file, as it is: it keeps its
// schema. A server may read and write the store meanwhile. The copy has been synced and
// checked before it gets its name. It refuses the original's cursors. say is that of [Look].
func Backup(ctx context.Context, path, file string, say func(string)) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s already exists: name a new file", file)
	}
	partial := partialName(file)
	if err := copyStore(ctx, path, partial, say); err != nil {
		return err
	}
	defer os.Remove(partial) // if it has not been renamed
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

// copyStore writes a copy of the store at path to a new file and checks it.
func copyStore(ctx context.Context, path, file string, say func(string)) (err error) {
	s, err := lookAsIs(path, say)
	if err != nil {
		return err
	}
	// VACUUM needs an empty file or none. Only the owner can read this one.
	if err := writeNew(file, strings.NewReader("")); err != nil {
		return errors.Join(fmt.Errorf("write the backup: %w", err), s.Close())
	}
	defer func() {
		if err != nil {
			os.Remove(file)
		}
	}()
	if err := errors.Join(s.vacuumInto(ctx, file), s.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := renameStore(file); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := verify(ctx, file); err != nil {
		return fmt.Errorf("check the backup: %w", err)
	}
	return nil
}

// The schemas that brought what a copy of an older store does not have.
const (
	schemaLog    = 4 // the log of changes and its state
	schemaTagged = 9 // the table of tagged plants
)

// renameStore gives a copy a name of its own in cursors: its log diverges from the
// original's, whose cursors it must refuse.
func renameStore(path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	version, err := ownedVersion(c, path)
	if err == nil && version >= schemaLog {
		err = exec(c, "UPDATE log_state SET store = lower(hex(randomblob(5)))")
	}
	return errors.Join(err, c.Close())
}

func verify(ctx context.Context, path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	check, err := c.Prepare("PRAGMA integrity_check(1)")
	if err != nil {
		return err
	}
	result, err := sqlitex.ResultText(check)
	if err != nil {
		return err
	}
	if result != "ok" {
		return errors.New(result)
	}
	version, err := ownedVersion(c, path)
	if err != nil || version < schemaTagged {
		return err
	}
	var problems []string
	if err := checkTagged(c, &problems); err != nil || len(problems) == 0 {
		return err
	}
	return errors.New(problems[0])
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
