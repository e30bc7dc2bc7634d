package abuse

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/auth"
)

func TestWrongTokensAreRefusedAndForgotten(t *testing.T) {
	n := harness.Times(20_000, 1_000_000)
	kept := startTarget(t, timeouts{}, "--auth-failures", "off").guess(t, n)
	// A cache could keep three of four, and a hash alone has 32 bytes.
	if limit := int64(12*n) + 128<<10; kept > limit {
		t.Errorf("after %d wrong tokens the server keeps %d bytes more than before, at most %d are allowed", n, kept, limit)
	}
}

// malformed returns a token whose checksum is wrong.
func malformed() string {
	secret := []byte(plantstore.NewSecret())
	last := &secret[len(secret)-1]
	if *last++; *last == '9'+1 || *last == 'Z'+1 || *last > 'z' {
		*last = '0'
	}
	return string(secret)
}

// guess sends n wrong tokens, and returns by how many bytes the server's heap grew.
func (a *target) guess(t *testing.T, n int) (kept int64) {
	t.Helper()
	kinds := []struct {
		name  string
		n     int
		token func() string
	}{
		{"unknown", n / 2, plantstore.NewSecret},
		{"foreign", n / 4, func() string { return fmt.Sprintf("%016x-%016x", rand.Uint64(), rand.Uint64()) }},
		{"malformed", n / 8, malformed},
		{"near", n / 8, func() string { return harness.Token[:len(harness.Token)-1] + string("ABCDEFGH"[rand.IntN(8)]) }},
	}
	a.send401(t, 1000, plantstore.NewSecret) // allocates what the server keeps in any case
	before := a.liveHeap(t)
	for _, k := range kinds {
		a.withProber(t, func() {
			began := time.Now()
			a.send401(t, k.n, k.token)
			harness.Report(t, "%d %s tokens, %.0f a second", k.n, k.name, float64(k.n)/time.Since(began).Seconds())
		})
	}
	after := a.liveHeap(t)
	t.Logf("%d wrong tokens: %d KB of live heap before, %d KB after", n, before>>10, after>>10)
	return after - before
}

// send401 sends requests with wrong tokens, many before it reads a response.
func (a *target) send401(t *testing.T, n int, token func() string) {
	t.Helper()
	const workers, burst = 8, 50
	harness.Parallel(t, workers, func(int) error {
		conn, err := a.dial()
		if err != nil {
			return err
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range n / workers / burst {
			conn.SetDeadline(time.Now().Add(time.Minute))
			var out strings.Builder
			for range burst {
				out.WriteString("GET /plants/1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token() + "\r\n\r\n")
			}
			if _, err := io.WriteString(conn, out.String()); err != nil {
				return err
			}
			for range burst {
				if status, body, _, err := readResponse(in); err != nil || status != 401 {
					return fmt.Errorf("a wrong token got %d %s, %w", status, body, err)
				}
			}
		}
		return nil
	})
}

var heapAlloc = regexp.MustCompile(`# HeapAlloc = (\d+)`)

// liveHeap returns how many bytes of the server's heap are in use after two garbage
// collections: what pools hold survives one. Plants that are not flushed yet would count.
func (a *target) liveHeap(t *testing.T) (n int64) {
	t.Helper()
	a.AwaitFlushed()
	for range 2 {
		status, text := a.Call(harness.Token, "GET", "/debug/pprof/heap?gc=1&debug=1", "")
		found := heapAlloc.FindStringSubmatch(text)
		if status != 200 || found == nil {
			t.Fatalf("heap profile: %d %s", status, text)
		}
		n, _ = strconv.ParseInt(found[1], 10, 64)
	}
	http.DefaultClient.CloseIdleConnections()
	return n
}

// tokenStore has one token and records the lookups.
type tokenStore struct {
	plantstore.Store // nil: the guard calls no other methods
	token            plantstore.Token
	lookups          []plantstore.TokenHash
}

func (s *tokenStore) ActiveTokens(context.Context, time.Time) ([]plantstore.Token, error) {
	return []plantstore.Token{s.token}, nil
}

func (s *tokenStore) Token(_ context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	s.lookups = append(s.lookups, hash)
	if hash != s.token.Hash {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return s.token, nil
}

// Tokens that share all but their end with a valid one, and tokens that share nothing
// with it, are both looked up by their SHA-256 alone, so that the time it takes
// reveals nothing. That is measured too: of a near and a far one, each should be the
// slower one about half of the time. A busy machine slows both, so it does not change
// the ranks.
func TestTokensAreLookedUpByTheirHash(t *testing.T) {
	real := fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	// The far ones are as similar to each other as the near ones, and have digits in the
	// same places: a processor is faster with what it has just seen.
	far := strings.Map(func(c rune) rune {
		if c <= '9' {
			return '0' + (c-'0'+5)%10
		}
		return 'a' + (c-'a'+3)%6
	}, real)
	store := &tokenStore{token: plantstore.Token{Hash: plantstore.HashSecret(real), Scopes: plantstore.AllScopes()}}
	guard := auth.New(store, auth.Options{})
	check := func(secret string) error {
		_, err := guard.Check(t.Context(), []string{"Bearer " + secret}, plantstore.ScopeRead)
		return err
	}
	if err := check(real); err != nil { // from now on it is cached
		t.Fatal(err)
	}
	type guess struct {
		near bool
		text string
		took time.Duration
	}
	guesses := make([]guess, harness.Times(10_000, 200_000))
	for i := range guesses {
		g := &guesses[i]
		g.near, g.text = rand.IntN(2) == 0, far[:len(far)-1]
		if g.near {
			g.text = real[:len(real)-1]
		}
		g.text += string("GHIJKLMNOPQRSTUVWXYZ"[rand.IntN(20)])
	}
	for i := range guesses {
		g := &guesses[i]
		store.lookups = store.lookups[:0]
		began := time.Now()
		err := check(g.text)
		g.took = time.Since(began)
		if !errors.Is(err, plantstore.ErrBadToken) {
			t.Fatalf("the token %q got %v", g.text, err)
		}
		if want := plantstore.TokenHash(sha256.Sum256([]byte(g.text))); !slices.Equal(store.lookups, []plantstore.TokenHash{want}) {
			t.Fatalf("for the token %q the store looked up %x, want its SHA-256 once", g.text, store.lookups)
		}
	}
	slices.SortFunc(guesses, func(a, b guess) int { return int(a.took - b.took) })
	// The share of pairs in which the near one is slower; a tie counts half.
	var slower float64
	nears, fars := 0, 0
	for begin := 0; begin < len(guesses); {
		tiedNear, end := 0, begin
		for ; end < len(guesses) && guesses[end].took == guesses[begin].took; end++ {
			if guesses[end].near {
				tiedNear++
			}
		}
		tiedFar := end - begin - tiedNear
		slower += float64(tiedNear) * (float64(fars) + float64(tiedFar)/2)
		nears, fars, begin = nears+tiedNear, fars+tiedFar, end
	}
	pairs := float64(nears) * float64(fars)
	harness.Report(t, "%d near and %d far tokens: a near one is slower in %.2f %% of all pairs, want about 50", nears, fars, 100*slower/pairs)
}
