package sqlite

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	pathpkg "path"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// applicationID marks a file as a Plantstore store: "plan" in ASCII.
const applicationID = 0x706c616e

//go:embed schema/*.sql
var schemaFiles embed.FS

// schemaSteps are the names of these files: the n-th makes schema n.
var schemaSteps, _ = fs.Glob(schemaFiles, "schema/*.sql") // the pattern is valid

// ErrNewerSchema says that a newer Plantstore wrote the file.
var ErrNewerSchema = errors.New("a newer Plantstore wrote this store")

// appliedStep is a step of a migration, and how long it took.
type appliedStep struct {
	schema int
	name   string
	took   time.Duration
}

// migrate brings the file's schema to the newest version that this release supports, in
// one transaction. The version is the file's user_version. With write it writes in any case, so that a read-only file is
// refused immediately and not at the first request. Without, it refuses an older schema:
// an older server, which does not know the new tables, may have the file open or come back.
//
// It returns the steps that it applied to a store that existed.
func migrate(c *sqlite.Conn, path string, write bool) (applied []appliedStep, err error) {
	// If there is nothing to write, a server that has the file open need not wait.
	if version, err := ownedVersion(c, path); err != nil || (version == Schema() && !write) {
		return nil, err
	}
	end, err := sqlitex.ImmediateTransaction(c)
	if err != nil {
		return nil, err
	}
	defer end(&err)
	version, err := ownedVersion(c, path)
	if err != nil {
		return nil, err
	}
	if version > Schema() {
		return nil, newerSchema(path, version)
	}
	if version > 0 && version < Schema() && !write {
		return nil, fmt.Errorf("open %s: its schema is version %d, this release writes version %d: start the server of this release first, which migrates the store",
			path, version, Schema())
	}
	for i, step := range schemaSteps[version:] {
		began := time.Now()
		script, err := schemaFiles.ReadFile(step)
		if err != nil {
			return nil, err
		}
		if err := sqlitex.ExecuteScript(c, string(script), nil); err != nil {
			return nil, fmt.Errorf("migrate %s to schema %d: %w", path, version+i+1, err)
		}
		if version > 0 {
			applied = append(applied, appliedStep{version + i + 1, pathpkg.Base(step), time.Since(began)})
		}
	}
	return applied, errors.Join(
		pragma(c, fmt.Sprintf("application_id=%d", applicationID)),
		pragma(c, fmt.Sprintf("user_version=%d", Schema())),
	)
}

// Schema returns the newest schema version that this release supports, the one that it
// writes. It reads all before it.
func Schema() int { return len(schemaSteps) }

func newerSchema(path string, version int) error {
	return fmt.Errorf("open %s: %w: its schema is version %d, this release supports schemas up to %d; start the newer one",
		path, ErrNewerSchema, version, Schema())
}

// ownedVersion returns the file's schema version, or 0 for an empty file. It refuses
// a file of another program.
func ownedVersion(c *sqlite.Conn, path string) (int, error) {
	var owner, version, objects int
	err := query(c, func(row *sqlite.Stmt) error {
		owner, version, objects = row.ColumnInt(0), row.ColumnInt(1), row.ColumnInt(2)
		return nil
	}, "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id, pragma_user_version")
	if err != nil {
		return 0, err
	}
	empty := owner == 0 && version == 0 && objects == 0
	if owner != applicationID && !empty {
		return 0, fmt.Errorf("open %s: this SQLite file belongs to another program", path)
	}
	return version, nil
}
