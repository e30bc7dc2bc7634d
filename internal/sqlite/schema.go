package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	pathpkg "path"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// applicationID marks a file as a Plantstore store: "plan" in ASCII.
const applicationID = 0x706c616e

//go:embed schema/*.sql
var embedded embed.FS

// schemaFiles is embedded, or more in tests. The first file makes the schema base in an empty
// store, and each of the others the next schema.
var schemaFiles fs.FS = embedded

// base is the schema of release 0.2.0, the first.
const base = 10

var (
	// ErrNewerSchema says that a newer Plantstore wrote the file.
	ErrNewerSchema = errors.New("a newer Plantstore wrote this store")
	// ErrOlderSchema says that the file's schema is older than all that this release supports.
	ErrOlderSchema = errors.New("an older Plantstore wrote this store")
)

// schemaSteps returns the names of schemaFiles, in order.
func schemaSteps() []string {
	steps, _ := fs.Glob(schemaFiles, "schema/*.sql") // the pattern is valid
	return steps
}

// migrate brings the file's schema to the newest version that this release supports, in
// one transaction. The version is the file's user_version. With write it writes in any case,
// so that a read-only file is refused immediately and not at the first request. Without, it
// refuses a schema that has to be migrated: an older server, which does not know the new
// tables, may have the file open or come back.
func migrate(c *sqlite.Conn, path string, write bool, log *slog.Logger) (err error) {
	// If there is nothing to write, a server that has the file open need not wait.
	if version, err := schemaVersion(c, path); err != nil || (version == Schema() && !write) {
		return err
	}
	migrating.Lock()
	defer migrating.Unlock()
	// A step may sort more than fits into memory. Only the store's own folder is sure to have room, and
	// to be writable.
	if err := sortIn(c, filepath.Dir(path)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sortIn(c, "")) }()
	end, err := sqlitex.ImmediateTransaction(c)
	if err != nil {
		return err
	}
	defer end(&err)
	version, err := schemaVersion(c, path)
	if err != nil {
		return err
	}
	if version > 0 && version < Schema() && !write {
		return fmt.Errorf("open %s: its schema is version %d, this release writes version %d: start the server of this release first, which migrates the store",
			path, version, Schema())
	}
	first := max(version+1, base)
	for i, step := range schemaSteps()[first-base:] {
		began := time.Now()
		if version > 0 {
			log.Info("migrating the store: this may take a minute if its log of changes is large", "db", path, "schema", first+i)
		}
		script, err := fs.ReadFile(schemaFiles, step)
		if err != nil {
			return err
		}
		if err := sqlitex.ExecuteScript(c, string(script), nil); err != nil {
			return fmt.Errorf("migrate %s to schema %d: %w", path, first+i, err)
		}
		if version > 0 {
			log.Info("applied a step of the migration", "db", path, "schema", first+i, "step", pathpkg.Base(step), "took", time.Since(began))
		}
	}
	return errors.Join(
		pragma(c, fmt.Sprintf("application_id=%d", applicationID)),
		pragma(c, fmt.Sprintf("user_version=%d", Schema())),
	)
}

// migrating is held during a migration: the folder of [sortIn] is that of all connections.
var migrating sync.Mutex

// sortIn makes SQLite sort in files in a folder, or in memory if dir is empty. Such a file has no name.
func sortIn(c *sqlite.Conn, dir string) error {
	where := "FILE"
	if dir == "" {
		where = "MEMORY"
	}
	return errors.Join(
		pragma(c, "temp_store_directory="+quote(dir)),
		pragma(c, "temp_store="+where),
	)
}

// quote returns a string as SQL has it.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// Schema returns the newest schema version that this release supports, the one that it
// writes.
func Schema() int { return base + len(schemaSteps()) - 1 }

// schemaVersion returns the file's schema version, or 0 for an empty file. It refuses
// a file of another program, and a schema that this release does not support.
func schemaVersion(c *sqlite.Conn, path string) (int, error) {
	var owner, version, objects int
	err := query(c, func(row *sqlite.Stmt) error {
		owner, version, objects = row.ColumnInt(0), row.ColumnInt(1), row.ColumnInt(2)
		return nil
	}, "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version")
	if err != nil {
		return 0, err
	}
	empty := owner == 0 && version == 0 && objects == 0
	switch {
	case empty:
		return 0, nil
	case owner != applicationID:
		return 0, fmt.Errorf("open %s: this SQLite file belongs to another program", path)
	case version > Schema():
		return 0, fmt.Errorf("open %s: %w: its schema is version %d, this release supports schemas up to %d; start the newer one",
			path, ErrNewerSchema, version, Schema())
	case version < base:
		return 0, fmt.Errorf("open %s: %w: its schema is version %d, this release supports schemas from %d on; export the plants with the release that wrote it, and import them into a new store with this one",
			path, ErrOlderSchema, version, base)
	}
	return version, nil
}
