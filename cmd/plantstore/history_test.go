package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// interfere returns the URL of a proxy that calls another before it passes on the first request of
// a method.
func interfere(t *testing.T, target, method string, another func(context.Context) error) string {
	t.Helper()
	server, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(server)
	var once sync.Once
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method {
			once.Do(func() {
				if err := another(r.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	return proxy.URL
}

func TestRevertAndUndeleteLeaveWhatSomeoneElseWrote(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	s.Fill(t, plantstore.Plant{ID: 1, Name: "Oak"}, plantstore.Plant{ID: 2, Name: "Elm"})
	c := s.Client(client.Options{})
	first, err := c.Get(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), 2, nil); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args, want string
		other      plantstore.Plant // written by someone else, just before the command writes
	}{
		{"revert 1 --to " + first.Version.String(), "plantstore: plant 1 was changed in the meantime, and not reverted: plant.replaced by ", plantstore.Plant{ID: 1, Name: "Ash"}},
		{"undelete 2", "plant 2 exists\nplantstore: 1 of 1 plant failed\n", plantstore.Plant{ID: 2, Name: "Fir"}},
	} {
		proxy := interfere(t, s.URL, http.MethodPut, func(ctx context.Context) error { return c.Replace(ctx, test.other, nil) })
		var problems bytes.Buffer
		code := run(t.Context(), append(strings.Fields(test.args), "--url", proxy), streams{strings.NewReader(""), io.Discard, &problems})
		if code != exitFailure || !strings.HasPrefix(problems.String(), test.want) {
			t.Errorf("%s: exit code %d, %q, want %d and %q", test.args, code, &problems, exitFailure, test.want)
		}
		if now, err := c.Get(t.Context(), test.other.ID); err != nil || now.Plant != test.other {
			t.Errorf("%s: got %v, %v, want %v", test.args, now, err, test.other)
		}
	}
}
