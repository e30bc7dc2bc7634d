package storetest

import (
	"errors"
	"flag"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"plantstore"
)

// checkHistories applies the same random histories to fresh stores and to the model,
// and compares all results. rapid prints how to reproduce a failure.
func checkHistories(t *testing.T, fresh func(t *testing.T) (open func() plantstore.Store)) {
	limitChecks(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := &history{s: start(rt, fresh(t)), model: NewModel()}
		rt.Repeat(map[string]func(*rapid.T){
			"apply":   h.apply,
			"read":    h.read,
			"token":   h.token,
			"webhook": h.webhook,
			"reopen":  h.reopen,
		})
		h.compare(rt)
	})
}

// limitChecks lowers rapid's default number of checks to what a store can do within
// seconds under the race detector. An explicit -rapid.checks is respected.
func limitChecks(t *testing.T) {
	const byDefault, limit = "100", "20"
	checks := flag.Lookup("rapid.checks").Value
	if checks.String() != byDefault {
		return
	}
	set := func(n string) {
		if err := checks.Set(n); err != nil {
			t.Fatal(err)
		}
	}
	set(limit)
	t.Cleanup(func() { set(byDefault) })
}

// history is a sequence of operations on a store and the model.
type history struct {
	s     *subject
	model *Model
	known []versionPair
}

// versionPair is a version in the model, and the same one in the store.
type versionPair struct{ model, store plantstore.Version }

func (h *history) compare(t *rapid.T) {
	wantScan(t, h.s, plantstore.Query{}, h.found(t, plantstore.Query{}))
	wantTags(t, h.s, "w")
	wantTokens(t, h.s, h.tokens(t)...)
	h.compareWebhooks(t)
	events, _ := follow(t, h.model, "")
	var changes []change
	for _, e := range events {
		changes = append(changes, changeOf(e))
	}
	wantEvents(t, h.s, "", changes...)
	CheckDetails(t, h.s)
	h.compareHistogram(t)
	h.compareBacklogs(t)
	got, err := h.s.Stats(t.Context())
	want, modelErr := h.model.Stats(t.Context())
	if err != nil || modelErr != nil || got.Plants != want.Plants || got.Events != want.Events || got.LastSeq != want.LastSeq || got.Oldest.IsZero() != want.Oldest.IsZero() {
		t.Fatalf("Stats: got %+v, %v, want %+v, %v", got, err, want, modelErr)
	}
}

// compareHistogram compares a random histogram, whose bounds are near events, with the count.
func (h *history) compareHistogram(t *rapid.T) {
	events, _ := follow(t, h.s, "")
	wantNewest(t, h.s, "", events)
	wantHistories(t, h.s, events, anyID.Draw(t, "id"), anyID.Draw(t, "another id"))
	at := time.Now()
	if len(events) > 0 {
		at = rapid.SampledFrom(events).Draw(t, "event").Time
	}
	near := rapid.Custom(func(t *rapid.T) time.Duration {
		unit := rapid.SampledFrom([]time.Duration{time.Nanosecond, time.Microsecond, time.Millisecond, time.Hour}).Draw(t, "unit")
		return time.Duration(rapid.IntRange(0, 2000).Draw(t, "distance")) * unit
	})
	q := plantstore.HistogramQuery{Since: at.Add(-near.Draw(t, "since")), Until: at.Add(near.Draw(t, "until"))}
	q.Buckets = rapid.IntRange(1, plantstore.MaxBuckets).Draw(t, "buckets")
	wantHistogram(t, h.s, events, q)
}

func (h *history) compareBacklogs(t *rapid.T) {
	events, end := follow(t, h.s, "")
	if len(events) > 0 {
		end = rapid.SampledFrom(events).Draw(t, "position").Cursor
	}
	wantBacklogs(t, h.s, events, end)
}

func (h *history) apply(t *rapid.T) {
	batch := rapid.SliceOfN(anyWrite, 0, 8).Draw(t, "batch")
	inModel, inStore := make([]plantstore.Write, len(batch)), make([]plantstore.Write, len(batch))
	for i, w := range batch {
		inModel[i], inStore[i] = w, w
		if rapid.Bool().Draw(t, "conditional") {
			inModel[i].If, inStore[i].If = h.condition(t)
		}
	}
	want, err := h.model.Apply(t.Context(), inModel)
	if err != nil {
		t.Fatalf("the model: %v", err)
	}
	got, err := applyBatch(t.Context(), h.s, inStore)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range inStore {
		t.Logf("%s: %s", showWrite(w), showResult(want[i]))
		if !sameResult(got[i], want[i]) {
			t.Fatalf("got %s", showResult(got[i]))
		}
		if got[i].Err == nil && got[i].Outcome != plantstore.Deleted {
			h.known = append(h.known, versionPair{want[i].Version, got[i].Version})
		}
	}
}

// condition returns a condition for the model, and the same one for the store.
func (h *history) condition(t *rapid.T) (inModel, inStore *plantstore.Condition) {
	tags := func(name string) (inModel, inStore []plantstore.ETag) {
		for range rapid.IntRange(0, 3).Draw(t, name) {
			if len(h.known) == 0 || rapid.IntRange(0, 3).Draw(t, "any") == 0 {
				inModel, inStore = append(inModel, plantstore.AnyETag), append(inStore, plantstore.AnyETag)
				continue
			}
			// Mostly one of the last.
			i := len(h.known) - 1 - rapid.IntRange(0, len(h.known)-1).Draw(t, "version")
			inModel, inStore = append(inModel, h.known[i].model.ETag()), append(inStore, h.known[i].store.ETag())
		}
		return inModel, inStore
	}
	inModel, inStore = new(plantstore.Condition), new(plantstore.Condition)
	inModel.Match, inStore.Match = tags("match")
	inModel.NoneMatch, inStore.NoneMatch = tags("none match")
	return inModel, inStore
}

func (h *history) read(t *rapid.T) {
	id := anyID.Draw(t, "id")
	if p, err := h.model.Plant(t.Context(), id); err == nil {
		wantPlants(t, h.s, p.Plant)
	} else {
		wantNoPlants(t, h.s, id)
	}
	q := anyQuery.Draw(t, "query")
	found := h.found(t, q)
	wantScan(t, h.s, q, found)
	wantPages(t, h.s, q, found)
	wantTags(t, h.s)
}

func (h *history) found(t *rapid.T, q plantstore.Query) []plantstore.Plant {
	found, err := collect(h.model.Scan(t.Context(), q, nil))
	if err != nil {
		t.Fatalf("the model: %v", err)
	}
	return found
}

func (h *history) token(t *rapid.T) {
	tk := token(rapid.SampledFrom([]string{"ci", "laptop", "\x00"}).Draw(t, "token"))
	if rapid.Bool().Draw(t, "creates tokens") {
		tk.Scopes = plantstore.AllScopes()
	}
	by := rapid.SampledFrom([]string{"0b9b2822416d", plantstore.Operator}).Draw(t, "by")
	at := noon.Add(time.Duration(rapid.IntRange(-4, 4).Draw(t, "half seconds")) * time.Second / 2)
	_, err := h.model.Token(t.Context(), tk.Hash)
	known := err == nil
	switch action := rapid.SampledFrom([]string{"create", "first", "revoke", "touch"}).Draw(t, "token action"); {
	case action == "create" && known:
		t.Skip("the contract does not say what happens to an existing token")
	case action == "create":
		addToken(t, h.model, tk)
		addToken(t, h.s, tk)
	case action == "first":
		first, err := h.model.CreateFirstToken(t.Context(), tk)
		if err != nil {
			t.Fatalf("the model: %v", err)
		}
		addFirstToken(t, h.s, tk, first)
	case action == "revoke":
		want, got := h.model.RevokeToken(t.Context(), tk.Hash, at, plantstore.Actor{Name: by}), h.s.RevokeToken(t.Context(), tk.Hash, at, plantstore.Actor{Name: by})
		if !errors.Is(got, want) {
			t.Fatalf("RevokeToken(%q): error %v, want %v", tk.Name, got, want)
		}
	case action == "touch":
		used := map[plantstore.TokenHash]time.Time{tk.Hash: at}
		touch(t, h.model, used)
		touch(t, h.s, used)
	}
}

func (h *history) tokens(t *rapid.T) []plantstore.Token {
	tokens, err := h.model.Tokens(t.Context())
	if err != nil {
		t.Fatalf("the model: %v", err)
	}
	return tokens
}

func (h *history) webhook(t *rapid.T) {
	id := rapid.SampledFrom([]string{"a", "b", "\x00"}).Draw(t, "webhook")
	n := rapid.Int64Range(0, 2).Draw(t, "n") // 0 changes nothing
	change := func(w *plantstore.Webhook) error {
		w.Epoch += n
		w.Progress = progress(int(w.Epoch))
		return nil
	}
	_, err := h.model.Deliveries(t.Context(), id)
	known := err == nil
	var do func(s plantstore.Store) error
	switch action := rapid.SampledFrom([]string{"create", "update", "save", "delete", "deliveries"}).Draw(t, "webhook action"); {
	case action == "create" && known:
		t.Skip("the contract does not say what happens to an existing webhook")
	case action == "create":
		do = func(s plantstore.Store) error { return s.CreateWebhook(t.Context(), webhook(id), plantstore.Actor{}) }
	case action == "update":
		do = func(s plantstore.Store) error {
			_, err := s.UpdateWebhook(t.Context(), id, plantstore.Actor{}, change)
			return err
		}
	case action == "save":
		do = func(s plantstore.Store) error { return s.SaveWebhook(t.Context(), id, change) }
	case action == "delete":
		do = func(s plantstore.Store) error { return s.DeleteWebhook(t.Context(), id, plantstore.Actor{}) }
	case action == "deliveries":
		do = func(s plantstore.Store) error { return s.SaveDeliveries(t.Context(), id, deliveries(int(n))) }
	}
	if want, got := do(h.model), do(h.s); !errors.Is(got, want) {
		t.Fatalf("webhook %q: error %v, want %v", id, got, want)
	}
	h.compareWebhooks(t)
}

func (h *history) compareWebhooks(t *rapid.T) {
	hooks, err := h.model.Webhooks(t.Context())
	if err != nil {
		t.Fatalf("the model: %v", err)
	}
	wantWebhooks(t, h.s, hooks...)
	for _, w := range hooks {
		attempts, err := h.model.Deliveries(t.Context(), w.ID)
		if err != nil {
			t.Fatalf("the model: %v", err)
		}
		wantDeliveries(t, h.s, w.ID, attempts)
	}
}

// reopen closes and reopens the store. It does so rarely, because that takes longer
// than everything else.
func (h *history) reopen(t *rapid.T) {
	if rapid.IntRange(0, 7).Draw(t, "skip") > 0 {
		t.Skip("not this time")
	}
	h.s.reopen(t)
	touchAgain(t, h.s, h.tokens(t))
	h.compare(t)
}

// The building blocks of histories. There are so few ids, names and tags that writes
// affect each other.
var (
	anyID = rapid.SampledFrom([]plantstore.ID{
		math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 2, math.MaxInt64 - 1, math.MaxInt64,
	})
	anyTag = rapid.SampledFrom([]plantstore.Tag{
		{}, plantstore.NewTag(""), plantstore.NewTag("wild"), plantstore.NewTag("wilder"),
	})
	anyPlant = rapid.Custom(func(t *rapid.T) plantstore.Plant {
		return plantstore.Plant{
			ID:   anyID.Draw(t, "id"),
			Name: rapid.SampledFrom([]string{"fern", "Fern", "\x00"}).Draw(t, "name"),
			Tag:  anyTag.Draw(t, "tag"),
		}
	})
	anyWrite = rapid.Custom(func(t *rapid.T) plantstore.Write {
		w := plantstore.Write{
			Op:    rapid.SampledFrom([]plantstore.Op{plantstore.Create, plantstore.Replace, plantstore.Delete, plantstore.Patch}).Draw(t, "op"),
			Plant: anyPlant.Draw(t, "plant"),
			By:    rapid.SampledFrom([]string{"0b9b2822416d", "7f469553add9"}).Draw(t, "by"),
		}
		if w.Op == plantstore.Patch {
			w.KeepName, w.KeepTag = rapid.Bool().Draw(t, "keeps its name"), rapid.Bool().Draw(t, "keeps its tag")
			w.MaxText = rapid.Uint32Range(0, 8).Draw(t, "max text")
		}
		return w
	})
	anyQuery = rapid.Custom(func(t *rapid.T) plantstore.Query {
		q := plantstore.Query{
			Tag:      anyTag.Draw(t, "tag"),
			Contains: rapid.SampledFrom([]string{"", "FER", "n", "\x00", "oak"}).Draw(t, "contains"),
			Limit:    rapid.IntRange(1, 5).Draw(t, "limit"),
		}
		if rapid.Bool().Draw(t, "more tags") {
			q.Tags = rapid.SliceOfN(rapid.SampledFrom([]string{"", "wild", "wilder", "oak"}), 0, 3).Draw(t, "tags")
			q.Untagged = rapid.Bool().Draw(t, "untagged")
			if rapid.Bool().Draw(t, "with prefix") {
				q.TagPrefix = new(rapid.SampledFrom([]string{"", "wi", "wilde", "x"}).Draw(t, "tag prefix"))
			}
		}
		q.Order = rapid.SampledFrom(append(plantstore.Orders(), "")).Draw(t, "order")
		if rapid.IntRange(0, 3).Draw(t, "of ids") == 0 {
			q = plantstore.Query{Limit: q.Limit}
			q.IDs = rapid.SliceOfDistinct(anyID, rapid.ID).Draw(t, "ids")
			slices.Sort(q.IDs)
		}
		if rapid.Bool().Draw(t, "continued") && q.Order.ByName() {
			q.AfterName = namePosition(anyPlant.Draw(t, "after")).Cursor()
		} else if rapid.Bool().Draw(t, "continued") {
			q.After = new(anyID.Draw(t, "after"))
		}
		return q
	})
)
