package sqlite

import (
	"context"
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

// mostProblems is how many problems Check names.
const mostProblems = 100

// Check reads the whole file and returns what is wrong with it: pages that make
// no sense, an index that disagrees with its table, text that is not UTF-8, a
// token that cannot be read. It works beside a server. An error says that the
// check itself could not be made.
func (s *Store) Check(ctx context.Context) (problems []string, err error) {
	c, err := open(s.path)
	if err != nil {
		return nil, explain(s.path, err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	err = sqlitex.ExecuteTransient(c, fmt.Sprintf("PRAGMA integrity_check(%d)", mostProblems), &sqlitex.ExecOptions{
		ResultFunc: func(row *sqlite.Stmt) error {
			for line := range strings.SplitSeq(row.ColumnText(0), "\n") {
				if line != "ok" && line != "*** in database main ***" {
					problems = append(problems, line)
				}
			}
			return nil
		},
	})
	if err != nil {
		return problems, checkError(ctx, s.path, err, &problems)
	}
	var last *plantstore.ID
	err = s.each(c, plantstore.Query{}, func(p plantstore.Plant) bool {
		if last != nil && p.ID <= *last {
			problems = append(problems, fmt.Sprintf("plant %d: it is there twice", p.ID))
		}
		last = &p.ID
		tag, _ := p.Tag.Text()
		if !utf8.ValidString(p.Name) || !utf8.ValidString(tag) {
			problems = append(problems, fmt.Sprintf("plant %d: its name or tag is not UTF-8", p.ID))
		}
		return len(problems) < mostProblems
	})
	if err != nil {
		return problems, checkError(ctx, s.path, err, &problems)
	}
	if _, err := s.Tokens(ctx); err != nil {
		problems = append(problems, err.Error())
	}
	return problems, nil
}

// checkError tells damage that the engine stumbles over, which is a finding, from
// a check that could not be made.
func checkError(ctx context.Context, path string, err error, problems *[]string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := explain(path, err); !errors.Is(err, plantstore.ErrUntrusted) {
		return err
	}
	*problems = append(*problems, err.Error())
	return nil
}

// Backup writes the store, as it is at one moment, to a new file at path, while
// reads and writes go on. The copy is on disk, and has been checked, before it
// gets its name.
func (s *Store) Backup(ctx context.Context, path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there already: name a new file", path)
	}
	partial := fmt.Sprintf("%s.%d.partial", path, os.Getpid())
	defer os.Remove(partial) // where it has not become the backup
	if err := s.copyTo(ctx, partial); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	if err := verify(ctx, partial); err != nil {
		return fmt.Errorf("check the backup: %w", err)
	}
	if err := syncFile(partial); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return syncDir(path)
}

func (s *Store) copyTo(ctx context.Context, path string) error {
	c, err := open(s.path)
	if err != nil {
		return explain(s.path, err)
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	// The copy is made by VACUUM, which needs an empty file or none. This one only
	// its owner can read.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return explain(s.path, exec(c, "VACUUM INTO ?", path))
}

func verify(ctx context.Context, path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetInterrupt(ctx.Done())
	verdict, err := sqlitex.ResultText(c.Prep("PRAGMA integrity_check(1)"))
	if err != nil {
		return err
	}
	if verdict != "ok" {
		return errors.New(verdict)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
