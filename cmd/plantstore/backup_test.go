package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestInterruptedBackupSaysSo(t *testing.T) {
	dir := t.TempDir()
	db := filepath.Join(dir, "plants.db")
	var problems bytes.Buffer
	if code := run(t.Context(), []string{"token", "create", "--db", db, "--init", "--name", "x"}, streams{strings.NewReader(""), io.Discard, &problems}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &problems)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	for _, args := range [][]string{{filepath.Join(dir, "copy.db")}, {"-"}, {"--to", dir}} {
		problems.Reset()
		code := run(ctx, append([]string{"backup", "--db", db}, args...), streams{strings.NewReader(""), io.Discard, &problems})
		if want := "plantstore: the backup was interrupted\n"; code != exitInterrupted || problems.String() != want {
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
