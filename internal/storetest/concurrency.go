package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"plantstore"
)

var concurrentBehaviours = []behaviour{
	{"OneCreateWins", oneCreateWins},
	{"OneDeleteWins", oneDeleteWins},
	{"NoUpdateIsLost", noUpdateIsLost},
	{"BatchIsSeenWhole", batchIsSeenWhole},
}

// together calls do in n goroutines that begin at once, and waits for them all.
func together(t tb, n int, do func(i int) error) {
	t.Helper()
	begin := make(chan struct{})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-begin
			errs[i] = do(i)
		})
	}
	close(begin)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The size of a contest. Each contender has its own order of the places because
// their number is a power of two, and so has no factor in common with an odd one.
const contenders, places = 8, 64

// contest lets every contender apply a write of its own to each of the places,
// several in a batch. It returns who was not refused, by place, and fails unless
// the others were refused with the given error.
func contest(t tb, s plantstore.Store, refused error, write func(who, place int) plantstore.Write) [][]int {
	t.Helper()
	const size = 8
	results := make([][]plantstore.Result, contenders)
	together(t, contenders, func(who int) error {
		results[who] = make([]plantstore.Result, places)
		for start := 0; start < places; start += size {
			var batch []plantstore.Write
			var order []int
			for i := start; i < start+size; i++ {
				place := (i*(2*who+1) + who) % places
				order = append(order, place)
				batch = append(batch, write(who, place))
			}
			got, err := applyBatch(t.Context(), s, batch)
			if err != nil {
				return err
			}
			for i, place := range order {
				results[who][place] = got[i]
			}
		}
		return nil
	})
	winners := make([][]int, places)
	for who := range contenders {
		for place, r := range results[who] {
			switch {
			case r.Err == nil:
				winners[place] = append(winners[place], who)
			case !errors.Is(r.Err, refused):
				t.Fatalf("contender %d at %d: %s, want %v", who, place, showResult(r), refused)
			}
		}
	}
	return winners
}

func oneCreateWins(t *testing.T, s *subject) {
	entry := func(who, place int) plantstore.Plant {
		return tagged(plantstore.ID(place), "fern", fmt.Sprintf("contender %d", who))
	}
	winners := contest(t, s, plantstore.ErrIDTaken, func(who, place int) plantstore.Write {
		return create(entry(who, place))
	})
	var left []plantstore.Plant
	for place, won := range winners {
		if len(won) != 1 {
			t.Fatalf("id %d was created by %d contenders %d", place, len(won), won)
		}
		left = append(left, entry(won[0], place))
	}
	wantAll(t, s, left...)
	s.reopen(t)
	wantAll(t, s, left...)
}

func oneDeleteWins(t *testing.T, s *subject) {
	for place := range plantstore.ID(places) {
		grow(t, s, plant(place, "fern"))
	}
	winners := contest(t, s, plantstore.ErrNoPlant, func(_, place int) plantstore.Write {
		return remove(plantstore.ID(place))
	})
	for place, won := range winners {
		if len(won) != 1 {
			t.Fatalf("id %d was deleted by %d contenders %d", place, len(won), won)
		}
	}
	wantAll(t, s)
}

// noUpdateIsLost counts in a plant's name, each goroutine by reading it and
// replacing what it read.
func noUpdateIsLost(t *testing.T, s *subject) {
	const counters, turns = 4, 15
	grow(t, s, plant(1, "0"))
	together(t, counters, func(who int) error {
		for done := 0; done < turns; {
			current, err := s.Plant(t.Context(), 1)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(current.Name)
			if err != nil {
				return err
			}
			// The tag tells the goroutines apart: the same plant again would
			// be taken for a repetition.
			w := replace(tagged(1, strconv.Itoa(n+1), strconv.Itoa(who)))
			w.If = match(current.ETag())
			results, err := applyBatch(t.Context(), s, []plantstore.Write{w})
			switch {
			case err != nil:
				return err
			case results[0].Err == nil:
				done++
			case !errors.Is(results[0].Err, plantstore.ErrPrecondition):
				return fmt.Errorf("replace: %s", showResult(results[0]))
			}
		}
		return nil
	})
	got, err := s.Plant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.Itoa(counters * turns); got.Name != want {
		t.Fatalf("%s updates were counted, want %s", got.Name, want)
	}
}

// batchIsSeenWhole writes generations of plants, a batch each, while others look.
func batchIsSeenWhole(t *testing.T, s *subject) {
	const readers, generations = 4, 60
	grow(t, s, generation(0)...)
	done := make(chan struct{})
	together(t, 1+readers, func(who int) error {
		if who > 0 {
			return watchGenerations(t, s, generations-1, done)
		}
		defer close(done)
		for g := 1; g < generations; g++ {
			old := generation(g - 1)
			batch := []plantstore.Write{remove(old[len(old)-1].ID)}
			for _, p := range generation(g) {
				batch = append(batch, replace(p))
			}
			if _, err := applyBatch(t.Context(), s, batch); err != nil {
				return err
			}
		}
		return nil
	})
}

// generation returns the plants of a generation: all are named after it, and the
// last one has moved on from its id in the generation before.
func generation(g int) []plantstore.Plant {
	const size = 10
	var plants []plantstore.Plant
	for i := range plantstore.ID(size) {
		plants = append(plants, tagged(i, strconv.Itoa(g), "batch"))
	}
	return append(plants, tagged(plantstore.ID(size+g), strconv.Itoa(g), "batch"))
}

// watchGenerations reads until done, and once more. It fails on a generation
// that is not whole, on one that comes before one already seen, and unless it
// sees the last one at the end.
func watchGenerations(t tb, s plantstore.Store, last int, done <-chan struct{}) error {
	seen := 0
	for look := 0; ; look++ {
		over := isClosed(done)
		g, err := glimpse(t, s, look)
		if err != nil {
			return err
		}
		if g < seen {
			return fmt.Errorf("generation %d is seen after %d", g, seen)
		}
		if over && g != last {
			return fmt.Errorf("generation %d is seen after the last write, %d", g, last)
		}
		if over {
			return nil
		}
		seen = g
	}
}

// glimpse reads the plants, each look in another way, and returns their
// generation.
func glimpse(t tb, s plantstore.Store, look int) (int, error) {
	var plants []plantstore.Plant
	var err error
	whole := true
	switch look % 4 {
	case 0:
		plants, err = collect(s.Scan(t.Context(), plantstore.Query{}))
	case 1:
		plants, err = collect(s.Scan(t.Context(), plantstore.Query{Tag: plantstore.NewTag("batch")}))
	case 2:
		var page plantstore.Page
		page, err = s.List(t.Context(), plantstore.Query{Limit: 100})
		plants, whole = page.Plants, page.Next == nil
	case 3:
		plants, whole = make([]plantstore.Plant, 1), false
		plants[0], err = s.Plant(t.Context(), 0)
	}
	if err != nil {
		return 0, err
	}
	if len(plants) == 0 {
		return 0, errors.New("no plants are seen at all")
	}
	g, err := strconv.Atoi(plants[0].Name)
	if err != nil {
		return 0, err
	}
	want := generation(g)
	if !whole {
		want = want[:len(plants)]
	}
	if d := difference(plants, want); d != "" {
		return 0, fmt.Errorf("generation %d is not seen whole: %s", g, d)
	}
	return g, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
