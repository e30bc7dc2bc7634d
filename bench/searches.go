package main

import (
	"encoding/json"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The parts of the names that are searched. Of words, the first are frequent and the last are rare.
var (
	genera    = strings.Fields("Monstera Ficus Philodendron Calathea Anthurium Begonia Dracaena Peperomia Alocasia Syngonium Aglaonema Dieffenbachia")
	latin     = strings.Fields(`ab ac ad al alb am an ang ar arg as at aur bel ber bi bla bor bra bru bu ca cal can car cau cer chi chry cin clem co col con cor cras cul cy da dec del den di dis dor ech el en er ex fal fe fic fla flo fol for fra ful gal ge gla glo gra gui gyn hel her hir hor hum il im ja ke la lan lat le lep li lob lon lu mac mar mel mi mon mur nat ne nig nob nu ob oc ol or os ov pal par ped pen pi pla pol pri pu qua ra re ri ros ru sa sca sem ser si so spe ste str su syl ta ten tho ti tom tri tu ul un ur va ver vi vul xan yu ze`)
	cyrillic  = strings.Fields("фи кус мон сте ра ди фен ба хия кал ро за ли лия пи он ар ту ум бе го ния дра це на ща жи мо льва юк")
	han       = strings.Split("觀音蓮龜背竹春羽蔓綠絨虎尾蘭金錢樹白鶴芋仙人掌文君子櫻桃李", "")
	someWords = 50
)

// spell returns a word of so many syllables.
func spell(syllables []string, n uint64, length int) string {
	var word strings.Builder
	n = uint64(scatter(n))
	for range length {
		word.WriteString(syllables[n%uint64(len(syllables))])
		n /= uint64(len(syllables))
	}
	return word.String()
}

func genus(rank int) string {
	if rank < len(genera) {
		return genera[rank]
	}
	word := spell(latin, uint64(rank), 2)
	return strings.ToUpper(word[:1]) + word[1:] + "ia"
}

func epithet(rank int) string { return spell(latin, uint64(rank), 3) + "a" }

func russian(rank int) string { return spell(cyrillic, uint64(rank), 4) }

// searched returns a plant with one of the names that are searched, of about 25 characters: 85 % are Latin, 10 %
// Cyrillic and 5 % Chinese.
func searched(id int64) plant {
	random := uint64(id)
	// frequency returns a number below n, which is k half as often as k/2.
	frequency := func(n float64) int {
		random = uint64(scatter(random))
		return int(math.Pow(n, float64(random)/(1<<63))) - 1
	}
	p := plant{id: id, tag: fmt.Sprintf("tropical %d", random%20)}
	switch kind := random / 20 % 100; {
	case kind < 5:
		p.name = spell(han, random/2000, 7)
	case kind < 15:
		p.name = russian(frequency(10_000)) + " " + russian(frequency(10_000))
	default:
		p.name = genus(frequency(1000)) + " " + epithet(frequency(50_000))
		if kind < 40 {
			p.name += " " + epithet(frequency(50_000))
		}
	}
	return p
}

// searches are the kinds of searches that are timed: the text of each, by its number.
var searches = []struct {
	what string
	text func(i int) string
	more string // of the query
}{
	{"without a match", func(i int) string { return epithet(i)[:4] + "q" + epithet(i)[4:] }, ""},
	{"of two words without the space", func(i int) string { return epithet(i) + epithet(i+1) }, ""},
	{"with few matches", func(i int) string { return epithet(10_000 + 100*i) }, ""},
	{"with many matches", func(i int) string { return []string{genus(i), epithet(i)}[i%2] }, ""},
	{"of two words of which one is frequent", func(i int) string { return genus(i%10) + " " + epithet(10_000+100*i) }, ""},
	{"of two frequent words that no plant has together", func(i int) string { return genus(i%10) + " " + genus((i+1+i/10)%10) }, ""},
	{"of three letters", func(i int) string { return epithet(20 * i)[i%5:][:3] }, ""},
	{"of a Cyrillic word", func(i int) string { return russian(10 * i) }, ""},
	{"of three Chinese letters", func(i int) string { return spell(han, uint64(i), 3) }, ""},
	{"by name", func(i int) string { return epithet(100 + i) }, "&order=name"},
}

// index returns the state of the index for searches, and how many plants it has.
func (c *contender) index() (state string, plants int64, err error) {
	text, err := c.request("GET", "/about", "")
	if err != nil {
		return "", 0, err
	}
	var about struct {
		Index struct {
			State  string
			Plants int64
		} `json:"search_index"`
	}
	err = json.Unmarshal([]byte(text), &about)
	return about.Index.State, about.Index.Plants, err
}

// awaitIndex waits until the index has that state, or so many plants, and returns how many it has.
func (c *contender) awaitIndex(want string, enough int64) (plants int64, err error) {
	for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(20 * time.Millisecond) {
		state, n, err := c.index()
		if err != nil || state == want || n >= enough {
			return n, err
		}
	}
	return 0, fmt.Errorf("%s: the index is not %s after an hour", c.name, want)
}

// measureSearches measures how long the index for searches is built, beside creates, and with a kill while
// nothing else happens, and then searches among about that many plants.
func measureSearches(plants int) func(b *bench, c *contender) error {
	return func(b *bench, c *contender) error {
		if err := c.restart("--search-index", "off"); err != nil {
			return err
		}
		began := time.Now()
		err := c.importPlants(b, func(yield func(plant) bool) {
			for p := range preload(plants) {
				if !yield(searched(p.id)) {
					return
				}
			}
		})
		if err != nil {
			return err
		}
		c.acknowledged += int64(plants)
		if c.backlog != nil {
			if _, err := c.drain(); err != nil {
				return err
			}
		}
		b.note(c, "filled with names to search", float64(plants)/time.Since(began).Seconds(), "plants/s")
		if err := b.buildBesideCreates(c); err != nil {
			return err
		}
		if err := b.buildWithKill(c, plants); err != nil {
			return err
		}
		for _, s := range searches {
			var paths []string
			for i := range someWords {
				paths = append(paths, "/plants?limit=100&q="+url.QueryEscape(s.text(i))+s.more)
			}
			if err := b.timePages(c, "search "+s.what, paths); err != nil {
				return err
			}
		}
		return nil
	}
}

// buildBesideCreates builds the index while plants are created.
func (b *bench) buildBesideCreates(c *contender) error {
	backlog := c.backlog
	c.backlog = nil // it does not wait between two measurements
	defer func() { c.backlog = backlog }()
	load := creates(64, "sequential", "while the index is built")
	without, err := b.send(c, load, 0, b.seconds)
	if err != nil {
		return err
	}
	if err := c.restart("--search-index", "on"); err != nil {
		return err
	}
	began := time.Now()
	var p99, rates []float64
	for state := ""; state != "ready"; {
		s, err := b.send(c, load, 0, b.seconds)
		if err != nil {
			return err
		}
		p99, rates = append(p99, s.P99/1000), append(rates, s.Rate)
		if state, _, err = c.index(); err != nil {
			return err
		}
	}
	b.note(c, "index built beside creates", time.Since(began).Seconds(), "s")
	slices.Sort(rates)
	b.note(c, load.name+", median", rates[len(rates)/2], "creates/s")
	b.note(c, load.name+", of the rate before", rates[len(rates)/2]/without.Rate, "")
	b.note(c, load.name+fmt.Sprintf(", p99 of %d s, largest", b.seconds), slices.Max(p99), "ms")
	return nil
}

// buildWithKill drops the index, and builds it again with a kill in the middle.
func (b *bench) buildWithKill(c *contender, plants int) error {
	if err := c.restart("--search-index", "off"); err != nil {
		return err
	}
	if _, err := c.awaitIndex("off", math.MaxInt64); err != nil {
		return err
	}
	if err := c.restart("--search-index", "on"); err != nil {
		return err
	}
	began := time.Now()
	before, err := c.awaitIndex("ready", int64(plants/2))
	if err != nil {
		return err
	}
	for _, p := range c.servers {
		p.stop(syscall.SIGKILL)
	}
	if err := c.restart("--search-index", "on"); err != nil {
		return err
	}
	_, after, err := c.index()
	if err != nil {
		return err
	}
	b.note(c, "plants in the index before a kill -9", float64(before), "plants")
	b.note(c, "plants in the index after a kill -9", float64(after), "plants")
	if _, err := c.awaitIndex("ready", math.MaxInt64); err != nil {
		return err
	}
	b.note(c, "index built with a kill -9 in the middle", time.Since(began).Seconds(), "s")
	return nil
}

// measureIndexCosts measures imports and creates with the index for searches and without it, in turns.
func measureIndexCosts(b *bench, off *contender) error {
	on, err := b.startContender(named(off.name)[0])
	if err != nil {
		return err
	}
	defer removeAll(on.dir)
	defer on.stop(syscall.SIGKILL)
	if err := off.restart("--search-index", "off"); err != nil {
		return err
	}
	if err := on.restart("--search-index", "on"); err != nil {
		return err
	}
	if _, err := on.awaitIndex("ready", math.MaxInt64); err != nil {
		return err
	}
	compare := func(what, unit string, measure func(c *contender) (float64, error)) error {
		without, err := measure(off)
		if err != nil {
			return err
		}
		with, err := measure(on)
		b.note(off, what+", no index", without, unit)
		b.note(off, what+", index", with, unit)
		b.note(off, what+", index, of that without", with/without, "")
		return err
	}
	for range b.rounds {
		err := compare("import of a million, drained", "plants/s", func(c *contender) (float64, error) {
			began, err := b.importMore(c, searched)
			if err == nil && c.backlog != nil {
				_, err = c.drain()
			}
			return imported / time.Since(began).Seconds(), err
		})
		if err != nil {
			return err
		}
	}
	err = compare("disk for a plant", "bytes", func(c *contender) (float64, error) {
		n, err := c.settledSize()
		return float64(n) / float64(c.acknowledged), err
	})
	if err != nil {
		return err
	}
	load := creates(256, "sequential", "with and without the index")
	for range 2 * b.rounds {
		var p99 []float64
		err := compare(load.name+", drained", "creates/s", func(c *contender) (float64, error) {
			s, err := b.measure(c, load, 0, b.seconds)
			p99 = append(p99, s.P99/1000)
			return s.Rate * float64(b.seconds) / (float64(b.seconds) + s.Drain), err
		})
		if err != nil {
			return err
		}
		b.note(off, load.name+", p99, no index", p99[0], "ms")
		b.note(off, load.name+", p99, index", p99[1], "ms")
		b.note(off, load.name+", p99, index, of that without", p99[1]/p99[0], "")
	}
	return on.verify()
}

// settledSize returns how many bytes of disk the contender uses, once nothing changes that in the background.
func (c *contender) settledSize() (size int64, err error) {
	for last := int64(-1); size != last && err == nil; time.Sleep(3 * time.Second) {
		last = size
		if c.database != nil {
			size, err = c.database.number("SELECT pg_database_size('postgres')")
		} else {
			size, err = countSQLite(filepath.Join(c.dir, "plants.db"),
				"SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
		}
	}
	return size, err
}
