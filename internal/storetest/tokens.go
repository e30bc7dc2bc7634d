package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
)

var tokenBehaviours = []behaviour{
	{"NoTokens", noTokens},
	{"TokenIsStoredUnchanged", tokenIsStoredUnchanged},
	{"TokensAreListedInOrderOfCreation", tokensAreListedInOrderOfCreation},
	{"TokenHashIsUnique", tokenHashIsUnique},
	{"TokensAreFoundByTheirIDs", tokensAreFoundByTheirIDs},
	{"TokenTimesAreWholeSecondsOfUTC", tokenTimesAreWholeSecondsOfUTC},
	{"TokenSharesNoMemory", tokenSharesNoMemory},
	{"RevokedTokenKeepsItsFirstTime", revokedTokenKeepsItsFirstTime},
	{"TouchOnlyGoesForward", touchOnlyGoesForward},
	{"FirstTokenIsCreatedOnce", firstTokenIsCreatedOnce},
	{"FirstTokenNeedsAnEmptyStore", firstTokenNeedsAnEmptyStore},
	{"OneFirstTokenWins", oneFirstTokenWins},
	{"TokenChangesAreInTheLog", tokenChangesAreInTheLog},
	{"LastTokenThatCreatesOthersStays", lastTokenThatCreatesOthersStays},
	{"ConcurrentRevocationsLeaveOne", concurrentRevocationsLeaveOne},
	{"ActiveTokensAreNeitherRevokedNorExpired", activeTokensAreNeitherRevokedNorExpired},
	{"TokensThatEndedLongAgoAreDeleted", tokensThatEndedLongAgoAreDeleted},
	{"OnlyTokenIsKeptWhenItEnded", onlyTokenIsKeptWhenItEnded},
	{"EndedActorChangesNothing", endedActorChangesNothing},
	{"RevokedTokenChangesNothingMore", revokedTokenChangesNothingMore},
	{"RevocationWaitsForAChange", revocationWaitsForAChange},
}

// noon is a time in whole seconds of UTC.
var noon = time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)

// token returns a token whose hash is derived from its name.
func token(name string) plantstore.Token {
	return plantstore.Token{
		Hash:    plantstore.HashSecret(name),
		Name:    name,
		Scopes:  []plantstore.Scope{plantstore.ScopeWrite, plantstore.ScopeRead},
		Created: noon,
		Expires: noon.AddDate(0, 3, 0),
	}
}

func addToken(t tb, s plantstore.Store, tokens ...plantstore.Token) {
	t.Helper()
	for _, tk := range tokens {
		if err := s.CreateToken(t.Context(), tk, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatalf("CreateToken(%q): %v", tk.Name, err)
		}
	}
}

func addFirstToken(t tb, s plantstore.Store, tk plantstore.Token, want bool) {
	t.Helper()
	got, err := s.CreateFirstToken(t.Context(), tk)
	if err != nil || got != want {
		t.Fatalf("CreateFirstToken(%q): %v, %v, want %v", tk.Name, got, err, want)
	}
}

func revoke(t tb, s plantstore.Store, tk plantstore.Token, at time.Time) {
	t.Helper()
	if err := s.RevokeToken(t.Context(), tk.Hash, at, plantstore.Actor{Name: plantstore.Operator}); err != nil {
		t.Fatalf("RevokeToken(%q): %v", tk.Name, err)
	}
}

func touch(t tb, s plantstore.Store, used map[plantstore.TokenHash]time.Time) {
	t.Helper()
	if err := s.TouchTokens(t.Context(), used); err != nil {
		t.Fatalf("TouchTokens: %v", err)
	}
}

// touchAgain repeats when tokens were last used after a store was reopened, since that
// need not be durable.
func touchAgain(t tb, s plantstore.Store, tokens []plantstore.Token) {
	t.Helper()
	used := make(map[plantstore.TokenHash]time.Time)
	for _, tk := range tokens {
		if !tk.LastUsed.IsZero() {
			used[tk.Hash] = tk.LastUsed
		}
	}
	touch(t, s, used)
}

// wantTokens fails unless the store has exactly these tokens in this order, and finds
// each by its hash. A time in whole seconds of UTC has one representation, so tokens
// can be compared with reflect.DeepEqual.
func wantTokens(t tb, s plantstore.Store, want ...plantstore.Token) {
	t.Helper()
	got, err := s.Tokens(t.Context())
	if err != nil {
		t.Fatalf("Tokens: %v", err)
	}
	if len(got) != len(want) {
		t.Fatalf("Tokens: got %d, want %d", len(got), len(want))
	}
	for i, tk := range want {
		if !reflect.DeepEqual(got[i], tk) {
			t.Fatalf("Tokens: token %d is\n%+v, want\n%+v", i, got[i], tk)
		}
		found, err := s.Token(t.Context(), tk.Hash)
		if err != nil {
			t.Fatalf("Token(%q): %v", tk.Name, err)
		}
		if !reflect.DeepEqual(found, tk) {
			t.Fatalf("Token(%q): got\n%+v, want\n%+v", tk.Name, found, tk)
		}
	}
}

func wantNoToken(t tb, s plantstore.Store, hash plantstore.TokenHash) {
	t.Helper()
	if _, err := s.Token(t.Context(), hash); !errors.Is(err, plantstore.ErrNoSuchToken) {
		t.Fatalf("Token(%s): error %v, want ErrNoSuchToken", hash.ID(), err)
	}
}

// unknownHash returns a hash that no token has. It differs from the token's in the last bit
// only.
func unknownHash(tk plantstore.Token) plantstore.TokenHash {
	hash := tk.Hash
	hash[len(hash)-1] ^= 1
	return hash
}

func noTokens(t *testing.T, s *subject) {
	tk := token("ci")
	for range 2 {
		wantTokens(t, s)
		for _, hash := range []plantstore.TokenHash{tk.Hash, unknownHash(tk), {}} {
			wantNoToken(t, s, hash)
			if err := s.RevokeToken(t.Context(), hash, noon, plantstore.Actor{Name: plantstore.Operator}); !errors.Is(err, plantstore.ErrNoSuchToken) {
				t.Fatalf("RevokeToken of an unknown hash: error %v, want ErrNoSuchToken", err)
			}
			touch(t, s, map[plantstore.TokenHash]time.Time{hash: noon})
		}
		touch(t, s, nil)
		wantTokens(t, s)
		s.reopen(t)
	}
	addToken(t, s, tk)
	wantNoToken(t, s, unknownHash(tk))
	if err := s.RevokeToken(t.Context(), unknownHash(tk), noon, plantstore.Actor{Name: plantstore.Operator}); !errors.Is(err, plantstore.ErrNoSuchToken) {
		t.Fatalf("RevokeToken of a similar hash: error %v, want ErrNoSuchToken", err)
	}
	wantTokens(t, s, tk)
}

func tokenIsStoredUnchanged(t *testing.T, s *subject) {
	var want []plantstore.Token
	for i, text := range texts {
		tk := token(fmt.Sprintf("token %d", i))
		tk.Name = text
		want = append(want, tk)
	}
	for i, scopes := range [][]plantstore.Scope{
		plantstore.AllScopes(),
		{plantstore.ScopeRead},
		{plantstore.ScopeOps, plantstore.ScopeRead, plantstore.ScopeWrite},
	} {
		tk := token(fmt.Sprintf("scopes %d", i))
		tk.Scopes = scopes
		want = append(want, tk)
	}
	for i, rate := range []plantstore.Rate{{N: 1, Burst: 1, Per: time.Hour}, {N: 200, Burst: 400, Per: time.Second}} {
		tk := token(fmt.Sprintf("rate %d", i))
		tk.Rate = rate
		want = append(want, tk)
	}
	zero := token("")
	zero.Hash = plantstore.TokenHash{}
	want = append(want, zero)
	// Only the zero time means never. None has ended for long when the next is created.
	for i, at := range []time.Time{
		{},
		time.Unix(0, 0).UTC(),
		time.Unix(-1, 0).UTC(),
		time.Unix(1, 0).UTC(),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	} {
		tk := token(fmt.Sprintf("time %d", i))
		tk.Created = time.Unix(0, 0).UTC()
		tk.Expires, tk.Revoked, tk.LastUsed = at, at, at
		want = append(want, tk)
	}
	addToken(t, s, want...)
	wantTokens(t, s, want...)
	s.reopen(t)
	touchAgain(t, s, want)
	wantTokens(t, s, want...)
}

// tokensAreListedInOrderOfCreation creates tokens within one second, so that neither
// their times nor their names nor their hashes reveal the order.
func tokensAreListedInOrderOfCreation(t *testing.T, s *subject) {
	var want []plantstore.Token
	for i := range 30 {
		want = append(want, token(fmt.Sprintf("token %d", (i*7+3)%30)))
	}
	addFirstToken(t, s, want[0], true)
	addToken(t, s, want[1:20]...)
	want[3].Revoked = noon.Add(time.Hour)
	revoke(t, s, want[3], want[3].Revoked)
	s.reopen(t)
	addToken(t, s, want[20:]...)
	want[1].LastUsed = noon.Add(time.Minute)
	touch(t, s, map[plantstore.TokenHash]time.Time{want[1].Hash: want[1].LastUsed})
	wantTokens(t, s, want...)
}

// tokenHashIsUnique checks that a token is never silently overwritten.
func tokenHashIsUnique(t *testing.T, s *subject) {
	tk := token("ci")
	addToken(t, s, tk)
	revoked := noon.Add(time.Hour)
	revoke(t, s, tk, revoked)
	other := token("other")
	other.Hash = tk.Hash
	if err := s.CreateToken(t.Context(), other, plantstore.Actor{Name: plantstore.Operator}); err == nil {
		t.Error("CreateToken accepted another token with the same hash")
	}
	tk.Revoked = revoked
	wantTokens(t, s, tk)
}

func tokensAreFoundByTheirIDs(t *testing.T, s *subject) {
	var all []plantstore.Token
	for i, start := range [][]byte{{}, {0, 0, 0, 0, 0, 0}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0xab, 0xcd, 0xef, 0x01, 0x02, 0x03}} {
		tk := token(fmt.Sprint(i))
		copy(tk.Hash[:], start)
		all = append(all, tk)
	}
	twin := token("twin") // its hash is greater
	copy(twin.Hash[:], append(all[3].Hash[:6:6], 0xff))
	all[3].Hash[6] = 0
	for i := range all[0].Hash {
		all[0].Hash[i] = 0xff // the greatest hash with its id
		if i < 6 {
			all[0].Hash[i] = byte(i)
		}
	}
	addToken(t, s, append(all, twin)...)
	for range 2 {
		for _, want := range all {
			got, err := s.TokenWithID(t.Context(), want.Hash.ID())
			if err != nil || got.Name != want.Name || got.Hash != want.Hash {
				t.Errorf("the token with the id %s is %q, %v, want %q", want.Hash.ID(), got.Name, err, want.Name)
			}
		}
		for _, id := range []string{"", "abcdef01020", "abcdef010204", "ABCDEF010203", "abcdef01020300", "abcdef01020g", "no such id\x00\xff"} {
			if got, err := s.TokenWithID(t.Context(), id); !errors.Is(err, plantstore.ErrNoSuchToken) {
				t.Errorf("the token with the id %q is %q, %v", id, got.Name, err)
			}
		}
		s.reopen(t)
	}
}

func tokenTimesAreWholeSecondsOfUTC(t *testing.T, s *subject) {
	zone := time.FixedZone("away", 5*3600+1800)
	fine := func(at time.Time) time.Time { return at.Add(time.Second - 1).In(zone) }
	finely := func(tk plantstore.Token) plantstore.Token {
		tk.Created, tk.Expires = fine(tk.Created), fine(tk.Expires)
		return tk
	}
	first, second, third := token("first"), token("second"), token("third")
	third.Created, third.Expires = noon.AddDate(-100, 0, 0), noon.AddDate(-60, 0, 0)
	addFirstToken(t, s, finely(first), true)
	addToken(t, s, finely(second))
	second.Revoked = noon.Add(time.Hour)
	revoke(t, s, second, fine(second.Revoked))
	addToken(t, s, finely(third))
	wantTokens(t, s, first, second, third)

	first.LastUsed = noon.Add(2 * time.Hour)
	touch(t, s, map[plantstore.TokenHash]time.Time{first.Hash: fine(first.LastUsed)})
	wantTokens(t, s, first, second, third)
}

func tokenSharesNoMemory(t *testing.T, s *subject) {
	want := token("ci")
	given := token("ci")
	given.Scopes = slices.Clone(want.Scopes)
	addToken(t, s, given)
	given.Scopes[0] = plantstore.ScopeOps
	listed, err := s.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	listed[0].Scopes[0] = plantstore.ScopeOps
	listed[0].Name = "mine"
	found, err := s.Token(t.Context(), want.Hash)
	if err != nil {
		t.Fatal(err)
	}
	found.Scopes[0] = plantstore.ScopeOps
	wantTokens(t, s, want)
}

func revokedTokenKeepsItsFirstTime(t *testing.T, s *subject) {
	other, tk := token("other"), token("ci")
	addToken(t, s, other, tk)
	tk.Revoked = noon.Add(time.Hour)
	revoke(t, s, tk, tk.Revoked)
	wantTokens(t, s, other, tk)
	revoke(t, s, tk, tk.Revoked.Add(time.Hour))
	wantTokens(t, s, other, tk)
	revoke(t, s, tk, tk.Revoked.Add(-time.Minute))
	wantTokens(t, s, other, tk)
	s.reopen(t)
	wantTokens(t, s, other, tk)
	revoke(t, s, tk, noon.AddDate(1, 0, 0))
	wantTokens(t, s, other, tk)
}

func touchOnlyGoesForward(t *testing.T, s *subject) {
	first, second, third := token("first"), token("second"), token("third")
	third.Revoked = noon
	addToken(t, s, first, second, third)
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct{ first, second, wantFirst, wantSecond int }{
		{10, 20, 10, 20},
		{9, 21, 10, 21},
		{10, 20, 10, 21},
		{11, -3600, 11, 21},
		{3600, 22, 3600, 22},
		{0, 0, 3600, 22},
	} {
		touch(t, s, map[plantstore.TokenHash]time.Time{
			first.Hash:         at(c.first),
			unknownHash(first): at(c.first),
			second.Hash:        at(c.second).In(time.FixedZone("away", -7*3600)),
		})
		first.LastUsed, second.LastUsed = at(c.wantFirst), at(c.wantSecond)
		wantTokens(t, s, first, second, third)
	}
	touch(t, s, map[plantstore.TokenHash]time.Time{third.Hash: at(5)})
	third.LastUsed = at(5)
	wantTokens(t, s, first, second, third)
	wantNoToken(t, s, unknownHash(first))
}

func firstTokenIsCreatedOnce(t *testing.T, s *subject) {
	first := token("first")
	addFirstToken(t, s, first, true)
	addFirstToken(t, s, first, false)
	addFirstToken(t, s, token("second"), false)
	wantTokens(t, s, first)
	wantNoToken(t, s, token("second").Hash)
	s.reopen(t)
	addFirstToken(t, s, token("third"), false)
	addToken(t, s, token("second"))
	wantTokens(t, s, first, token("second"))
}

// firstTokenNeedsAnEmptyStore checks that every token counts, whether it was created as
// the first one or not, and even if it has expired or been revoked.
func firstTokenNeedsAnEmptyStore(t *testing.T, s *subject) {
	old := token("old")
	old.Expires = noon.AddDate(-1, 0, 0)
	old.Revoked = noon.AddDate(-2, 0, 0)
	addToken(t, s, old)
	addFirstToken(t, s, token("first"), false)
	s.reopen(t)
	addFirstToken(t, s, token("first"), false)
	wantTokens(t, s, old)
}

func oneFirstTokenWins(t *testing.T, s *subject) {
	const n = 8
	won := make([]bool, n)
	inParallel(t, n, func(i int) (err error) {
		won[i], err = s.CreateFirstToken(t.Context(), token(fmt.Sprintf("replica %d", i)))
		return err
	})
	var winners []plantstore.Token
	for i, ok := range won {
		if ok {
			winners = append(winners, token(fmt.Sprintf("replica %d", i)))
		}
	}
	if len(winners) != 1 {
		t.Fatalf("%d of %d calls of CreateFirstToken returned true", len(winners), n)
	}
	wantTokens(t, s, winners...)
}

// tokenChange returns what the log has of a change to a token.
func tokenChange(what plantstore.EventType, tk plantstore.Token, by string) change {
	info := tk.Logged()
	return changeOf(plantstore.Event{Type: what, Token: &info, By: by})
}

// tokenChangesAreInTheLog checks that changes to tokens and plants are in one order. Plant
// 0 and plants whose names look like tokens must not be taken for tokens.
func tokenChangesAreInTheLog(t *testing.T, s *subject) {
	first, second, third := token("first"), token("\x00\u2400"), token("third")
	first.LastUsed = noon
	second.Rate, second.Expires = plantstore.Rate{N: 2, Burst: 3, Per: time.Minute}, time.Time{}
	third.Created = third.Created.Add(time.Second / 2)
	fern := tagged(0, `{"id":"0"}`, "wild")
	addFirstToken(t, s, first, true)
	addFirstToken(t, s, second, false)
	apply(t, s, step{by("a", create(fern)), created})
	if err := s.CreateToken(t.Context(), second, plantstore.Actor{Name: "issuer subject"}); err != nil {
		t.Fatal(err)
	}
	addToken(t, s, third)
	touch(t, s, map[plantstore.TokenHash]time.Time{second.Hash: noon})
	revoked := second
	revoked.Revoked = noon.Add(time.Hour)
	for range 2 {
		if err := s.RevokeToken(t.Context(), second.Hash, revoked.Revoked.Add(time.Second/2), plantstore.Actor{Name: "b"}); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, s, step{by("a", remove(0)), deleted})
	want := []change{
		tokenChange(plantstore.TokenCreated, first, plantstore.Operator),
		{Type: plantstore.PlantCreated, Plant: fern, By: "a"},
		tokenChange(plantstore.TokenCreated, second, "issuer subject"),
		tokenChange(plantstore.TokenCreated, third, plantstore.Operator),
		tokenChange(plantstore.TokenRevoked, revoked, "b"),
		{Type: plantstore.PlantDeleted, Plant: fern, By: "a"},
	}
	for range 2 {
		wantEvents(t, s, "", want...)
		wantSequence(t, s)
		wantMatches(t, s, plantstore.EventQuery{}, want[1], want[5])
		wantMatches(t, s, plantstore.EventQuery{ID: new(plantstore.ID(0)), WithTokens: true}, want[1], want[5])
		wantMatches(t, s, plantstore.EventQuery{Types: []plantstore.EventType{plantstore.TokenRevoked, plantstore.PlantCreated}, WithTokens: true}, want[1], want[4])
		wantMatches(t, s, plantstore.EventQuery{Types: []plantstore.EventType{plantstore.TokenRevoked}})
		wantAll(t, s)
		if stats, err := s.Stats(t.Context()); err != nil || stats.Plants != 0 || stats.Events != int64(len(want)) {
			t.Errorf("Stats: %+v, %v", stats, err)
		}
		s.reopen(t)
	}
	apply(t, s, step{by("a", create(fern)), created})
	wantPlants(t, s, fern)
	wantEvents(t, s, "", append(want, change{Type: plantstore.PlantCreated, Plant: fern, By: "a"})...)
}

// wantSequence fails unless the numbers of the events are without gaps.
func wantSequence(t tb, s plantstore.Store) {
	t.Helper()
	events, _ := follow(t, s, "")
	for i, e := range events {
		at, err := e.Cursor.Position()
		if err != nil || at.Seq != int64(i+1) {
			t.Fatalf("event %d has the position %+v, %v", i, at, err)
		}
	}
}

// wantMatches compares the events that match a query, and checks that it ends where the
// log does.
func wantMatches(t tb, s plantstore.Store, q plantstore.EventQuery, want ...change) {
	t.Helper()
	q.Limit = 100
	var got []change
	for {
		page, err := s.Events(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			got = append(got, changeOf(e))
		}
		if q.After = page.Next; !page.More {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events of %+v:\n%v\nwant:\n%v", q, got, want)
	}
	if _, end := follow(t, s, plantstore.LatestCursor); q.After != end {
		t.Errorf("a page ends at %q, want %q", q.After, end)
	}
}

// creator returns a token that may create others.
func creator(name string) plantstore.Token {
	tk := token(name)
	tk.Scopes = []plantstore.Scope{plantstore.ScopeRead, plantstore.ScopeTokensWrite}
	return tk
}

func lastTokenThatCreatesOthersStays(t *testing.T, s *subject) {
	expired, gone, reader, first, second := creator("expired"), creator("gone"), token("reader"), creator("first"), creator("second")
	expired.Expires = noon
	gone.Revoked = noon.Add(-time.Hour)
	reader.Scopes = []plantstore.Scope{plantstore.ScopeTokensRead}
	addToken(t, s, expired, gone, reader, first)
	wantError := func(tk plantstore.Token, by string, want error) {
		t.Helper()
		if err := s.RevokeToken(t.Context(), tk.Hash, noon, plantstore.Actor{Name: by}); !errors.Is(err, want) {
			t.Errorf("RevokeToken(%q) by %s: error %v, want %v", tk.Name, by, err, want)
		}
	}
	_, end := follow(t, s, "")
	wantError(first, first.Hash.ID(), plantstore.ErrLastToken)
	wantError(gone, "a", nil)
	wantEvents(t, s, end)
	wantTokens(t, s, expired, gone, reader, first)
	wantError(reader, "a", nil)
	wantError(expired, "a", nil)
	addToken(t, s, second)
	wantError(first, "a", nil)
	wantError(first, "a", nil)
	wantError(second, "a", plantstore.ErrLastToken)
	wantError(second, plantstore.Operator, nil)
	wantError(second, "a", nil)
}

func concurrentRevocationsLeaveOne(t *testing.T, s *subject) {
	const n = 8
	for i := range n {
		addToken(t, s, creator(fmt.Sprint(i)))
	}
	refused := make([]bool, n)
	inParallel(t, n, func(i int) error {
		err := s.RevokeToken(t.Context(), creator(fmt.Sprint(i)).Hash, noon, plantstore.Actor{Name: "a"})
		refused[i] = errors.Is(err, plantstore.ErrLastToken)
		if refused[i] {
			return nil
		}
		return err
	})
	tokens, err := s.Tokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for i, tk := range tokens {
		if refused[i] != tk.Revoked.IsZero() {
			t.Errorf("token %d: refused %t, revoked at %v", i, refused[i], tk.Revoked)
		}
		if refused[i] {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d revocations were refused, want 1", count)
	}
	wantSequence(t, s)
}

func activeTokensAreNeitherRevokedNorExpired(t *testing.T, s *subject) {
	forever, expires, expired, revoked, both := token("forever"), token("expires"), token("expired"), token("revoked"), token("both")
	forever.Expires = time.Time{}
	expires.Expires = noon.Add(time.Second)
	expired.Expires = noon
	revoked.Revoked = noon.Add(time.Hour) // by a clock that is ahead
	both.Expires, both.Revoked = noon, noon
	addToken(t, s, forever, expires, expired, revoked, both)
	for at, want := range map[time.Time][]string{
		noon.Add(-1):              {"expired", "expires", "forever"},
		noon:                      {"expires", "forever"},
		noon.Add(time.Second - 1): {"expires", "forever"},
		noon.Add(time.Second):     {"forever"},
	} {
		tokens, err := s.ActiveTokens(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, tk := range tokens {
			got = append(got, tk.Name)
			if !reflect.DeepEqual(tk.Hash, token(tk.Name).Hash) || !slices.Equal(tk.Scopes, token(tk.Name).Scopes) {
				t.Errorf("a token is %+v", tk)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("at %v the tokens %v are active, want %v", at, got, want)
		}
	}
	wantTokens(t, s, forever, expires, expired, revoked, both)
}

// tokensThatEndedLongAgoAreDeleted counts from the revocation of a token that is revoked,
// and from its expiry otherwise.
func tokensThatEndedLongAgoAreDeleted(t *testing.T, s *subject) {
	now := noon.Add(plantstore.MaxEndedAge)
	old, kept, revoked, late, active := token("old"), token("kept"), token("revoked"), token("late"), token("active")
	old.Expires, kept.Expires = noon, noon.Add(time.Second)
	revoked.Revoked = noon.Add(-time.Hour)
	late.Expires, late.Revoked = noon, noon.Add(time.Second)
	active.Created = noon.AddDate(-1, 0, 0)
	addToken(t, s, active, old, kept, revoked, late)
	next := token("next")
	next.Created = now.Add(-time.Second)
	addToken(t, s, next)
	wantTokens(t, s, active, old, kept, late, next)
	wantNoToken(t, s, revoked.Hash)
	revoke(t, s, next, now)
	next.Revoked = now
	wantTokens(t, s, active, kept, late, next)
	wantNoToken(t, s, old.Hash)
	if err := s.RevokeToken(t.Context(), old.Hash, now, plantstore.Actor{Name: "a"}); !errors.Is(err, plantstore.ErrNoSuchToken) {
		t.Errorf("RevokeToken of a deleted token: error %v, want ErrNoSuchToken", err)
	}
	wantSequence(t, s)
}

// onlyTokenIsKeptWhenItEnded checks that a store never forgets that it has had a token.
func onlyTokenIsKeptWhenItEnded(t *testing.T, s *subject) {
	tk := token("only")
	addFirstToken(t, s, tk, true)
	tk.Revoked = tk.Expires.AddDate(10, 0, 0)
	revoke(t, s, tk, tk.Revoked)
	for range 2 {
		addFirstToken(t, s, token("second"), false)
		wantTokens(t, s, tk)
		s.reopen(t)
	}
}

// actorOf returns who uses the token.
func actorOf(tk plantstore.Token) plantstore.Actor {
	return plantstore.Actor{Name: tk.Hash.ID(), Token: &tk.Hash}
}

// endedActorChangesNothing uses the clock that a store uses.
func endedActorChangesNothing(t *testing.T, s *subject) {
	now := time.Now().UTC().Truncate(time.Second)
	fresh := func(name string) plantstore.Token {
		tk := creator(name)
		tk.Created, tk.Expires = now, now.Add(time.Hour)
		return tk
	}
	active, other, expired, revoked := fresh("active"), fresh("other"), fresh("expired"), fresh("revoked")
	expired.Expires, revoked.Revoked = now, now
	addToken(t, s, active, other, expired, revoked)
	addWebhooks(t, s, webhook("a"))
	made := 0
	update := func(id string, by plantstore.Actor) error {
		_, err := s.UpdateWebhook(t.Context(), id, by, func(w *plantstore.Webhook) error { w.Epoch++; return nil })
		return err
	}
	changes := map[string]func(by plantstore.Actor) error{
		"CreateToken": func(by plantstore.Actor) error {
			made++
			return s.CreateToken(t.Context(), fresh(fmt.Sprint("made ", made)), by)
		},
		"RevokeToken":           func(by plantstore.Actor) error { return s.RevokeToken(t.Context(), other.Hash, now, by) },
		"CreateWebhook":         func(by plantstore.Actor) error { return s.CreateWebhook(t.Context(), webhook("b"), by) },
		"UpdateWebhook":         func(by plantstore.Actor) error { return update("a", by) },
		"UpdateWebhook of none": func(by plantstore.Actor) error { return update("none", by) },
		"DeleteWebhook":         func(by plantstore.Actor) error { return s.DeleteWebhook(t.Context(), "a", by) },
		"DeleteWebhook of none": func(by plantstore.Actor) error { return s.DeleteWebhook(t.Context(), "none", by) },
	}
	_, end := follow(t, s, "")
	for _, tt := range []struct {
		by   plantstore.Actor
		want error
	}{
		{actorOf(expired), plantstore.ErrTokenExpired},
		{actorOf(revoked), plantstore.ErrBadToken},
		{actorOf(fresh("deleted")), plantstore.ErrBadToken},
		{plantstore.Actor{Name: "issuer subject", Expires: now}, plantstore.ErrTokenExpired},
	} {
		for name, change := range changes {
			if err := change(tt.by); !errors.Is(err, tt.want) {
				t.Errorf("%s by %s: error %v, want %v", name, tt.by.Name, err, tt.want)
			}
		}
	}
	wantTokens(t, s, active, other, expired, revoked)
	wantWebhooks(t, s, webhook("a"))
	wantEvents(t, s, end)
	// Whoever may make a change still can. A change that was made already needs no right.
	for _, step := range []struct {
		change string
		by     plantstore.Actor
	}{
		{"RevokeToken", actorOf(other)},
		{"RevokeToken", actorOf(other)},
		{"CreateToken", actorOf(active)},
		{"CreateToken", plantstore.Actor{Name: "issuer subject", Expires: now.Add(time.Hour)}},
		{"CreateWebhook", actorOf(active)},
		{"UpdateWebhook", actorOf(active)},
		{"UpdateWebhook", plantstore.Actor{}},
		{"DeleteWebhook", actorOf(active)},
	} {
		if err := changes[step.change](step.by); err != nil {
			t.Errorf("%s by %q: %v", step.change, step.by.Name, err)
		}
	}
}

// revokedTokenChangesNothingMore lets callers make changes with a token until they are
// refused. When it has been revoked, nothing may change any more.
func revokedTokenChangesNothingMore(t *testing.T, s *subject) {
	const callers, before, after = 8, 20, 20 // the revocation, of each caller's changes
	own := creator("own")
	own.Expires = time.Time{}
	addToken(t, s, own)
	addWebhooks(t, s, webhook("a"))
	increment := func(w *plantstore.Webhook) error { w.Epoch++; return nil }
	change := func(i int, id string) (err error) {
		switch i % 4 {
		case 0, 1:
			return s.CreateToken(t.Context(), token(id), actorOf(own))
		case 2:
			_, err = s.UpdateWebhook(t.Context(), "a", actorOf(own), increment)
			return err
		}
		if err = s.CreateWebhook(t.Context(), webhook(id), actorOf(own)); err != nil {
			return err
		}
		return s.DeleteWebhook(t.Context(), id, actorOf(own))
	}
	var revoked atomic.Bool
	var at state
	inParallel(t, callers+1, func(i int) (err error) {
		if i == callers {
			for n := range before {
				if err := s.CreateToken(t.Context(), token(fmt.Sprint("other ", n)), plantstore.Actor{Name: plantstore.Operator}); err != nil {
					return err
				}
			}
			if err := s.RevokeToken(t.Context(), own.Hash, noon, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				return err
			}
			at, err = stateOf(t, s)
			revoked.Store(true)
			return err
		}
		for n, late := 0, 0; late < after; n++ {
			if revoked.Load() {
				late++
			}
			switch err := change(i, fmt.Sprint(i, " ", n)); {
			case errors.Is(err, plantstore.ErrBadToken):
				return nil
			case err != nil:
				return err
			}
		}
		return errors.New("a revoked token was not refused")
	})
	if now, err := stateOf(t, s); err != nil || !reflect.DeepEqual(now, at) {
		t.Errorf("after the revocation the store was\n%+v, now it is\n%+v, %v", at, now, err)
	}
}

// revocationWaitsForAChange revokes a token while a change is being made with it.
func revocationWaitsForAChange(t *testing.T, s *subject) {
	own := creator("own")
	own.Expires = time.Time{}
	addToken(t, s, own)
	addWebhooks(t, s, webhook("a"))
	revoked := make(chan error, 1)
	returned := false // during the change
	_, err := s.UpdateWebhook(t.Context(), "a", actorOf(own), func(*plantstore.Webhook) error {
		go func() {
			revoked <- s.RevokeToken(t.Context(), own.Hash, noon, plantstore.Actor{Name: plantstore.Operator})
		}()
		select {
		case err := <-revoked:
			returned = true
			return err
		case <-time.After(100 * time.Millisecond): // enough to return, if nothing is in the way
			return nil
		}
	})
	if err == nil && returned {
		t.Fatal("a change was made after the revocation of its token had returned")
	}
	if err := errors.Join(err, <-revoked); err != nil {
		t.Fatal(err)
	}
}

// state is all that actors change.
type state struct {
	tokens   []plantstore.Token
	webhooks []plantstore.Webhook
	end      plantstore.Cursor
}

func stateOf(t tb, s plantstore.Store) (now state, err error) {
	if now.tokens, err = s.Tokens(t.Context()); err != nil {
		return now, err
	}
	if now.webhooks, err = s.Webhooks(t.Context()); err != nil {
		return now, err
	}
	page, err := s.Events(t.Context(), plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	now.end = page.Next
	return now, err
}
