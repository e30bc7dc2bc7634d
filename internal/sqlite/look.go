package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// Look opens the store in the file at path to read it, and changes nothing: not the file,
// its write-ahead log or their folder. The folder may be read-only, and a server may have
// the file open. If its schema is older than this release's, a temporary copy is migrated
// and read instead. say is called with a sentence before the file is copied. [Store.Close]
// removes the copy, and fails if what was read may be a mixture of two states, because
// a server was started in the meantime. The store must not be written to.
func Look(ctx context.Context, path string, say func(string)) (*Store, error) {
	s, err := lookAsIs(path, say)
	if err != nil || s.schema == Schema() {
		return s, err
	}
	migrated, err := s.migratedCopy(ctx, say)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return migrated, nil
}

// lookAsIs is Look without the migration. A store with an older schema can only be copied,
// and its pages checked.
func lookAsIs(path string, say func(string)) (*Store, error) {
	s := newStore(path)
	if err := checkOrphan(s.path); err != nil {
		return nil, err
	}
	if err := s.openFile(Existing); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	info, err := s.file.Stat()
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	_, noIndex := os.Stat(s.path + "-shm")
	var parameters string
	switch {
	case s.serverRuns():
		parameters = "mode=ro"
	case !s.hasLog():
		// Without a log SQLite would create one, unless it is told that the file does not change.
		parameters, s.seen = "immutable=1", info
	case noIndex == nil:
		// What a kill has left. SQLite makes an index in memory if no process keeps this one.
		parameters = "mode=ro&readonly_shm=1"
	default:
		return s.recoveredCopy(info, say)
	}
	location, err := fileURI(s.path, parameters)
	if err != nil {
		return nil, err
	}
	s.connect = func() (*sqlite.Conn, error) { return openWith(location, sqlite.OpenReadOnly|sqlite.OpenURI, configure) }
	err = s.readSchema()
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultProtocol, sqlite.ResultReadOnly:
		// What is in place of the log is not one, or the index would have to be made anew while
		// another process keeps it.
		return s.recoveredCopy(info, say)
	}
	if err != nil {
		return nil, errors.Join(classify(s.path, err), s.Close())
	}
	return s, nil
}

// readSchema finds out the schema.
func (s *Store) readSchema() error {
	err := s.withConn(context.Background(), func(c *sqlite.Conn) (err error) {
		s.schema, err = schemaVersion(c, s.path)
		return err
	})
	if err == nil && s.schema == 0 {
		err = fmt.Errorf("%s has no store: %w", s.path, fs.ErrNotExist)
	}
	return err
}

// fileURI returns a file's name as a URI, to which SQLite's parameters can be added.
func fileURI(path, parameters string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	path = "/" + strings.TrimPrefix(filepath.ToSlash(path), "/") // C:/ on Windows
	return (&url.URL{Scheme: "file", Path: path, RawQuery: parameters}).String(), nil
}

// migratedCopy returns the store in a migrated copy. Closing that closes s, too.
func (s *Store) migratedCopy(ctx context.Context, say func(string)) (*Store, error) {
	// A migration in one transaction may write everything to the log first.
	size := 2 * (sizeOf(s.path) + sizeOf(s.path+"-wal"))
	say(fmt.Sprintf("%s has schema %d, and this release's is %d: a copy in %s, of up to %d MB, is migrated and read. Only plantstore serve migrates the store.",
		s.path, s.schema, Schema(), os.TempDir(), megabytes(size)))
	migrated, err := s.lookAtCopy(size, say, func(path string) error {
		if err := s.vacuumInto(ctx, path); err != nil {
			return fmt.Errorf("copy %s: %w", s.path, err)
		}
		server, err := Open(path, Serve)
		if err != nil {
			return err
		}
		return errors.Join(server.Damaged(), server.Close())
	})
	if err != nil {
		return nil, err
	}
	migrated.original = s
	return migrated, nil
}

// lookAtCopy returns the store in a temporary copy that write makes, which may become as large
// as that.
func (s *Store) lookAtCopy(size int64, say func(string), write func(path string) error) (*Store, error) {
	dir, err := makeTemp(size)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, filepath.Base(s.path))
	var copied *Store
	if err = write(path); err == nil {
		copied, err = lookAsIs(path, say)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	copied.temp = dir
	return copied, nil
}

// vacuumInto writes a copy to the file at path, which must be empty or not exist.
func (s *Store) vacuumInto(ctx context.Context, path string) error {
	err := s.withConn(ctx, func(c *sqlite.Conn) error { return exec(c, "VACUUM INTO ?", path) })
	switch sqlite.ErrCode(err) {
	case sqlite.ResultOK:
		return s.unchanged()
	case sqlite.ResultFull, sqlite.ResultIOErrWrite, sqlite.ResultIOErrFsync, sqlite.ResultIOErrTruncate:
		return fmt.Errorf("%s: %w", path, err) // nothing is written to the store itself
	}
	return cmp.Or(ctx.Err(), s.unchanged(), classify(s.path, err))
}

// recoveredCopy returns the store in a copy that has what is in the log: a log without an
// index cannot be read without writing. No process has such a file open.
func (s *Store) recoveredCopy(info fs.FileInfo, say func(string)) (*Store, error) {
	defer s.Close()
	log, err := os.Stat(s.path + "-wal")
	if err != nil {
		return nil, err
	}
	size := 2 * (info.Size() + log.Size()) // the log is copied into the file, too
	say(fmt.Sprintf("%s has a write-ahead log that has to be recovered: a copy of both in %s, of up to %d MB, is read.", s.path, os.TempDir(), megabytes(size)))
	return s.lookAtCopy(size, say, func(path string) error {
		if err := errors.Join(copyFile(s.path, path), copyFile(s.path+"-wal", path+"-wal")); err != nil {
			return err
		}
		if !isStill(s.path, info) || !isStill(s.path+"-wal", log) {
			return fmt.Errorf("copy %s: %w", s.path, errWritten)
		}
		return classify(s.path, leaveWAL(path))
	})
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	return errors.Join(writeNew(to, f), f.Close())
}

// makeTemp makes a folder for a copy, which may become as large as that.
func makeTemp(size int64) (string, error) {
	if free := freeBytes(os.TempDir()); free >= 0 && free < size {
		return "", fmt.Errorf("%s has %d MB free and a copy of the store may need %d MB: set TMPDIR to a folder with more", os.TempDir(), free>>20, megabytes(size))
	}
	dir, err := os.MkdirTemp("", "plantstore-")
	if err != nil {
		return "", fmt.Errorf("there is no place for a copy of the store: set TMPDIR to a folder that can be written to: %w", err)
	}
	return dir, nil
}

// megabytes returns a size in MB, rounded up.
func megabytes(size int64) int64 { return (size + 1<<20 - 1) >> 20 }

var errWritten = plantstore.Errorf(plantstore.ErrUnavailable, "another process wrote to the store while it was read: run the command again")

// unchanged returns an error if the file was opened as one that does not change, and has changed.
func (s *Store) unchanged() error {
	if s.seen == nil || isStill(s.path, s.seen) && !s.hasLog() {
		return nil
	}
	return errWritten
}

// hasLog reports whether there is a write-ahead log with more than its header. SQLite ignores
// a shorter one, but does not read a file beside it that it must not write to.
func (s *Store) hasLog() bool { return sizeOf(s.path+"-wal") > 32 }

// isStill reports whether a file is as it was.
func isStill(path string, was fs.FileInfo) bool {
	is, err := os.Stat(path)
	return err == nil && os.SameFile(is, was) && is.Size() == was.Size() && is.ModTime().Equal(was.ModTime())
}

// sizeOf returns the size of a file, or 0 if there is none.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}
