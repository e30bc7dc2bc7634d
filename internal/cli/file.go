package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// OpenInput opens a file, or takes standard input for -. A pipe opens once someone writes to it. The
// FileInfo is nil if there is none.
func OpenInput(ctx context.Context, file string, stdin io.Reader) (io.ReadCloser, os.FileInfo, error) {
	if file == "-" {
		var info os.FileInfo
		if f, ok := stdin.(*os.File); ok {
			info, _ = f.Stat() // a Read says what is wrong with it
		}
		return io.NopCloser(stdin), info, nil
	}
	f, err := UntilInterrupted(ctx, func() (*os.File, error) { return os.Open(file) })
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if info.IsDir() {
		f.Close()
		return nil, nil, fmt.Errorf("%s is a directory", file)
	}
	return f, info, nil
}

// CheckUnused returns an error if WriteFile would replace something: a file, or a
// link that does not lead to a pipe or a device.
func CheckUnused(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return nil // writing says what is wrong
	}
	if info.Mode().IsRegular() {
		return Usagef("%s exists already: use --force to replace it", name)
	}
	if target, err := os.Stat(name); err != nil || target.Mode().IsRegular() {
		return Usagef("%s is a link: use --force to replace it", name)
	}
	return nil
}

// WriteFile writes a file that only its owner can read, under a temporary name,
// and renames it once all of it is on disk. A pipe, which opens once someone reads it, or a
// device is written to directly.
func WriteFile(ctx context.Context, name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := UntilInterrupted(ctx, func() (*os.File, error) { return os.OpenFile(name, os.O_WRONLY, 0) })
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.partial")
	if err != nil {
		if failed, ok := errors.AsType[*fs.PathError](err); ok {
			failed.Path = name // the user does not know the other
		}
		return err
	}
	defer os.Remove(f.Name()) // unless it has been renamed
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
