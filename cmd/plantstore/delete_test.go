package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

func TestDeleteLeavesPlantsThatSomeoneElseChanged(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	tree := plantstore.NewTag("tree")
	s.Fill(t, plantstore.Plant{ID: 1, Name: "Oak", Tag: tree}, plantstore.Plant{ID: 2, Name: "Elm", Tag: tree}, plantstore.Plant{ID: 3, Name: "Ash", Tag: tree})
	c := s.Client(client.Options{})
	changed := plantstore.Plant{ID: 2, Name: "Elm"}
	proxy := interfere(t, s.URL, http.MethodPost, func(ctx context.Context) error {
		return errors.Join(c.Replace(ctx, changed, nil), c.Delete(ctx, 3, nil))
	})
	var problems bytes.Buffer
	code := run(t.Context(), []string{"delete", "--tag", "tree", "--yes", "--url", proxy}, streams{strings.NewReader(""), io.Discard, &problems})
	if said := problems.String(); code != exitFailure || !strings.HasPrefix(said, "1 plant deleted in ") ||
		!strings.HasSuffix(said, "\nplantstore: left alone: 2 plants changed or deleted in the meantime\n") {
		t.Errorf("exit code %d, want %d; %q", code, exitFailure, said)
	}
	if left := s.Plants(t); len(left) != 1 || left[0] != changed {
		t.Errorf("%v is left, want %v", left, changed)
	}
}

func TestInterruptedDeleteSaysWhatIsNotKnown(t *testing.T) {
	t.Setenv("PLANTSTORE_TOKEN", "0123456789abcdef0123456789abcdef")
	ctx, interrupt := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Type", "application/x-ndjson")
			io.WriteString(w, `{"id":1,"name":"Oak","version":"000000000000"}`+"\n"+`{"id":2,"name":"Elm","version":"000000000000"}`+"\n")
			return
		}
		io.Copy(io.Discard, r.Body)
		interrupt()
		<-r.Context().Done()
	}))
	defer server.Close()
	var problems bytes.Buffer
	code := run(ctx, []string{"delete", "--q", "o", "--yes", "--url", server.URL}, streams{strings.NewReader(""), io.Discard, &problems})
	const want = "plantstore: the deletion was interrupted, and up to 2 more plants may be deleted; run it again to delete the rest\n"
	if said := problems.String(); code != exitInterrupted || !strings.HasPrefix(said, "0 plants deleted in ") || !strings.HasSuffix(said, want) {
		t.Errorf("exit code %d, want %d; %q", code, exitInterrupted, said)
	}
}
