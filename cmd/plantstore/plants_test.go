package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/servertest"
)

// failingServer sends one row of a list, an export or a page of events, and then fails. With
// no rows it fails immediately.
func failingServer(t *testing.T, rows int) string {
	t.Helper()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests++
		if requests > rows {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"error":40301,"message":"enough"}`)
			return
		}
		if r.Header.Get("Accept") == "application/x-ndjson" {
			w.Header().Set("Content-Type", "application/x-ndjson")
			fmt.Fprintln(w, `{"id":1,"name":"Oak"}`)
			http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/plants":
			w.Header().Set("Link", `</plants?after=1>; rel="next"`)
			fmt.Fprint(w, `[{"id":1,"name":"Oak"}]`)
		case "/tags":
			w.Header().Set("Link", `</tags?from=u>; rel="next"`)
			fmt.Fprint(w, `[{"tag":"tree","plants":1}]`)
		case "/events":
			w.Header().Set("Link", `</events?after=c_1_x>; rel="next"`)
			w.Header().Set("Plantstore-Cursor", "c_1_x")
			fmt.Fprint(w, `[{"cursor":"c_1_x","time":"2026-01-31T12:00:00Z","type":"plant.created","plant":{"id":1,"name":"Oak"},"by":"x"}]`)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestArgumentThatIsNotUTF8IsRefused(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		t.Errorf("%s was sent", body)
	}))
	defer server.Close()
	t.Setenv("PLANTSTORE_URL", server.URL)
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	for _, args := range [][]string{
		{"create", "1", "Caf\xe9"},
		{"create", "1", "--", "Caf\xe9"},
		{"create", "1", "Oak", "--tag", "Caf\xe9"},
		{"put", "1", "Oak", "--tag=Caf\xe9"},
		{"check", "--db", "postgres://user:Caf\xe9@host/db"},
	} {
		want := fmt.Sprintf("plantstore: argument %d must be UTF-8\n", 1+slices.IndexFunc(args, func(arg string) bool { return strings.Contains(arg, "\xe9") }))
		var problems bytes.Buffer
		code := run(t.Context(), args, streams{strings.NewReader(""), io.Discard, &problems})
		if code != exitUsage || problems.String() != want {
			t.Errorf("%q exited with %d and said %q", args, code, &problems)
		}
	}
}

func TestFailureNeverLooksLikeAWholeList(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	for _, test := range []struct{ args, row string }{
		{"list --json", "[\n{\"id\":1,\"name\":\"Oak\"}"},
		{"tags", "[\n{\"tag\":\"tree\",\"plants\":1}"},
		{"events", `{"cursor":"c_1_x","time":"2026-01-31T12:00:00Z","type":"plant.created","plant":{"id":1,"name":"Oak"},"by":"x"}` + "\n"},
		{"history 1", `[
{"cursor":"c_1_x","time":"2026-01-31T12:00:00Z","type":"plant.created","plant":{"id":1,"name":"Oak"},"by":"x","version":"000000000000"}`},
		{"export --format json -", "[\n{\"id\":1,\"name\":\"Oak\"}"},
		{"export --format ndjson -", "{\"id\":1,\"name\":\"Oak\"}"},
		{"export --format csv -", "id,name,tag\n1,Oak,\n"},
	} {
		for rows, want := range []string{"", test.row} {
			args := append(strings.Fields(test.args), "--url", failingServer(t, rows))
			var out, problems bytes.Buffer
			code := run(t.Context(), args, streams{strings.NewReader(""), &out, &problems})
			if code != exitFailure || problems.Len() == 0 {
				t.Errorf("%s after %d rows: exit code %d, %q, want %d and an error", test.args, rows, code, &problems, exitFailure)
			}
			if out.String() != want {
				t.Errorf("%s after %d rows printed %q, want %q", test.args, rows, &out, want)
			}
		}
	}
}

func TestInterruptEndsACommandWhoseOutputNobodyReads(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	s.Fill(t, plantstore.Plant{ID: 1, Name: "Oak", Tag: plantstore.NewTag("tree")})
	for _, args := range []string{"list", "tags", "history 1", "events", "events --follow", "export -"} {
		ctx, interrupt := context.WithCancel(t.Context())
		in, out := io.Pipe()
		var problems bytes.Buffer
		exited := make(chan int, 1)
		go func() {
			exited <- run(ctx, append(strings.Fields(args), "--url", s.URL), streams{strings.NewReader(""), out, &problems})
		}()
		if _, err := in.Read(make([]byte, 1)); err != nil { // and nothing more
			t.Fatal(err)
		}
		interrupt()
		code := <-exited
		in.Close() // ends the Write
		want := exitInterrupted
		if args == "events --follow" {
			want = exitOK // that is how following ends
		}
		if code != want || strings.Contains(problems.String(), context.Canceled.Error()) || want == exitInterrupted && !strings.HasSuffix(problems.String(), " was interrupted\n") {
			t.Errorf("%s: exit code %d, want %d; %q", args, code, want, &problems)
		}
	}
}

// A server may allow plants that are larger than what import reads.
func TestExportHasPlantsOfEverySize(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	plant := `{"id":1,"name":"` + strings.Repeat("x", maxRecord) + `"}` + "\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		io.WriteString(w, plant)
	}))
	defer server.Close()
	var out, problems bytes.Buffer
	code := run(t.Context(), []string{"export", "--url", server.URL, "-"}, streams{strings.NewReader(""), &out, &problems})
	if code != exitOK || out.String() != plant {
		t.Errorf("exit code %d, %d bytes, want %d: %s", code, out.Len(), len(plant), &problems)
	}
}

func TestInterruptedExportLeavesNoFile(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		fmt.Fprintln(w, `{"id":1,"name":"Oak"}`)
		http.NewResponseController(w).Flush()
		interrupt()
		<-r.Context().Done()
	}))
	defer server.Close()
	dir := t.TempDir()
	var problems bytes.Buffer
	code := run(ctx, []string{"export", "--url", server.URL, filepath.Join(dir, "plants.csv")}, streams{strings.NewReader(""), io.Discard, &problems})
	if want := "plantstore: export was interrupted\n"; code != exitInterrupted || problems.String() != want {
		t.Errorf("exit code %d, want %d; got %q, want %q", code, exitInterrupted, &problems, want)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) > 0 {
		t.Errorf("%q is left, %v", left, err)
	}
}

func TestInterruptIsNamedAndNotItsContext(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		interrupt()
		<-r.Context().Done()
	}))
	defer server.Close()
	var problems bytes.Buffer
	code := run(ctx, []string{"get", "--url", server.URL, "1"}, streams{strings.NewReader(""), io.Discard, &problems})
	if want := "plantstore: get was interrupted\n"; code != exitInterrupted || problems.String() != want {
		t.Errorf("exit code %d, want %d; got %q, want %q", code, exitInterrupted, &problems, want)
	}
}
