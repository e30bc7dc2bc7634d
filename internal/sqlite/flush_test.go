package sqlite

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/storetest"
)

// comparison is a store and the model, which get the same writes. Generations are
// frozen and flushed all the time, because they are small.
type comparison struct {
	*rand.Rand
	path  string
	store *Store
	model *storetest.Model
}

const smallGeneration = 200

func newComparison(t *testing.T, seed uint64) *comparison {
	l := &comparison{Rand: rand.New(rand.NewPCG(seed, 0)), path: newPath(t), model: storetest.NewModel()}
	l.open(t)
	t.Cleanup(func() { mustClose(t, l.store) })
	return l
}

func (l *comparison) open(t *testing.T) {
	t.Helper()
	l.store = mustOpen(t, l.path, Serve)
	l.store.GenerationLimit.Rows = smallGeneration
}

// id returns one of a few thousand ids, adjacent and far apart, up to both ends of the
// range.
func (l *comparison) id() plantstore.ID {
	const ids = 20_000
	switch n := l.IntN(ids); n {
	case 0:
		return math.MinInt64
	case 1:
		return math.MaxInt64
	default:
		if n%2 == 0 {
			return plantstore.ID(n)
		}
		return plantstore.ID(n-ids/2) * 1_000_003
	}
}

func (l *comparison) plant() plantstore.Plant {
	p := plantstore.Plant{ID: l.id(), Name: fmt.Sprintf("plant %d", l.IntN(3))}
	switch n := l.IntN(8); n {
	case 0, 1:
	case 2, 3:
		p.Tag = plantstore.NewTag("")
	case 4, 5:
		p.Tag = plantstore.NewTag("t")
	default:
		p.Tag = plantstore.NewTag(fmt.Sprintf("t%d", l.IntN(500)))
	}
	return p
}

// creates returns creates in random order. About some of the plants exist already.
func (l *comparison) creates(t *testing.T, n, some int) []plantstore.Write {
	t.Helper()
	var batch []plantstore.Write
	for len(batch) < n {
		p := l.plant()
		if _, err := l.model.Plant(t.Context(), p.ID); err == nil && l.IntN(n) >= some {
			continue
		}
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: p})
	}
	return batch
}

// mixed returns writes of all kinds.
func (l *comparison) mixed(n int) []plantstore.Write {
	unflushed := l.unflushed(l.store)
	batch := make([]plantstore.Write, n)
	for i := range batch {
		op := []plantstore.Op{plantstore.Create, plantstore.Replace, plantstore.Delete}[l.IntN(3)]
		batch[i] = plantstore.Write{Op: op, Plant: l.plant()}
		if len(unflushed) > 0 && l.IntN(2) == 0 {
			batch[i].Plant.ID = unflushed[l.IntN(len(unflushed))].id
		}
	}
	return batch
}

// apply applies a batch to both, and compares the results.
func (l *comparison) apply(t *testing.T, batch []plantstore.Write) {
	t.Helper()
	want, err := l.model.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.store.Apply(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].Outcome != want[i].Outcome || !errors.Is(got[i].Err, want[i].Err) {
			t.Fatalf("write %d, %v: %v, want %v", i, batch[i], got[i], want[i])
		}
	}
}

// token creates a token in both, on behalf of the server or of a command that has the
// store open, too.
func (l *comparison) token(t *testing.T) {
	t.Helper()
	s := l.store
	if l.IntN(2) == 0 {
		s = mustOpen(t, l.path, Existing)
		defer mustClose(t, s)
	}
	token := newToken(fmt.Sprint(l.Uint64()))
	for _, store := range []plantstore.Store{l.model, s} {
		if err := store.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
			t.Fatal(err)
		}
	}
}

// compareLogs compares all events, which are all kept.
func (l *comparison) compareLogs(t *testing.T, s *Store) {
	t.Helper()
	var logs [2][]plantstore.Event
	for i, store := range []plantstore.Store{l.model, s} {
		q := plantstore.EventQuery{WithTokens: true, Limit: 1000}
		for more := true; more; {
			page, err := store.Events(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			logs[i] = append(logs[i], page.Events...)
			q.After, more = page.Next, page.More
		}
	}
	if len(logs[0]) != len(logs[1]) {
		t.Fatalf("the log has %d events, want %d", len(logs[1]), len(logs[0]))
	}
	for i, want := range logs[0] {
		got := logs[1][i]
		at, err := got.Cursor.Position()
		if err != nil || at.Seq != int64(i+1) || got.Type != want.Type || got.Plant != want.Plant || !reflect.DeepEqual(got.Token, want.Token) {
			t.Fatalf("event %d is %+v, %v, want %+v", i+1, got, err, want)
		}
	}
}

// compare compares everything that can be read.
func (l *comparison) compare(t *testing.T, s *Store) {
	t.Helper()
	compareSize(t, s)
	after := l.id()
	for _, q := range []plantstore.Query{
		{},
		{After: &after},
		{Tag: plantstore.NewTag("")},
		{Tag: plantstore.NewTag("t"), After: &after},
		{Tag: plantstore.NewTag("no such")},
		{Contains: "plant 1"},
		{Order: plantstore.ByIDDescending, After: &after},
		{Order: plantstore.ByIDDescending, Tags: []string{"t", "no such", ""}},
		{Tags: []string{"t", ""}, After: &after},
		{Order: plantstore.ByIDDescending, TagPrefix: new("t"), After: &after},
		{Tag: plantstore.NewTag(""), TagPrefix: new("t")},
		{Order: plantstore.ByIDDescending, Untagged: true},
		{Order: plantstore.ByName, Tags: []string{"t"}},
		{Order: plantstore.ByNameDescending},
	} {
		var want, got []plantstore.Plant
		for p, err := range l.model.Scan(t.Context(), q, nil) {
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, p.Plant)
		}
		for p, err := range s.Scan(t.Context(), q, nil) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, p.Plant)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%+v: %d plants, want %d", q, len(got), len(want))
		}
		q.Limit, q.Count = 1+l.IntN(50), q.After == nil
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Count && (page.Count == nil || *page.Count != plantstore.Count{Plants: len(want)}) {
			t.Fatalf("%+v: it counts %v, want %d", q, page.Count, len(want))
		}
		first, last := want[:min(len(want), q.Limit)], page.Next == nil && page.NextName == ""
		if !slices.EqualFunc(page.Plants, first, func(p plantstore.StoredPlant, want plantstore.Plant) bool { return p.Plant == want }) || last && len(want) > q.Limit || !last && len(want) <= q.Limit && !q.Untagged {
			t.Fatalf("%+v: a page of %d plants and then %v, want %d of %d", q, len(page.Plants), page.Next, len(first), len(want))
		}
	}
	for range 20 {
		id := l.id()
		want, wantErr := l.model.Plant(t.Context(), id)
		if got, err := s.Plant(t.Context(), id); got.Plant != want.Plant || !errors.Is(err, wantErr) {
			t.Fatalf("plant %d: %v and %v, want %v and %v", id, got, err, want, wantErr)
		}
	}
	storetest.CheckDetails(t, s)
	storetest.CheckHistories(t, s, 5)
	l.compareTags(t, s, "", 1+l.IntN(300))
	l.compareTags(t, s, "t4", 1+l.IntN(10))
	shared := mustOpen(t, s.path, Existing)
	l.compareTags(t, shared, "", 100)
	mustClose(t, shared)
	l.compareView(t, s)
	if problems, err := s.Check(t.Context()); err != nil || len(problems) > 0 {
		t.Fatalf("check: %v, %v", problems, err)
	}
}

// allTags returns the tags of all pages.
func allTags(t *testing.T, s plantstore.Store, prefix string, limit int) (all []plantstore.TagCount) {
	t.Helper()
	q := plantstore.TagQuery{Prefix: prefix, Limit: limit}
	for {
		page, err := s.Tags(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, page.Tags...); page.Next == "" {
			return all
		}
		q.From = page.Next
	}
}

func (l *comparison) compareTags(t *testing.T, s *Store, prefix string, limit int) {
	t.Helper()
	got, want := allTags(t, s, prefix, limit), allTags(t, l.model, prefix, math.MaxInt)
	if !slices.Equal(got, want) {
		t.Fatalf("the tags are %v, want %v", got, want)
	}
}

// compareView compares what the sqlite3 shell sees.
func (l *comparison) compareView(t *testing.T, s *Store) {
	t.Helper()
	want := 0
	for range l.model.Scan(t.Context(), plantstore.Query{}, nil) {
		want++
	}
	c := openRaw(t, s.path)
	defer c.Close()
	if got := text(t, c, "SELECT count(*) FROM plants", 0); got != fmt.Sprint(want) {
		t.Fatalf("the view has %s plants, want %d", got, want)
	}
	got := 0
	err := sqlitex.ExecuteTransient(c, "SELECT "+storedColumns+" FROM plants", &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
		got++
		p := rowStored(row)
		if want, err := s.Plant(t.Context(), p.ID); err != nil || want != p {
			return fmt.Errorf("the view has %v, want %v, %v", p, want, err)
		}
		return nil
	}})
	if err != nil || got != want {
		t.Fatalf("the view: %d of %d plants, %v", got, want, err)
	}
}

// compareSize compares the size of the log with the sum of its rows.
func compareSize(t *testing.T, s *Store) {
	t.Helper()
	if err := s.updateTrim(t.Context()); err != nil { // a command may have added rows
		t.Fatal(err)
	}
	stats, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := text(t, s.write.conn, "SELECT coalesce(sum("+rowSize+"), 0) FROM log", 0); fmt.Sprint(stats.Bytes) != want {
		t.Fatalf("the log has %s bytes, but Stats says %d", want, stats.Bytes)
	}
}

// copyFiles copies the files as they are, and returns the path of the copy.
func (l *comparison) copyFiles(t *testing.T) string {
	t.Helper()
	path := newPath(t)
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(l.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// asAfterAKill opens a copy of the files as they are, and compares that.
func (l *comparison) asAfterAKill(t *testing.T) {
	t.Helper()
	s := mustOpen(t, l.copyFiles(t), Serve)
	defer mustClose(t, s)
	if got, want := l.unflushed(s), l.unflushed(l.store); !slices.Equal(got, want) {
		t.Fatalf("%d plants are unflushed in the file, %d in memory", len(got), len(want))
	}
	l.compare(t, s)
}

// unflushed returns the newest state of every plant that is not flushed.
func (l *comparison) unflushed(s *Store) (all []plantState) {
	entries := s.unflushed.Load().From(memtable.FirstID, math.MaxInt64, new(plantstore.Query))
	for id, plant, ok := entries.Next(); ok; id, plant, ok = entries.Next() {
		if plant == nil {
			plant = &plantstore.StoredPlant{}
		}
		all = append(all, plantState{id, *plant})
	}
	return all
}

type plantState struct {
	id    plantstore.ID
	plant plantstore.StoredPlant // without an id if it was deleted
}

func TestUnflushedPlantsAreReadLikeOthers(t *testing.T) {
	var halves atomic.Int64 // how often some of a generation's tags were flushed when the store was read or reopened
	t.Cleanup(func() {
		if halves.Load() == 0 {
			t.Error("tags were never half flushed: the test covers too little")
		}
	})
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			l := newComparison(t, seed)
			flushes, peak := 0, 0
			for range 60 {
				frozen := l.store.unflushed.Load().Frozen
				action := l.IntN(12)
				if action > 6 && frozen != nil && l.store.write.progress.stored {
					halves.Add(1)
				}
				switch action {
				case 0, 1, 2, 3:
					l.apply(t, l.creates(t, 1+l.IntN(150), l.IntN(3)))
				case 4, 5:
					l.apply(t, l.mixed(1+l.IntN(200)))
				case 6:
					l.flush(t, 1+l.IntN(100))
				case 7:
					l.compare(t, l.store)
				case 8:
					l.asAfterAKill(t)
				case 9:
					mustClose(t, l.store)
					l.open(t)
				case 10, 11:
					l.token(t)
				}
				if now := l.store.unflushed.Load().Frozen; now != frozen && frozen != nil {
					flushes++
				}
				peak = max(peak, len(l.unflushed(l.store)))
			}
			l.compare(t, l.store)
			l.compareLogs(t, l.store)
			if flushes < 5 || peak < smallGeneration/2 {
				t.Errorf("%d generations were flushed, and at most %d plants were unflushed: the test covers too little", flushes, peak)
			}
		})
	}
}

// flush flushes n plants, as Run does when idle.
func (l *comparison) flush(t *testing.T, n int) {
	t.Helper()
	l.store.freezeRest()
	if err := l.store.withWriter(t.Context(), func(*writer) error { return l.store.flush(n, flushText) }); err != nil {
		t.Fatal(err)
	}
}

// The active generation never outgrows what is flushed, whatever the size of batches.
func TestFlushKeepsUpWithWrites(t *testing.T) {
	for _, size := range []int{1, 7, 50, 1000} {
		l := newComparison(t, 1)
		for range max(1, 3*smallGeneration/size) {
			l.apply(t, l.creates(t, size, 0))
			if n := l.store.unflushed.Load().Active.Size().Rows; n > smallGeneration+size {
				t.Fatalf("with batches of %d, the active generation has %d entries", size, n)
			}
		}
		l.compare(t, l.store)
	}
}

func TestIdleStoreFlushesEverything(t *testing.T) {
	l := newComparison(t, 1)
	l.apply(t, l.creates(t, 3*smallGeneration, 0))
	var deletes []plantstore.Write
	for _, e := range l.unflushed(l.store)[:smallGeneration] {
		deletes = append(deletes, plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: e.id}})
	}
	l.apply(t, deletes)
	for l.store.freezeRest() {
		l.flush(t, idleFlushSize)
	}
	if n := len(l.unflushed(l.store)); n > 0 {
		t.Errorf("%d plants are not flushed", n)
	}
	plants := text(t, l.store.write.conn, "SELECT count(*) FROM plants", 0)
	if stored := text(t, l.store.write.conn, "SELECT count(*) FROM stored", 0); stored != plants {
		t.Errorf("the table has %s of %s plants", stored, plants)
	}
	l.compare(t, l.store)
}

// A batch waits for part of an idle flush only, and while one is applied, none begins.
func TestIdleFlushEndsWhenABatchWaits(t *testing.T) {
	s := mustOpen(t, newPath(t), Serve)
	defer mustClose(t, s)
	var batch []plantstore.Write
	for i := range 3 * idleFlushSize {
		batch = append(batch, plantstore.Write{Op: plantstore.Create, Plant: plantstore.Plant{ID: plantstore.ID(i), Name: "fern"}})
	}
	if _, err := s.Apply(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	s.freezeRest()
	before := s.write.progress.left
	s.applying.Add(1)
	if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
		t.Fatal(err)
	}
	if flushed := before - s.write.progress.left; flushed != idleFlushSize {
		t.Errorf("it flushed %d plants while a batch waited, want %d", flushed, idleFlushSize)
	}
	before = s.write.progress.left
	s.lastWrite.Store(0)
	if _, err := s.idleFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.write.progress.left != before {
		t.Error("an idle flush began while a batch was applied")
	}
}

// A clock that is set back does not put off an idle flush until it has caught up.
func TestIdleFlushAfterTheClockWasSetBack(t *testing.T) {
	l := newComparison(t, 1)
	l.apply(t, l.creates(t, 10, 0))
	l.store.lastWrite.Store(time.Now().Add(time.Hour).UnixNano())
	if _, err := l.store.idleFlush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(l.unflushed(l.store)); n > 0 {
		t.Errorf("%d plants are not flushed", n)
	}
}

// A transaction that fails leaves memory as it was.
func TestFailedTransactionChangesNothing(t *testing.T) {
	l := newComparison(t, 2)
	for range 5 {
		l.apply(t, l.creates(t, 30, 0))
	}
	l.store.freezeRest()
	before, was := l.unflushed(l.store), *l.store.write
	failed := errors.New("failed")
	err := l.store.transaction(func(w *writer) error {
		_, err := w.apply(l.creates(t, 100, 0), l.store.unflushed.Load())
		return errors.Join(l.store.flush(100, flushText), err, failed)
	})
	if !errors.Is(err, failed) {
		t.Fatal(err)
	}
	if now := l.store.write; !slices.Equal(l.unflushed(l.store), before) || now.seq != was.seq || now.progress.next != was.progress.next || now.progress.nextTag != was.progress.nextTag || now.progress.left != was.progress.left {
		t.Error("memory has changed")
	}
	l.asAfterAKill(t)
	l.apply(t, l.creates(t, 300, 0))
	l.asAfterAKill(t)
}

// A store whose log lacks a row that is not flushed is damaged.
func TestMissingLogRowIsDetected(t *testing.T) {
	for name, damage := range map[string]string{
		"a row":     "DELETE FROM log WHERE seq % 7 = 0",
		"the state": "DELETE FROM log_state",
	} {
		t.Run(name, func(t *testing.T) {
			l := newComparison(t, 5)
			l.store.GenerationLimit.Rows = generationSize
			for range 3 {
				l.apply(t, l.creates(t, 100, 0))
			}
			mustClose(t, l.store)
			runRaw(t, l.path, damage)
			l.store = mustOpen(t, l.path, Serve)
			if problems, err := openStore(t, l.path, Existing).Check(t.Context()); err == nil && len(problems) == 0 {
				t.Error("check finds nothing")
			}
			if _, err := l.store.Apply(t.Context(), l.creates(t, 1, 0)); !errors.Is(err, plantstore.ErrDamaged) {
				t.Errorf("a write to a damaged store: %v", err)
			}
		})
	}
}

// Readers see a consistent snapshot while generations are frozen and flushed.
func TestSnapshotIsConsistent(t *testing.T) {
	s := openStore(t, newPath(t), Serve)
	s.GenerationLimit.Rows = 50
	const plants = 40
	write := func(round int) {
		batch := make([]plantstore.Write, plants)
		for i := range batch {
			batch[i] = plantstore.Write{Op: plantstore.Replace, Plant: plantstore.Plant{ID: plantstore.ID(i), Name: fmt.Sprint(round)}}
		}
		if _, err := s.Apply(t.Context(), batch); err != nil {
			t.Error(err)
		}
	}
	write(0)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				page, err := s.List(t.Context(), plantstore.Query{Limit: 1000})
				if err != nil || len(page.Plants) != plants {
					t.Errorf("%d plants, %v", len(page.Plants), err)
					return
				}
				for _, p := range page.Plants {
					if p.Name != page.Plants[0].Name {
						t.Errorf("one of round %s and one of round %s", page.Plants[0].Name, p.Name)
						return
					}
				}
			}
		})
	}
	for round := range 100 {
		write(round + 1)
	}
	close(stop)
	readers.Wait()
}

// The view plants has exactly the plants that the log implies, while others write and
// generations are frozen and flushed, as seen from the sqlite3 shell.
func TestViewIsExactUnderLoad(t *testing.T) {
	path := newPath(t)
	s := openStore(t, path, Serve)
	s.GenerationLimit.Rows = 50
	const batches, wantFlushes = 100, 10
	var seen atomic.Int64 // flushes
	deadline := time.Now().Add(2 * time.Minute)
	var writers sync.WaitGroup
	for w := range uint64(2) {
		writers.Go(func() {
			random := rand.New(rand.NewPCG(w, 0))
			for n := 0; n < batches || seen.Load() < wantFlushes && time.Now().Before(deadline); n++ {
				batch := make([]plantstore.Write, 1+random.IntN(20))
				for i := range batch {
					op := []plantstore.Op{plantstore.Create, plantstore.Create, plantstore.Replace, plantstore.Delete}[random.IntN(4)]
					batch[i] = plantstore.Write{Op: op, Plant: plantstore.Plant{ID: plantstore.ID(random.IntN(1000)), Name: fmt.Sprint(random.Int())}}
				}
				if _, err := s.Apply(t.Context(), batch); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	written := make(chan struct{})
	go func() { writers.Wait(); close(written) }()
	shell, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer shell.Close()
	flushed := map[string]bool{}
	for end := false; !end; {
		select {
		case <-written:
			end = true
		default:
		}
		// One statement is one snapshot.
		row := strings.Fields(text(t, shell, `SELECT (SELECT count(*) FROM plants) || ' ' ||
			(SELECT total((type = 1) - (type = 3)) FROM log) || ' ' || (SELECT flushed FROM log_state)`, 0))
		if row[0]+".0" != row[1] {
			t.Errorf("the view has %s plants, the log implies %s; flushed up to %s", row[0], row[1], row[2])
		}
		flushed[row[2]] = true
		seen.Store(int64(len(flushed)))
	}
	if len(flushed) < wantFlushes {
		t.Errorf("only %d flushes were seen", len(flushed))
	}
	if differ := text(t, shell, `SELECT count(*) FROM (SELECT id, name, tag FROM plants EXCEPT
		SELECT id, name, tag FROM log WHERE type <> 3 AND seq IN (SELECT max(seq) FROM log GROUP BY id))`, 0); differ != "0" {
		t.Errorf("%s plants in the view are not as the log implies", differ)
	}
}

// Large plants are flushed before there are many of them, a few at a time.
func TestLargePlantsAreFlushedByTheirSize(t *testing.T) {
	l := newComparison(t, 6)
	const size, generationText, flushText = 64 << 10, 4 << 20, 256 << 10
	l.store.GenerationLimit.Rows, l.store.GenerationLimit.Text = generationSize, generationText
	name := strings.Repeat("x", size)
	for id := range plantstore.ID(2 * generationText / size) {
		l.apply(t, []plantstore.Write{{Plant: plantstore.Plant{ID: id, Name: name}}})
		if text := l.store.unflushed.Load().Active.Size().Text; text > generationText+size {
			t.Fatalf("after %d plants, %d bytes are not frozen", id+1, text)
		}
	}
	left := l.store.write.progress.left
	if left < 20 {
		t.Fatalf("only %d plants are to be flushed", left)
	}
	if err := l.store.withWriter(t.Context(), func(*writer) error { return l.store.flush(1000, flushText) }); err != nil {
		t.Fatal(err)
	}
	if flushed := left - l.store.write.progress.left; flushed != flushText/size {
		t.Errorf("%d plants were flushed at once, want %d", flushed, flushText/size)
	}
	if n := text(t, l.store.write.conn, "SELECT count(*) FROM plants", 0); n != fmt.Sprint(2*generationText/size) {
		t.Errorf("the view has %s plants", n)
	}
}

// Rows that are to be trimmed are flushed soon, although the generation is not full.
func TestRowsToBeTrimmedAreFlushedSoon(t *testing.T) {
	for name, keep := range map[string]func(*Store){
		"age":  func(s *Store) { s.KeepLog(time.Nanosecond, 0) },
		"size": func(s *Store) { s.KeepLog(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newComparison(t, 7)
			l.store.GenerationLimit.Rows = generationSize
			keep(l.store)
			for range 40 {
				l.apply(t, l.creates(t, 50, 0))
				if err := l.store.updateTrim(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if rows := l.store.write.seq - l.store.write.trimmed; rows > 500 {
				t.Errorf("the log has %d of 2000 rows", rows)
			}
			l.compare(t, l.store)
		})
	}
}

// A reader does not see a transaction that is in progress, whatever becomes of it.
func TestPlantIsReadWithoutTransactionsInProgress(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		for _, deleted := range []bool{false, true} {
			t.Run(fmt.Sprintf("flushed %t, deleted %t", flushed, deleted), func(t *testing.T) {
				s := openStore(t, newPath(t), Serve)
				create(t, s, fern(0))
				for flushed && s.freezeRest() {
					if err := s.withWriter(t.Context(), s.flushWhileIdle); err != nil {
						t.Fatal(err)
					}
				}
				failed := []memtable.Change{{ID: 0, Seq: s.write.seq + 1, Deleted: deleted}}
				active := s.unflushed.Load().Active
				active.Add(failed)
				wantPlant(t, s, fern(0))
				active.Remove(failed)
				create(t, s, fern(2)) // its row
				wantPlant(t, s, fern(0))
			})
		}
	}
}

// A statement that has inserted large plants does not keep them: stepped again, it has no values.
func TestInsertKeepsNoLargeValues(t *testing.T) {
	l := newComparison(t, 11)
	s := l.store
	name := strings.Repeat("x", maxKept)
	l.apply(t, []plantstore.Write{{Plant: plantstore.Plant{ID: 1, Name: name}}, {Plant: plantstore.Plant{ID: 2, Name: name}}})
	l.flush(t, 3)
	for table, statements := range map[string]batched{"log": s.write.intoLog, "stored": s.write.intoStored} {
		err := s.transaction(func(*writer) error { return run(statements[1], 0) })
		if sqlite.ErrCode(err) != sqlite.ResultConstraintNotNull {
			t.Errorf("%s: error %v, want that a value is NULL", table, err)
		}
	}
}
