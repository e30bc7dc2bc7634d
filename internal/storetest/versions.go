package storetest

import (
	"fmt"
	"testing"

	"plantstore"
)

var versionBehaviours = []behaviour{
	{"Versions/each change makes one", changesMakeVersions},
	{"Versions/of a batch", versionsOfABatch},
	{"Versions/one of many wins", oneOfManyWins},
}

// CheckDetails compares the versions and times of plants with the log, except of those that were
// created before the events that it keeps: a plant's version is that of its last event, and its
// times are those of the events that created and last changed it.
func CheckDetails(t tb, s plantstore.Store) {
	t.Helper()
	want := map[plantstore.ID]plantstore.StoredPlant{}
	seen := map[string]bool{}
	events, _ := follow(t, s, "")
	for _, e := range events {
		if !e.Type.OfPlant() {
			continue
		}
		if key := fmt.Sprint(e.Plant.ID, e.Version); seen[key] || e.Version.Updated() != e.Time {
			t.Fatalf("%s of plant %d at %s has the version %+v, which another event has: %t", e.Type, e.Plant.ID, e.Time, e.Version, seen[key])
		} else {
			seen[key] = true
		}
		p := plantstore.StoredPlant{Plant: e.Plant, Version: e.Version, Created: e.Version.Time}
		switch e.Type {
		case plantstore.PlantReplaced:
			before, ok := want[p.ID]
			if !ok {
				continue
			}
			p.Created = before.Created
		case plantstore.PlantDeleted:
			delete(want, p.ID)
			continue
		}
		want[p.ID] = p
	}
	trimmed := len(events) == 0
	if !trimmed {
		first, err := events[0].Cursor.Position()
		trimmed = err != nil || first.Seq > 1
	}
	compare := func(how string, got plantstore.StoredPlant, err error) {
		if _, ok := want[got.ID]; !ok && trimmed {
			return
		}
		if err != nil || got != want[got.ID] {
			t.Fatalf("%s: got %+v, %v, want %+v", how, got, err, want[got.ID])
		}
	}
	q := plantstore.Query{Details: true, Limit: 3}
	n := 0
	for p, err := range s.Scan(t.Context(), q, nil) {
		compare("Scan", p, err)
		if n++; n%(1+len(want)/50) != 0 {
			continue
		}
		one, err := s.Plant(t.Context(), p.ID)
		compare("Plant", one, err)
		if tag, ok := p.Tag.Text(); ok {
			page, err := s.List(t.Context(), plantstore.Query{Details: true, Tag: plantstore.NewTag(tag), Limit: 1})
			if err != nil || len(page.Plants) != 1 {
				t.Fatalf("List: %v, %v", page, err)
			}
			compare("List with a tag", page.Plants[0], nil)
		}
	}
	if n != len(want) && !trimmed {
		t.Fatalf("Scan: %d plants, want %d", n, len(want))
	}
	page, err := s.List(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range page.Plants {
		compare("List", p, nil)
	}
}

// changesMakeVersions changes a plant, also back to what it was, and deletes it and creates it
// again. A write that changes nothing makes no version.
func changesMakeVersions(t *testing.T, s *subject) {
	mustCreate(t, s, plant(1, "a"), plant(2, "other"))
	seen := map[plantstore.Version]bool{}
	var last plantstore.StoredPlant
	for i, st := range []step{
		{create(plant(1, "a")), unchanged},
		{replace(plant(1, "b")), replaced},
		{replace(plant(1, "b")), unchanged},
		{replace(plant(1, "a")), replaced},
		{create(plant(1, "b")), idTaken},
		{remove(1), deleted},
		{create(plant(1, "a")), created},
		{replace(tagged(1, "a", "")), replaced},
	} {
		if i%2 == 1 {
			s.reopen(t)
		}
		apply(t, s, st)
		if st.want == deleted {
			continue
		}
		now, err := s.Plant(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		changed := st.want == created || st.want == replaced
		if changed == seen[now.Version] && i > 0 || !changed && i > 0 && now != last {
			t.Fatalf("%s: version %s, after %s", showWrite(st.write), now.Version, last.Version)
		}
		seen[now.Version], last = true, now
	}
	CheckDetails(t, s)
	s.reopen(t)
	CheckDetails(t, s)
}

// versionsOfABatch changes one plant several times in a batch. Each result has a version of its
// own, and the last is the plant's.
func versionsOfABatch(t *testing.T, s *subject) {
	mustCreate(t, s, plant(7, "other"))
	for _, batch := range [][]plantstore.Write{
		{create(plant(1, "a")), create(plant(2, "b")), create(plant(1, "a")), create(plant(3, "c"))},
		{replace(plant(1, "b")), replace(plant(4, "d")), replace(plant(1, "a")), replace(plant(1, "a")), remove(2)},
		{remove(1), create(plant(1, "a")), create(plant(2, "b")), replace(plant(2, "a")), remove(3), create(plant(3, "c"))},
		{create(plant(5, "e")), remove(5), create(plant(6, "f")), remove(7)},
	} {
		results, err := applyBatch(t.Context(), s, batch)
		if err != nil {
			t.Fatal(err)
		}
		last := map[plantstore.ID]plantstore.Version{}
		owner := map[plantstore.Version]int{}
		for i, r := range results {
			if r.Err != nil {
				t.Fatalf("%s: %v", showWrite(batch[i]), r.Err)
			}
			id := batch[i].Plant.ID
			switch before, ok := owner[r.Version]; {
			case r.Outcome == plantstore.Deleted:
				delete(last, id)
				continue
			case r.Outcome == plantstore.Unchanged && ok && batch[before].Plant.ID == id && last[id] == r.Version:
			case ok, r.Outcome == plantstore.Unchanged:
				t.Fatalf("%s, %s: version %s is also that of write %d", showWrite(batch[i]), showResult(r), r.Version, before)
			}
			owner[r.Version], last[id] = i, r.Version
		}
		for id, want := range last {
			if got, err := s.Plant(t.Context(), id); err != nil || got.Version != want {
				t.Fatalf("plant %d has the version %s, want %s (%v)", id, got.Version, want, err)
			}
		}
		CheckDetails(t, s)
	}
}

// oneOfManyWins has several writers replace the same versions by the same plants.
func oneOfManyWins(t *testing.T, s *subject) {
	tags := make([]plantstore.ETag, contested)
	for id := range tags {
		mustCreate(t, s, plant(plantstore.ID(id), "before"))
		found, err := s.Plant(t.Context(), plantstore.ID(id))
		if err != nil {
			t.Fatal(err)
		}
		tags[id] = found.ETag()
	}
	winners := contest(t, s, plantstore.ErrPrecondition, func(_, id int) plantstore.Write {
		w := replace(plant(plantstore.ID(id), "after"))
		w.If = ifMatch(tags[id])
		return w
	})
	for id, won := range winners {
		if len(won) != 1 {
			t.Errorf("plant %d was replaced by %d writers", id, len(won))
		}
	}
	CheckDetails(t, s)
}
