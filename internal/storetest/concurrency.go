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
	{"BatchIsAtomic", batchIsAtomic},
}

// inParallel calls do in n goroutines that start at once, and waits for all of them.
func inParallel(t tb, n int, do func(i int) error) {
	t.Helper()
	start := make(chan struct{})
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// The size of a contest. Each contender goes through the ids in an order of its own:
// their number is a power of two, which has no factor in common with an odd step.
const contenders, contested = 8, 64

// contest lets every contender apply its own write to each of the contested ids,
// several in a batch. It returns the winners by id, and fails unless all other writes
// were refused with the given error.
func contest(t tb, s plantstore.Store, refused error, write func(contender, id int) plantstore.Write) [][]int {
	t.Helper()
	const size = 8
	results := make([][]plantstore.Result, contenders)
	inParallel(t, contenders, func(contender int) error {
		results[contender] = make([]plantstore.Result, contested)
		for start := 0; start < contested; start += size {
			var batch []plantstore.Write
			var order []int
			for i := start; i < start+size; i++ {
				id := (i*(2*contender+1) + contender) % contested
				order = append(order, id)
				batch = append(batch, write(contender, id))
			}
			got, err := applyBatch(t.Context(), s, batch)
			if err != nil {
				return err
			}
			for i, id := range order {
				results[contender][id] = got[i]
			}
		}
		return nil
	})
	winners := make([][]int, contested)
	for contender := range contenders {
		for id, r := range results[contender] {
			switch {
			case r.Err == nil:
				winners[id] = append(winners[id], contender)
			case !errors.Is(r.Err, refused):
				t.Fatalf("contender %d, id %d: %s, want %v", contender, id, showResult(r), refused)
			}
		}
	}
	return winners
}

func oneCreateWins(t *testing.T, s *subject) {
	entry := func(contender, id int) plantstore.Plant {
		return tagged(plantstore.ID(id), "fern", fmt.Sprintf("contender %d", contender))
	}
	winners := contest(t, s, plantstore.ErrIDTaken, func(contender, id int) plantstore.Write {
		return create(entry(contender, id))
	})
	var left []plantstore.Plant
	for id, won := range winners {
		if len(won) != 1 {
			t.Fatalf("id %d was created by %d contenders %d", id, len(won), won)
		}
		left = append(left, entry(won[0], id))
	}
	wantAll(t, s, left...)
	s.reopen(t)
	wantAll(t, s, left...)
}

func oneDeleteWins(t *testing.T, s *subject) {
	for id := range plantstore.ID(contested) {
		mustCreate(t, s, plant(id, "fern"))
	}
	winners := contest(t, s, plantstore.ErrNoPlant, func(_, id int) plantstore.Write {
		return remove(plantstore.ID(id))
	})
	for id, won := range winners {
		if len(won) != 1 {
			t.Fatalf("id %d was deleted by %d contenders %d", id, len(won), won)
		}
	}
	wantAll(t, s)
}

// noUpdateIsLost has several goroutines increment a counter in a plant's name, each by
// reading the plant and replacing what it read.
func noUpdateIsLost(t *testing.T, s *subject) {
	const counters, increments = 4, 15
	mustCreate(t, s, plant(1, "0"))
	inParallel(t, counters, func(int) error {
		for done := 0; done < increments; {
			current, err := s.Plant(t.Context(), 1)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(current.Name)
			if err != nil {
				return err
			}
			w := replace(plant(1, strconv.Itoa(n+1)))
			w.If = ifMatch(current.ETag())
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
	if want := strconv.Itoa(counters * increments); got.Name != want {
		t.Fatalf("%s updates were counted, want %s", got.Name, want)
	}
}

// batchIsAtomic writes generations of plants, one batch each, while others read.
func batchIsAtomic(t *testing.T, s *subject) {
	const readers, generations = 4, 60
	mustCreate(t, s, generation(0)...)
	done := make(chan struct{})
	inParallel(t, 1+readers, func(i int) error {
		if i > 0 {
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

// generation returns the plants of a generation. All are named after it, and the last
// one has another id than in the generation before.
func generation(g int) []plantstore.Plant {
	const size = 10
	var plants []plantstore.Plant
	for i := range plantstore.ID(size) {
		plants = append(plants, tagged(i, strconv.Itoa(g), "batch"))
	}
	return append(plants, tagged(plantstore.ID(size+g), strconv.Itoa(g), "batch"))
}

// watchGenerations reads until done, and once more. It fails if a generation is
// incomplete or older than one already read, and if the last read does not return the
// last generation.
func watchGenerations(t tb, s plantstore.Store, last int, done <-chan struct{}) error {
	seen := 0
	for n := 0; ; n++ {
		over := isClosed(done)
		g, err := readGeneration(t, s, n)
		if err != nil {
			return err
		}
		if g < seen {
			return fmt.Errorf("generation %d was read after %d", g, seen)
		}
		if over && g != last {
			return fmt.Errorf("generation %d was read after the last write, of %d", g, last)
		}
		if over {
			return nil
		}
		seen = g
	}
}

// readGeneration reads the plants in one of several ways, which n selects, and returns
// their generation.
func readGeneration(t tb, s plantstore.Store, n int) (int, error) {
	var plants []plantstore.Plant
	var err error
	whole := true
	switch n % 4 {
	case 0:
		plants, err = collect(s.Scan(t.Context(), plantstore.Query{}, nil))
	case 1:
		plants, err = collect(s.Scan(t.Context(), plantstore.Query{Tag: plantstore.NewTag("batch")}, nil))
	case 2:
		var page plantstore.Page
		page, err = s.List(t.Context(), plantstore.Query{Limit: 100})
		plants, whole = plantsOf(page.Plants), page.Next == nil
	case 3:
		var p plantstore.StoredPlant
		p, err = s.Plant(t.Context(), 0)
		plants, whole = []plantstore.Plant{p.Plant}, false
	}
	if err != nil {
		return 0, err
	}
	if len(plants) == 0 {
		return 0, errors.New("there are no plants")
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
		return 0, fmt.Errorf("generation %d is incomplete: %s", g, d)
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
