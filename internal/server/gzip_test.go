package server_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"plantstore"
	"plantstore/internal/server"
	"plantstore/internal/servertest"
	"plantstore/internal/storetest"
)

// get sends a request with these header lines as it is: the response is not decompressed.
func (s *service) get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range append(header, "Authorization: Bearer "+s.Token) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	if r.Header.Get("Accept-Encoding") == "" {
		r.Header.Set("Accept-Encoding", "identity")
	}
	response, err := s.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return response
}

func readAll(t *testing.T, in io.Reader) string {
	t.Helper()
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func unzip(t *testing.T, in io.Reader) string {
	t.Helper()
	z, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	return readAll(t, z)
}

func TestLargeResponsesAreCompressedOnRequest(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *service) {
		var plants []plantstore.Plant
		for id := range plantstore.ID(1000) {
			plants = append(plants, fern(id))
		}
		s.Fill(t, plants...)
		const ndjson = "Accept: application/x-ndjson"
		for _, request := range [][]string{
			{"/plants?limit=1000"},
			{"/plants", ndjson},
			{"/events?limit=1000"},
			{"/events", ndjson},
			{"/openapi.yaml"},
			{"/openapi.json"},
		} {
			plain := s.get(t, request[0], request[1:]...)
			zipped := s.get(t, request[0], append(request[1:], "Accept-Encoding: br, GZIP;q=0.5")...)
			want := readAll(t, plain.Body)
			if plain.Header.Get("Content-Encoding") != "" || zipped.Header.Get("Content-Encoding") != "gzip" {
				t.Fatalf("%q: the encodings are %q and %q", request, plain.Header["Content-Encoding"], zipped.Header["Content-Encoding"])
			}
			if got := unzip(t, zipped.Body); got != want || len(want) < 10_000 {
				t.Errorf("%q: %d bytes, compressed %d others", request, len(want), len(got))
			}
			for _, r := range []*http.Response{plain, zipped} {
				if vary := strings.Join(r.Header["Vary"], ", "); !strings.Contains(vary, "Accept-Encoding") {
					t.Errorf("%q: Vary is %q", request, vary)
				}
			}
		}
	})
}

func TestSmallAndLiveResponsesAreNotCompressed(t *testing.T) {
	s := start(t, servertest.Options{})
	s.Fill(t, plant(1, strings.Repeat("long ", 20_000)), fern(2))
	const gzips = "Accept-Encoding: gzip"
	for _, request := range [][]string{
		{"/plants?after=1", gzips},
		{"/plants/1", gzips}, // large, but on one plant
		{"/plants/9", gzips},
		{"/plants?limit=x", gzips},
		{"/plants?limit=2", "Accept-Encoding: gzip;q=0, identity"},
		{"/plants?limit=2", "Accept-Encoding: gzip; q=0.000"},
		{"/plants?limit=2", "Accept-Encoding: br"},
		{"/events?since=2020-01-01T00:00:00Z", gzips, "Accept: text/event-stream"},
	} {
		if got := s.get(t, request[0], request[1:]...).Header["Content-Encoding"]; got != nil {
			t.Errorf("%q: Content-Encoding is %q", request, got)
		}
	}
}

func TestFailedCompressedExportIsAborted(t *testing.T) {
	s := start(t, servertest.Options{Store: &scanStore{storetest.NewModel(), func(_ context.Context, yield func(plantstore.StoredPlant, error) bool) {
		for i := range 1024 {
			if !yield(plantstore.StoredPlant{Plant: plant(plantstore.ID(i), strings.Repeat("x", 1024))}, nil) {
				return
			}
		}
		yield(plantstore.StoredPlant{}, errors.New("the disk is gone"))
	}}})
	response := s.get(t, "/plants", "Accept: application/x-ndjson", "Accept-Encoding: gzip")
	if response.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("the header is %v", response.Header)
	}
	z, err := gzip.NewReader(response.Body)
	if err == nil {
		_, err = io.Copy(io.Discard, z)
	}
	if err == nil {
		t.Error("a part of the export looks complete")
	}
}

func TestFewResponsesAreCompressedAtATime(t *testing.T) {
	pool := server.NewGzipPool()
	first := pool.TryGet(io.Discard)
	for range server.MaxGzips - 1 {
		if pool.TryGet(io.Discard) == nil {
			t.Fatal("there are too few writers")
		}
	}
	if pool.TryGet(io.Discard) != nil {
		t.Error("there are too many writers")
	}
	pool.Put(first)
	if pool.TryGet(io.Discard) != first {
		t.Error("a writer that was put back is not free")
	}
}

func TestBrowsersMustUseAPublicHTTPSURL(t *testing.T) {
	for base, want := range map[string]string{
		"https://plants.example.com":    "max-age=31536000",
		"https://plants.example.com/v1": "max-age=31536000",
		"http://plants.example.com":     "",
		"https://127.0.0.1:8443":        "",
		"https://[::1]:8443":            "",
		"https://localhost":             "",
	} {
		s := start(t, servertest.Options{BaseURL: servertest.URL(base)})
		if got := s.get(t, "/openapi.yaml").Header.Get("Strict-Transport-Security"); got != want {
			t.Errorf("%s: Strict-Transport-Security is %q, want %q", base, got, want)
		}
	}
}
