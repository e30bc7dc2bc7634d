package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// newStoreFile creates a store in a new directory.
func newStoreFile(t *testing.T) (dir, db string) {
	t.Helper()
	dir = t.TempDir()
	db = filepath.Join(dir, "plants.db")
	var problems bytes.Buffer
	if code := run(t.Context(), []string{"token", "create", "--db", db, "--init", "--name", "x"}, streams{strings.NewReader(""), io.Discard, &problems}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	return dir, db
}

// Otherwise --keep would soon have removed every backup that is more than an hour old.
func TestTextfileThatFailsDoesNotAddBackups(t *testing.T) {
	dir, db := newStoreFile(t)
	textfile := filepath.Join(dir, "metrics", "backup.prom")
	if err := os.Mkdir(filepath.Dir(textfile), 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var problems bytes.Buffer
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"backup", "--db", db, "--to", dir, "--every", "6h", "--textfile", textfile}, streams{strings.NewReader(""), io.Discard, &problems})
		}()
		time.Sleep(time.Hour)
		if err := os.RemoveAll(filepath.Dir(textfile)); err != nil {
			t.Error(err)
		}
		time.Sleep(12 * time.Hour)
		stop()
		code := <-done
		found, err := filepath.Glob(filepath.Join(dir, "plants-*.db"))
		if err != nil || code != exitOK || len(found) != 3 || strings.Count(problems.String(), "cannot write the textfile") != 2 {
			t.Errorf("exit code %d, backups %q, %v:\n%s", code, found, err, &problems)
		}
	})
}

func TestOldBackupThatCannotBeRemovedDoesNotAddBackups(t *testing.T) {
	dir, db := newStoreFile(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var problems bytes.Buffer
		textfile := filepath.Join(dir, "backup.prom")
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"backup", "--db", db, "--to", dir, "--every", "6h", "--keep", "2", "--textfile", textfile}, streams{strings.NewReader(""), io.Discard, &problems})
		}()
		time.Sleep(time.Hour)
		name := func(at string) string { return filepath.Join(dir, "plants-"+at+".db") }
		stuck := name("19990101T000000Z")
		if err := errors.Join(os.MkdirAll(filepath.Join(stuck, "file"), 0o700), os.Remove(textfile)); err != nil {
			t.Error(err)
		}
		time.Sleep(12 * time.Hour)
		stop()
		code := <-done
		found, err := filepath.Glob(name("*"))
		want := []string{stuck, name("20000101T060000Z"), name("20000101T120000Z")}
		if err != nil || code != exitOK || !slices.Equal(found, want) || strings.Count(problems.String(), "cannot remove an old backup") != 2 {
			t.Errorf("exit code %d, backups %q, want %q, %v:\n%s", code, found, want, err, &problems)
		}
		if _, err := os.Stat(textfile); err != nil {
			t.Errorf("the good backups are not reported: %v", err)
		}
	})
}

// A clock that was wrong for a while must not stop the backups, nor make --keep remove them.
func TestBackupFromTheFutureDoesNotCount(t *testing.T) {
	dir, db := newStoreFile(t)
	synctest.Test(t, func(t *testing.T) {
		name := func(at time.Time) string {
			return filepath.Join(dir, "plants-"+at.UTC().Format("20060102T150405Z")+".db")
		}
		start := time.Now()
		future := name(start.Add(100 * time.Hour))
		if err := os.WriteFile(future, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var problems bytes.Buffer
		done := make(chan int)
		go func() {
			done <- run(ctx, []string{"backup", "--db", db, "--to", dir, "--every", "6h", "--keep", "1"}, streams{strings.NewReader(""), io.Discard, &problems})
		}()
		time.Sleep(13 * time.Hour)
		stop()
		code := <-done
		found, err := filepath.Glob(filepath.Join(dir, "plants-*.db"))
		if want := []string{name(start.Add(12 * time.Hour)), future}; err != nil || code != exitOK || !slices.Equal(found, want) {
			t.Errorf("exit code %d, backups %q, want %q, %v:\n%s", code, found, want, err, &problems)
		}
	})
}

func TestInterruptedBackupSaysSo(t *testing.T) {
	dir, db := newStoreFile(t)
	var problems bytes.Buffer
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, args := range [][]string{{filepath.Join(dir, "copy.db")}, {"-"}, {"--to", dir}} {
		problems.Reset()
		code := run(ctx, append([]string{"backup", "--db", db}, args...), streams{strings.NewReader(""), io.Discard, &problems})
		if want := "plantstore: backup was interrupted\n"; code != exitInterrupted || problems.String() != want {
			t.Errorf("%q: exit code %d, want %d; got %q, want %q", args, code, exitInterrupted, &problems, want)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasPrefix(f.Name(), "plants.db") || strings.Contains(f.Name(), "partial") {
			t.Errorf("%s is left over", f.Name())
		}
	}
}

// A restore from a pipe that has nothing to read ends at the first signal.
func TestRestoreThatWaitsForInputCanBeInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, in := waitForInput(t)
	var problems bytes.Buffer
	code := run(ctx, []string{"restore", "--db", filepath.Join(dir, "plants.db"), "-"}, streams{in, io.Discard, &problems})
	if want := "plantstore: restore was interrupted\n"; code != exitInterrupted || problems.String() != want {
		t.Errorf("exit code %d, want %d; got %q, want %q", code, exitInterrupted, &problems, want)
	}
	if found, err := filepath.Glob(filepath.Join(dir, "*.partial")); err != nil || len(found) > 0 {
		t.Errorf("%q is left over, %v", found, err)
	}
}

// A named pipe opens once someone writes to it.
func TestInterruptEndsACommandWhoseInputNobodyWrites(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "plants.csv")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"import", "--url", "http://127.0.0.1:1"}, "import"},
		{[]string{"restore", "--db", filepath.Join(dir, "plants.db")}, "restore"},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		interrupt()
		var problems bytes.Buffer
		code := run(ctx, append(test.args, pipe), streams{strings.NewReader(""), io.Discard, &problems})
		if want := "plantstore: " + test.want + " was interrupted\n"; code != exitInterrupted || problems.String() != want {
			t.Errorf("%q: exit code %d, want %d; got %q, want %q", test.args, code, exitInterrupted, &problems, want)
		}
		out, err := os.OpenFile(pipe, os.O_WRONLY, 0) // which ends the open
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
	}
}
