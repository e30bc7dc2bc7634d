package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/client"
	"plantstore/internal/plantfile"
	"plantstore/internal/upload"
)

// importServer confirms the first request and hands the next one, whose body it has
// read, to hold.
func importServer(t *testing.T, hold http.HandlerFunc) string {
	t.Helper()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lines, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests++
		if requests > 1 {
			hold(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"created":%d,"unchanged":0,"failed":0,"errors":[]}`, bytes.Count(lines, []byte{'\n'}))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// chunkRecords is how many records the command sends at a time.
const chunkRecords = 200_000

// twoChunks is a file of two chunks, the second of three lines.
func twoChunks() io.Reader {
	var file strings.Builder
	for id := range chunkRecords + 3 {
		fmt.Fprintf(&file, "{\"id\":%d,\"name\":\"x\"}\n", id)
	}
	return strings.NewReader(file.String())
}

const (
	wantConfirmed = "200000 lines acknowledged: 200000 created, 0 unchanged, 0 failed, in "
	wantUnknown   = "was interrupted while lines 200001 to 200003 were being sent: any of them may have been imported; run it again"
)

func TestInterruptedImportSaysWhatIsKnown(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	url := importServer(t, func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	})
	var out, problems bytes.Buffer
	code := run(ctx, []string{"import", "--url", url, "-"}, streams{twoChunks(), &out, &problems})
	if code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	for _, want := range []string{wantConfirmed, "the import of standard input " + wantUnknown} {
		if !strings.Contains(problems.String(), want) {
			t.Errorf("got %q, want %q in it", &problems, want)
		}
	}
	if strings.Contains(problems.String(), context.Canceled.Error()) {
		t.Errorf("%q is not for people", &problems)
	}
}

// The server may have created plants of the only chunk: "0 created" would be a lie.
func TestImportInterruptedInItsFirstChunkClaimsNothing(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	for _, test := range []struct{ flag, wantOut, wantProblem string }{
		{"--json=false", "", "no line was acknowledged\n"},
		{"--json", `{"created":0,"failed":0,"reasons":0,"unchanged":0,"unknown_from":2,"unknown_to":4}` + "\n", ""},
	} {
		ctx, interrupt := context.WithCancel(t.Context())
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			interrupt()
			<-r.Context().Done()
		}))
		var out, problems bytes.Buffer
		file := strings.NewReader("id,name\n1,a\n0034,b\n3,c\n")
		code := run(ctx, []string{"import", test.flag, "--format", "csv", "--url", server.URL, "-"}, streams{file, &out, &problems})
		server.Close()
		want := test.wantProblem + "plantstore: the import of standard input was interrupted while lines 2 to 4 were being sent: any of them may have been imported; run it again, plants that are already as they should be stay so\n"
		if code != exitInterrupted || out.String() != test.wantOut || problems.String() != want {
			t.Errorf("%s: exit code %d; printed %q, want %q; got %q, want %q", test.flag, code, &out, test.wantOut, &problems, want)
		}
	}
}

func TestLostConnectionOfAnImportSaysWhatIsKnown(t *testing.T) {
	url := importServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	api, err := client.New(url, "0123456789abcdef0123456789abcdef", client.Options{Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	file, err := upload.New(api, twoChunks(), plantfile.NDJSON, new(importCommand).options())
	if err != nil {
		t.Fatal(err)
	}
	run := newImportRun(file, "line", io.Discard)
	run.pace = newProgress(io.Discard, "", "line", -1, true).pace
	err = file.Run(t.Context())
	if err == nil {
		t.Fatal("a lost connection is not an error")
	}
	if err := run.stopped(t.Context(), "plants", err); !strings.Contains(err.Error(), wantUnknown) {
		t.Errorf("got %q, want %q in it", err, wantUnknown)
	}
	var summary bytes.Buffer
	if run.summarise(&summary, false); !strings.HasPrefix(summary.String(), wantConfirmed) {
		t.Errorf("got %q, want %q first", &summary, wantConfirmed)
	}
}

// The server names the reasons of only some failures; the command sends the lines again
// to get the others, and is interrupted before it has all of them.
func TestInterruptedImportClaimsOnlyTheReasonsItHas(t *testing.T) {
	const lines = 40
	ctx, interrupt := context.WithCancel(t.Context())
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		sent, named := bytes.Count(body, []byte{'\n'}), 0
		switch {
		case sent == lines/2 && bytes.HasPrefix(body, []byte("0\n")):
			named = sent
		case sent == lines/2:
			interrupt()
			<-r.Context().Done()
			return
		}
		var reasons []string
		for line := range named {
			reasons = append(reasons, fmt.Sprintf(`{"line":%d,"error":40001,"message":"no"}`, line+1))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"created":0,"unchanged":0,"failed":%d,"errors":[%s]}`, sent, strings.Join(reasons, ","))
	}))
	t.Cleanup(server.Close)
	var file strings.Builder
	for line := range lines {
		fmt.Fprintln(&file, line)
	}
	failed := filepath.Join(t.TempDir(), "failed.ndjson")
	var problems bytes.Buffer
	code := run(ctx, []string{"import", "--url", server.URL, "--errors", failed, "-"}, streams{strings.NewReader(file.String()), io.Discard, &problems})
	if code != exitInterrupted {
		t.Errorf("exit code %d, want %d", code, exitInterrupted)
	}
	for _, want := range []string{
		"\n10 more failed: see " + failed + "\n",
		"\n20 more failed, but the reasons are not known: run the import again to get them\n",
		"40 lines acknowledged: 0 created, 0 unchanged, 40 failed, in ",
	} {
		if !strings.Contains(problems.String(), want) {
			t.Errorf("got %q, want %q in it", &problems, want)
		}
	}
	written, err := os.ReadFile(failed)
	if got := bytes.Count(written, []byte{'\n'}); err != nil || got != 20 {
		t.Errorf("the file has %d lines, %v, want 20", got, err)
	}
}

// An import from a terminal or a pipe that has nothing more to read ends at the first
// signal.
func TestImportThatWaitsForInputCanBeInterrupted(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	for _, test := range []struct {
		format plantfile.Format
		input  string
	}{
		{plantfile.NDJSON, ""},
		{plantfile.CSV, ""},
		{plantfile.CSV, "id,na"},
		{plantfile.CSV, "id,name\n"},
		{plantfile.JSON, ""},
		{plantfile.JSON, "["},
	} {
		ctx, waiting := waitForInput(t)
		in := io.MultiReader(strings.NewReader(test.input), waiting)
		var problems bytes.Buffer
		code := run(ctx, []string{"import", "--url", "http://127.0.0.1:1", "--format", string(test.format), "-"}, streams{in, io.Discard, &problems})
		if want := "was interrupted"; code != exitInterrupted || !strings.Contains(problems.String(), want) {
			t.Errorf("%s after %q: exit code %d, want %d; got %q, want %q in it", test.format, test.input, code, exitInterrupted, &problems, want)
		}
	}
}

// So does a login.
func TestLoginThatWaitsForInputCanBeInterrupted(t *testing.T) {
	ctx, in := waitForInput(t)
	var problems bytes.Buffer
	code := run(ctx, []string{"login", "http://127.0.0.1:1"}, streams{in, io.Discard, &problems})
	if want := "login was interrupted"; code != exitInterrupted || !strings.Contains(problems.String(), want) {
		t.Errorf("exit code %d, want %d; got %q, want %q in it", code, exitInterrupted, &problems, want)
	}
}

// waitForInput returns an input that has nothing to read until the test ends, and a context that
// ends when someone reads it.
func waitForInput(t *testing.T) (context.Context, io.Reader) {
	ctx, interrupt := context.WithCancel(t.Context())
	return ctx, readFunc(func([]byte) (int, error) {
		interrupt()
		<-t.Context().Done()
		return 0, io.EOF
	})
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

func TestFormatIsPickedByFileName(t *testing.T) {
	for _, test := range []struct {
		file, asked string
		want        plantfile.Format
	}{
		{"a.csv", "", plantfile.CSV},
		{"a.JSON", "", plantfile.JSON},
		{"a.ndjson", "", plantfile.NDJSON},
		{"a.jsonl", "", plantfile.NDJSON},
		{"-", "", plantfile.NDJSON},
		{"a.csv", "json", plantfile.JSON},
		{"plants", "csv", plantfile.CSV},
	} {
		if got, err := pickFormat(test.file, test.asked); err != nil || got != test.want {
			t.Errorf("pickFormat(%q, %q) = %q, %v, want %q", test.file, test.asked, got, err, test.want)
		}
	}
	if _, err := pickFormat("plants", ""); err == nil {
		t.Error("a name without an extension is accepted")
	}
}
