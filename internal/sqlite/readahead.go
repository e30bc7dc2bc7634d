package sqlite

import (
	"cmp"
	"math"
	"slices"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/memtable"
)

// readAhead reads plants of the frozen generation from the log before they are flushed, in
// the order of the log: plants that are adjacent by id are far apart in it, and whoever
// reads a few of them at a time reads a page for each. While the plants of one window are
// flushed, those of the next are read.
type readAhead struct {
	now, next *window
	at        int // in now, probably of the next plant
}

// window has plants that are adjacent by id.
type window struct {
	of     *memtable.Generation
	plants []plantstore.Plant // in order of id, once it is complete
	last   plantstore.ID      // it has no plant after this one
	unread []memtable.Entry   // in the order of the log
}

// A window has the windowShare-th part of a generation, but no more than windowText bytes
// of text. The first ones are smaller: each has up to twice as many plants as the one
// before, so that they are all read while those of that one are flushed.
const (
	firstWindow = 512
	windowShare = 16
	windowText  = 2 << 20
)

// newWindow returns a window after that one, which begins with that id. Plants that the
// flush does not read one by one are not in it.
func newWindow(frozen *memtable.Generation, before *window, first plantstore.ID) *window {
	n := min(1+frozen.Size().Rows/windowShare, max(firstWindow, readPerPlant*len(before.plants)))
	entries := frozen.From(first, 0, math.MaxInt64, make([]memtable.Entry, 0, n))
	size := int64(0)
	for i, e := range entries {
		if size += int64(e.Size); size > windowText && i > 0 {
			entries = entries[:i]
			break
		}
	}
	win := &window{of: frozen, last: math.MaxInt64}
	if len(entries) > 0 {
		win.last = entries[len(entries)-1].ID
	}
	memtable.SortBySeq(entries)
	for len(entries) > 0 {
		n := runLength(entries)
		if n < minRun && !entries[0].Deleted() {
			win.unread = append(win.unread, entries[:n]...)
		}
		entries = entries[n:]
	}
	win.plants = make([]plantstore.Plant, 0, len(win.unread))
	return win
}

// read reads the next n plants from the log.
func (win *window) read(log *sqlite.Stmt, n int) error {
	for range min(n, len(win.unread)) {
		plant, err := entryPlant(log, win.unread[0])
		if err != nil {
			return err
		}
		win.plants, win.unread = append(win.plants, *plant), win.unread[1:]
	}
	return nil
}

// complete reads the rest.
func (win *window) complete(log *sqlite.Stmt) error {
	if err := win.read(log, len(win.unread)); err != nil {
		return err
	}
	slices.SortFunc(win.plants, func(a, b plantstore.Plant) int { return cmp.Compare(a.ID, b.ID) })
	return nil
}

// readPerPlant is how many plants of the next window are read for each that is flushed.
const readPerPlant = 2

// plant returns the plant of an entry that is flushed. They come in order of id, unless a
// transaction failed.
func (a *readAhead) plant(log *sqlite.Stmt, frozen *memtable.Generation, e memtable.Entry) (*plantstore.Plant, error) {
	if a.now == nil || a.now.of != frozen {
		a.now = &window{of: frozen, last: e.ID}
		a.next = newWindow(frozen, a.now, e.ID)
	}
	for e.ID > a.now.last {
		if err := a.next.complete(log); err != nil {
			return nil, err
		}
		a.now, a.next = a.next, &window{}
		if a.now.last < math.MaxInt64 {
			a.next = newWindow(frozen, a.now, a.now.last+1)
		}
	}
	if err := a.next.read(log, readPerPlant); err != nil {
		return nil, err
	}
	plants := a.now.plants
	if a.at >= len(plants) || plants[a.at].ID != e.ID {
		found := false
		if a.at, found = slices.BinarySearchFunc(plants, e.ID, comparePlant); !found {
			return entryPlant(log, e)
		}
	}
	a.at++
	return &plants[a.at-1], nil
}

func comparePlant(p plantstore.Plant, id plantstore.ID) int { return cmp.Compare(p.ID, id) }
