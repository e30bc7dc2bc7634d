package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// varied returns plants with unusual ids and texts, in order of id.
func varied() []plantstore.Plant {
	texts := []string{
		"", "Monstera", `a "quoted" \ name`, "two\nlines\r\n", "\x00", "a\x00b", "🌱🌵", "שיח", "\u2028\u2029", "\ufeff",
		"<script>&amp;", "\U0010ffff", "é", "e\u0301", "\x7f\x01", "100%+&=?#/;",
	}
	ids := []plantstore.ID{
		math.MinInt64, math.MinInt64 + 1, -1 << 53, -1<<53 - 1, -1, 0, 1, 7, 1 << 32, 1<<53 - 1, 1 << 53, 1<<53 + 1,
		1<<62 + 1, math.MaxInt64 - 2, math.MaxInt64 - 1, math.MaxInt64,
	}
	slices.Sort(ids)
	plants := make([]plantstore.Plant, len(ids))
	for i, id := range ids {
		plants[i] = plantstore.Plant{ID: id, Name: texts[i]}
		if i%3 < 2 {
			plants[i].Tag = plantstore.NewTag(texts[(i+5)%len(texts)])
		}
	}
	plants[1].Tag = plantstore.NewTag("")
	return plants
}

func collect(seq iter.Seq2[plantstore.StoredPlant, error]) ([]plantstore.Plant, error) {
	var plants []plantstore.Plant
	for p, err := range seq {
		if err != nil {
			return plants, err
		}
		plants = append(plants, p.Plant)
	}
	return plants, nil
}

// plantsOf returns the plants without their versions and times.
func plantsOf(stored []plantstore.StoredPlant) (plants []plantstore.Plant) {
	for _, p := range stored {
		plants = append(plants, p.Plant)
	}
	return plants
}

func TestExportAndImportAreInverse(t *testing.T) {
	from, to, third := start(t), start(t), start(t)
	from.Fill(t, varied()...)
	ctx := t.Context()
	exported := func(s *servertest.Server) []byte {
		lines, err := s.Client(client.Options{}).ExportLines(ctx, plantstore.Query{})
		if err != nil {
			t.Fatal(err)
		}
		defer lines.Close()
		text, err := io.ReadAll(lines)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := exported(from)
	report, err := to.Client(client.Options{}).ImportLines(ctx, bytes.NewReader(text))
	if n := int64(len(varied())); err != nil || report.Created != n || report.Unchanged+report.Failed != 0 {
		t.Fatalf("import lines: %+v, %v, want %d created", report, err, n)
	}
	report, err = third.Client(client.Options{}).Import(ctx, slices.Values(varied()))
	if n := int64(len(varied())); err != nil || report.Created != n || report.Unchanged+report.Failed != 0 {
		t.Fatalf("import: %+v, %v, want %d created", report, err, n)
	}
	for _, s := range []*servertest.Server{to, third} {
		if got := exported(s); !bytes.Equal(got, text) {
			t.Errorf("exported again:\n%s\nwant\n%s", got, text)
		}
	}
}

func TestIteratorsCanBeStoppedAndRestarted(t *testing.T) {
	s := start(t)
	all := varied()
	s.Fill(t, all...)
	c := s.Client(client.Options{})
	for name, seq := range map[string]iter.Seq2[plantstore.StoredPlant, error]{
		"list":   c.List(t.Context(), plantstore.Query{Limit: 2}),
		"export": c.Export(t.Context(), plantstore.Query{}),
	} {
		for range 2 {
			var got []plantstore.Plant
			for p, err := range seq {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, p.Plant); len(got) == 5 {
					break
				}
			}
			if !slices.Equal(got, all[:5]) {
				t.Errorf("%s: the first five are %#v, want %#v", name, got, all[:5])
			}
		}
	}
}

func TestPlantThatCannotBeSentDoesNotStopTheImport(t *testing.T) {
	s := start(t)
	s.Fill(t, plantstore.Plant{ID: 7, Name: "Oak"})
	c := s.Client(client.Options{})
	const plants = 300
	seq := func(yield func(plantstore.Plant) bool) {
		for id := range plantstore.ID(plants) {
			p := plantstore.Plant{ID: id, Name: "Fir"}
			if id%2 == 0 {
				p.Tag = plantstore.NewTag("bad \xc3\x28")
			}
			if !yield(p) {
				return
			}
		}
	}
	report, err := c.Import(t.Context(), seq)
	if err != nil {
		t.Fatal(err)
	}
	if report.Created != 149 || report.Failed != 151 || report.Unchanged != 0 || len(report.Errors) != 100 {
		t.Errorf("%d created, %d unchanged, %d failed, %d errors", report.Created, report.Unchanged, report.Failed, len(report.Errors))
	}
	// Lines 1, 3, 5, 7, 9 and so on cannot be sent, and line 8 is taken.
	for i, want := range []int64{1, 3, 5, 7, 8, 9} {
		e := report.Errors[i]
		code := plantstore.ErrNotJSON
		if want == 8 {
			code = plantstore.ErrIDTaken
		}
		if e.Line != want || e.Err.Code != code {
			t.Errorf("error %d is of line %d, %v, want line %d, %v", i, e.Line, e.Err, want, code)
		}
	}
	if got := s.Plants(t); len(got) != 150 {
		t.Errorf("the store has %d plants, want 150", len(got))
	}
}

// unsent returns a client that fails the test when it sends anything.
func unsent(t *testing.T) *client.Client {
	return newClient(t, "http://plants.test", secret, client.Options{
		HTTP: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			t.Errorf("%s %s was sent", r.Method, r.URL)
			return nil, errors.New("sent")
		})},
		Retries: -1,
	})
}

func TestTextThatIsNotUTF8IsNotSent(t *testing.T) {
	c := unsent(t)
	ctx := t.Context()
	const bad = "a\xffb"
	for name, err := range map[string]error{
		"create name":  c.Create(ctx, plantstore.Plant{Name: bad}),
		"create tag":   c.Create(ctx, plantstore.Plant{Tag: plantstore.NewTag(bad)}),
		"replace name": c.Replace(ctx, plantstore.Plant{Name: bad}, nil),
		"replace tag":  c.Replace(ctx, plantstore.Plant{Tag: plantstore.NewTag(bad)}, nil),
	} {
		if !errors.Is(err, plantstore.ErrNotJSON) || !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: %v, want ErrNotJSON", name, err)
		}
	}
	for name, q := range map[string]plantstore.Query{
		"tag": {Tag: plantstore.NewTag(bad)}, "contains": {Contains: bad},
	} {
		_, pageErr := c.Page(ctx, q)
		_, exportErr := c.ExportLines(ctx, q)
		for _, err := range []error{pageErr, exportErr} {
			if !errors.Is(err, plantstore.ErrParameter) || !strings.Contains(err.Error(), "UTF-8") {
				t.Errorf("%s: %v, want ErrParameter", name, err)
			}
		}
	}
}

func TestConditionOfBadETagsIsNotSent(t *testing.T) {
	c := unsent(t)
	for _, tag := range []plantstore.ETag{"", "a", `"`, `"a`, `"a"b"`, "\"a\nb\"", `"a" "b"`, "W/a", "* "} {
		for _, cond := range []plantstore.Condition{
			{Match: []plantstore.ETag{`"good"`, tag}},
			{Match: []plantstore.ETag{`"good"`}, NoneMatch: []plantstore.ETag{tag}},
		} {
			if err := c.Delete(t.Context(), 1, &cond); !errors.Is(err, plantstore.ErrParameter) {
				t.Errorf("delete with %+q: %v, want ErrParameter", cond, err)
			}
			if err := c.Replace(t.Context(), plantstore.Plant{}, &cond); !errors.Is(err, plantstore.ErrParameter) {
				t.Errorf("replace with %+q: %v, want ErrParameter", cond, err)
			}
		}
	}
}

func TestNewSaysThatNoTokenWasGiven(t *testing.T) {
	_, err := client.New("http://example.com", "", client.Options{})
	if !errors.Is(err, plantstore.ErrNoToken) || !strings.Contains(err.Error(), "PLANTSTORE_TOKEN") {
		t.Errorf("got %v, want ErrNoToken with the variable in which the token usually is", err)
	}
}

func TestNewRefusesWithoutQuotingTheToken(t *testing.T) {
	good := plantstore.NewSecret()
	for _, test := range []struct{ url, token string }{
		{"", good},
		{"127.0.0.1:8080", good},
		{"ftp://example.com", good},
		{"http://", good},
		{"http://:80", good},
		{"http:example.com", good},
		{"http://example.com?x=1", good},
		{"http://example.com?", good},
		{"http://example.com/#top", good},
		{"http://user:secret@example.com", good},
		{"http://exa mple.com", good},
		{"http://example.com:port", good},
		{good, "http://example.com"},
		{"http://example.com/" + good + "\x7f", good},
		{"http://example.com", good[:len(good)-1]},
		{"http://example.com", good + "0"},
		{"http://example.com", "two words"},
		{"http://example.com", "line\nfeed"},
	} {
		_, err := client.New(test.url, test.token, client.Options{})
		if err == nil {
			t.Errorf("New(%q, %q) succeeds", test.url, test.token)
			continue
		}
		for _, secret := range []string{good, good[:len(good)-1], "secret", "words", "feed"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("New(%q, %q): the error contains it: %v", test.url, test.token, err)
			}
		}
	}
	for _, base := range []string{"http://example.com", "https://example.com/", "http://[::1]:8080/a/b/"} {
		if _, err := client.New(base, good, client.Options{}); err != nil {
			t.Errorf("New(%q): %v", base, err)
		}
	}
}

func TestBaseURLMayEndInASlash(t *testing.T) {
	s := start(t)
	c := newClient(t, s.URL+"/", s.Token, client.Options{})
	if err := c.Create(t.Context(), plantstore.Plant{ID: 1}); err != nil {
		t.Error(err)
	}
}

func TestClientIsSafeForConcurrentUse(t *testing.T) {
	s := start(t)
	c := s.Client(client.Options{})
	ctx := t.Context()
	var calls sync.WaitGroup
	for i := range plantstore.ID(32) {
		calls.Go(func() {
			p := plantstore.Plant{ID: i, Name: fmt.Sprint("plant ", i)}
			_, importErr := c.Import(ctx, slices.Values([]plantstore.Plant{p}))
			got, getErr := c.Get(ctx, i)
			_, listErr := collect(c.List(ctx, plantstore.Query{Limit: 5}))
			_, exportErr := collect(c.Export(ctx, plantstore.Query{}))
			err := errors.Join(importErr, getErr, listErr, exportErr, c.Create(ctx, p))
			if i%2 == 1 {
				err = errors.Join(err, c.Delete(ctx, i, nil))
			}
			if err != nil || got.Plant != p {
				t.Errorf("plant %d: %+v, %v", i, got, err)
			}
		})
	}
	calls.Wait()
	if got := s.Plants(t); len(got) != 16 {
		t.Errorf("the store has %d plants, want 16", len(got))
	}
}

func TestCancelledCallsEnd(t *testing.T) {
	s := start(t)
	s.Fill(t, varied()...)
	c := s.Client(client.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, op := range operations() {
		if err := op.call(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v, want context.Canceled", op.name, err)
		}
	}
}

// An import whose lines could not be read must not be mistaken for a complete one.
func TestImportFailsIfTheReaderDoes(t *testing.T) {
	s := start(t)
	c := s.Client(client.Options{})
	broken := errors.New("broken disk")
	whole := strings.NewReader("{\"id\":1,\"name\":\"Oak\"}\n")
	// It can be rewound, but that does not help.
	lines := struct {
		io.Reader
		io.Seeker
	}{io.MultiReader(whole, errReader{broken}), whole}
	report, err := c.ImportLines(t.Context(), lines)
	if !errors.Is(err, broken) || err.Error() != "import plants: read the lines: broken disk" {
		t.Errorf("%+v, %v, want %v", report, err, broken)
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

func TestPanickingIteratorEndsTheImport(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		defer func() {
			if got := recover(); got != "no more plants" {
				t.Errorf("recovered %v", got)
			}
			synctest.Wait() // for the import to end
			if got := s.Plants(t); len(got) != 0 {
				t.Errorf("the store has %#v, want nothing: half an import was mistaken for a complete one", got)
			}
		}()
		_, _ = s.client(t, client.Options{}, nil).Import(t.Context(), func(yield func(plantstore.Plant) bool) {
			yield(plantstore.Plant{ID: 1})
			time.Sleep(2 * time.Second) // the next plant flushes the buffer
			yield(plantstore.Plant{ID: 2})
			panic("no more plants")
		})
	})
}
