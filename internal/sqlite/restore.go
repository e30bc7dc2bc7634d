package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"zombiezen.com/go/sqlite"

	"plantstore"
)

// WriteBackup is [Backup] to w. The copy is complete and has been checked before its first
// byte is written; until then it is a temporary file.
func WriteBackup(ctx context.Context, path string, w io.Writer, say func(string)) error {
	path = follow(path)
	dir, err := makeTemp(sizeOf(path) + sizeOf(path+"-wal"))
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "backup.db")
	if err := copyStore(ctx, path, file, say); err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return errors.Join(err, f.Close())
}

// Restore puts a copy of a store in the place of the store at path. The copy is checked first, keeps its
// schema, and refuses the cursors of the original. It takes the place of an
// existing store, if replace is set, in one step: after a crash either the old store or
// the new one is there, complete. No process may have the old store open.
func Restore(ctx context.Context, copied io.Reader, path string, replace bool) error {
	path = follow(path)
	if _, err := os.Lstat(path); err == nil && !replace {
		return fmt.Errorf("%s: %w", path, fs.ErrExist)
	}
	if err := checkOrphan(path); err != nil {
		return err
	}
	s := &Store{path: path}
	defer s.unlock()
	if err := s.takeName(); err != nil {
		return err
	}
	if err := s.openFile(Serve); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	partial := partialName(path + ".restore")
	if err := writeNew(partial, copied); err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	defer removePartial(partial) // if it has not been renamed
	if err := checkCopy(ctx, partial); err != nil {
		return err
	}
	if err := renameStore(partial); err != nil {
		return err
	}
	// To close a file copies its log into it, but does not report a failure.
	if err := errors.Join(leaveWAL(partial), syncFile(partial)); err != nil {
		return err
	}
	if err := retireLog(path); err != nil {
		return err
	}
	// The old log must not outlive the old file.
	if err := syncDir(path); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	return syncDir(path)
}

// writeNew writes a file that only its owner can read, and that must not exist yet.
func writeNew(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	if err := errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// checkCopy refuses a copy that is not intact. An empty file is not a store here.
func checkCopy(ctx context.Context, path string) error {
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return errors.Join(err, errors.New("the copy is empty"))
	}
	s, err := Look(ctx, path, func(string) {})
	if err != nil {
		return fmt.Errorf("the copy cannot be opened: %w", err)
	}
	problems, err := s.Check(ctx)
	if err := errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("check the copy: %w", err)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: the copy has problems, the first is: %s", plantstore.ErrDamaged, problems[0])
	}
	return nil
}

// retireLog moves the write-ahead log of a store that is about to be replaced into its
// file, and removes it: SQLite would apply it to the file that takes the old one's
// place. That needs the file for itself, so it also finds other processes.
func retireLog(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return removeFiles(path+"-wal", path+"-shm")
	}
	err := leaveWAL(path)
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultOK, sqlite.ResultCorrupt, sqlite.ResultNotADB:
		// A store that is too damaged to be opened has nothing to lose.
		return removeFiles(path+"-wal", path+"-shm")
	case sqlite.ResultBusy:
		return fmt.Errorf("another process has %s open", path)
	}
	return classify(path, err)
}

// leaveWAL ends the WAL mode of a file, which copies the log into it and removes the log.
func leaveWAL(path string) error {
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return err
	}
	c.SetBusyTimeout(busyTimeout)
	err = pragma(c, "journal_mode=DELETE")
	if closeErr := c.Close(); err == nil {
		err = closeErr
	}
	return err
}

func removeFiles(paths ...string) error {
	var errs []error
	for _, path := range paths {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
