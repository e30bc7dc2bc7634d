package sqlite

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/match"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
)

// indexState says what there is of the index of names. It is stored.
type indexState int64

const (
	indexOff indexState = iota
	indexBuilding
	indexReady
)

// nameIndex is how far the index of names is.
type nameIndex struct {
	state  indexState
	next   plantstore.ID // while it is built: it has the plants before this one
	plants int64         // how many the build has added

	// merge is how many bytes of the names that were added or removed are to be merged before more
	// are, and merged says that there is nothing to merge.
	merge  int
	merged bool
}

// has reports whether the index has the plant with that id, if there is one.
func (x *nameIndex) has(id plantstore.ID) bool {
	return x.state == indexReady || x.state == indexBuilding && id < x.next
}

// rows returns how many rows of a table take as long to flush as a plant.
func (x *nameIndex) rows() int {
	if x.state == indexOff {
		return 1
	}
	return 1 + indexWork
}

const (
	// indexWork is how many rows of a table take as long to write as a plant in the index.
	indexWork = 3
	// A transaction adds indexGroup plants to the index, if there are that many, because each
	// transaction makes a segment, and segments have to be merged. They have indexText bytes of
	// text, or a few times what the transaction appends to the log: they take about 20 ms.
	indexGroup = 2048
	indexText  = 128 << 10
	// mergedText is for how many bytes of names a page is merged. A transaction merges mergeStep
	// pages, or one for mergeShare bytes that it appends to the log, up to maxMerge: those take
	// about 70 ms on a busy machine.
	mergedText = 800
	mergeStep  = 32
	mergeShare = 512
	maxMerge   = 256
	// maxIndexedName is the length in bytes, folded, from which on a name is not indexed.
	maxIndexedName = 4 << 10
	// examinedBits is how many bits of an id say whether every search examines its plant: one in
	// 8,192, between which FTS5 reads the lists of trigrams in a few milliseconds.
	examinedBits = 13
	// searchTime is how long a search with the index examines plants for a page.
	searchTime = 200 * time.Millisecond
	// dropSize is how many rows of a table a step of dropping removes, and dropPages how many of
	// one whose rows fill a page.
	dropSize  = 2048
	dropPages = 256
	// indexInterval is how often Run looks whether the index should be built or dropped.
	indexInterval = 100 * time.Millisecond
)

// examined is a trigram of the plants that every search examines: those whose names are too long for
// the index, and others at which a search can end, because FTS5 does not stop between two plants
// that it finds.
const examined = "\x01\x01\x01"

// createIndex makes the index. With detail=none it knows which plants have a trigram, and nothing
// else; it has neither the names nor their lengths. So whoever removes a name says what it was. Nothing
// is merged unless it is asked for: a merge would keep a batch waiting.
var createIndex = []string{
	"CREATE VIRTUAL TABLE names USING fts5(name, tokenize = 'trigram case_sensitive 1', detail = none, content = '', columnsize = 0)",
	"INSERT INTO names (names, rank) VALUES ('automerge', 0)",
	"INSERT INTO names (names, rank) VALUES ('crisismerge', 1999)",
	"INSERT INTO names (names, rank) VALUES ('usermerge', 16)",
	"INSERT INTO names (names, rank) VALUES ('hashsize', 16777216)",
}

// IndexNames says when there is an index of names, which searches use. It must be called before
// Run.
func (s *Store) IndexNames(when rules.IndexMode) { s.indexNames = when }

// indexStats describes the index to an operator.
func (snap *snapshot) indexStats() plantstore.SearchIndex {
	switch snap.names.state {
	case indexBuilding:
		return plantstore.SearchIndex{State: plantstore.SearchBuilding, Plants: snap.names.plants}
	case indexReady:
		return plantstore.SearchIndex{State: plantstore.SearchReady, Plants: snap.plants}
	}
	return plantstore.SearchIndex{State: plantstore.SearchOff}
}

// indexed returns what the index has of a plant: its name as it is compared with the words of a
// search.
func indexed(fold *match.Matcher, id plantstore.ID, name string) string {
	folded := fold.Fold(name)
	switch {
	case len(folded) >= maxIndexedName:
		return examined
	case uint64(id)*0x9E3779B97F4A7C15>>(64-examinedBits) == 0: // evenly among ids that follow each other
		return string(folded) + examined
	}
	return string(folded)
}

// maxTrigrams is how many trigrams of a search are looked up. More would leave hardly fewer
// plants.
const maxTrigrams = 24

// indexQuery returns the query to the index that finds all plants whose names may contain the words
// of a text, or "" if every name may: words of less than three characters have no trigram. Every third
// trigram of a word has all of its characters, with the last one. The others would take as long to read,
// and leave hardly fewer plants.
func indexQuery(text string) string {
	var all []string
	seen := map[string]bool{}
	for _, word := range match.New(text).Words() {
		runes := []rune(string(word))
		last := len(runes) - 3
		for i := 0; i <= last; i++ {
			// FTS5 skips NUL, and its queries end there.
			t := string(runes[i : i+3])
			if (i%3 > 0 && i < last) || seen[t] || strings.Contains(t, "\x00") {
				continue
			}
			seen[t] = true
			all = append(all, `("`+strings.ReplaceAll(t, `"`, `""`)+`" OR "`+examined+`")`)
		}
	}
	some := all
	if len(all) > maxTrigrams {
		some = make([]string, maxTrigrams)
		for i := range some {
			some[i] = all[i*len(all)/maxTrigrams]
		}
	}
	return strings.Join(some, " AND ")
}

// fewPlants is how many plants have one of the tags of a query, or are found by the index of names,
// when reading those is quick.
const fewPlants = 10_000

// indexed reports whether the index finds plants for the words of a query.
func (snap *snapshot) indexed(q *plantstore.Query) bool {
	return snap.names.state == indexReady && indexQuery(q.Contains) != ""
}

// eachByName is eachStored by the names of the plants: those that the index finds, or all.
func (snap *snapshot) eachByName(q *plantstore.Query, columns string, first plantstore.ID, f func(row *sqlite.Stmt) error) error {
	if snap.indexed(q) {
		return query(snap.conn, f, selectIndexed(q, columns), int64(first), indexQuery(q.Contains))
	}
	from, order := direction(q)
	return query(snap.conn, f, "SELECT id, "+columns+" FROM stored WHERE id "+from+" ? ORDER BY id"+order, int64(first))
}

// selectIndexed returns the statement for the plants of the table, from an id on, that a query to the
// index finds. The CROSS makes SQLite begin with the index.
func selectIndexed(q *plantstore.Query, columns string) string {
	from, order := direction(q)
	return "SELECT id, " + columns + " FROM names CROSS JOIN stored ON id = names.rowid WHERE names.rowid " + from + " ? AND names MATCH ? ORDER BY names.rowid" + order
}

// betterByName reports whether the plants of a query by tags should be looked for in the index of
// names, because many have one of the tags, and the index finds few.
func (snap *snapshot) betterByName(q *plantstore.Query) (bool, error) {
	if !snap.indexed(q) {
		return false, nil
	}
	tagged := int64(0)
	for _, tag := range q.ExactTags() {
		n, err := number(snap.conn, "SELECT count(*) FROM (SELECT 1 FROM stored_by_tag WHERE tag = ? LIMIT ?)", tag, fewPlants-tagged)
		if err != nil {
			return false, err
		}
		tagged += n
	}
	if tagged < fewPlants {
		return false, nil
	}
	most := fewPlants + snap.plants>>examinedBits
	named, began := int64(0), time.Now()
	err := query(snap.conn, func(*sqlite.Stmt) error {
		if named++; named == most || time.Since(began) > searchTime/4 {
			named = most
			return errStop
		}
		return nil
	}, "SELECT 1 FROM names WHERE names MATCH ?", indexQuery(q.Contains))
	return named < most, err
}

// indexedNames returns the plants of the table, of those that entries change, with what the index has of
// their names. If these have more than that many bytes of text, it reads only the first, and returns
// the entries that it is about.
func (w *writer) indexedNames(entries []memtable.Entry, text int64) ([]plantstore.Plant, []memtable.Entry, error) {
	var names []plantstore.Plant
	ids := make([]plantstore.ID, 0, 4*groupSize)
	for i, e := range entries {
		if w.tx.names.has(e.ID) {
			ids = append(ids, e.ID)
		}
		if len(ids) < cap(ids) && i < len(entries)-1 {
			continue
		}
		err := eachStored(w.conn, ids, func(p plantstore.StoredPlant) {
			text -= int64(len(p.Name))
			names = append(names, plantstore.Plant{ID: p.ID, Name: indexed(&w.fold, p.ID, p.Name)})
		})
		if err != nil || text < 0 {
			return names, entries[:i+1], err
		}
		ids = ids[:0]
	}
	return names, entries, nil
}

// reindex brings the index of names up to date with entries. before has the plants that it has of them.
func (w *writer) reindex(frozen *memtable.Generation, entries []memtable.Entry, before []plantstore.Plant) error {
	for _, e := range entries {
		if !w.tx.names.has(e.ID) { // it will be added
			continue
		}
		gone, added := "", ""
		if !e.Deleted() {
			added = indexed(&w.fold, e.ID, frozen.Plant(e).Name)
		}
		if len(before) > 0 && before[0].ID == e.ID {
			gone, before = before[0].Name, before[1:]
			if !e.Deleted() {
				if gone == added {
					continue
				}
				gone, added = difference(gone, added)
			}
			if err := w.index(removeName, e.ID, gone); err != nil {
				return err
			}
		}
		if !e.Deleted() {
			if err := w.index(insertName, e.ID, added); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDifference is how many characters of a name are looked for in the rest of it.
const maxDifference = 32

// difference returns the parts of two names in which they differ, with all trigrams that one has and
// the other has not. If a trigram that is gone in one place is left in another, all of the name is added.
func difference(before, after string) (gone, added string) {
	was, is := []rune(before), []rune(after)
	// FTS5 reads NUL and others in a way of its own.
	if special := func(r rune) bool { return r == 0 || r == 0xfffe || r == 0xffff }; slices.ContainsFunc(was, special) || slices.ContainsFunc(is, special) {
		return before, after
	}
	head, tail, most := 0, 0, min(len(was), len(is))
	for head < most && was[head] == is[head] {
		head++
	}
	for tail < most-head && was[len(was)-1-tail] == is[len(is)-1-tail] {
		tail++
	}
	head, tail = max(0, head-2), max(0, tail-2)
	was, is = was[head:len(was)-tail], is[head:len(is)-tail]
	gone, added = string(was), string(is)
	if len(added) == len(after) || len(was) > maxDifference {
		return gone, after
	}
	for trigram := range trigrams(gone) {
		if strings.Contains(after, trigram) && !strings.Contains(added, trigram) {
			return gone, after
		}
	}
	return gone, added
}

const (
	// insertName adds a plant to the index of names, or more of its name. It does not add several: for
	// the savepoint of such a statement FTS5 would make a segment.
	insertName = "INSERT INTO names (rowid, name) VALUES (?, ?)"
	// removeName removes what it has of a plant's name, or a part of it.
	removeName = "INSERT INTO names (names, rowid, name) VALUES ('delete', ?, ?)"
)

// index runs insertName or removeName, in order of the ids.
func (w *writer) index(text string, id plantstore.ID, name string) error {
	stmt, err := w.conn.Prepare(text)
	if err != nil {
		return err
	}
	stmt.BindInt64(1, int64(id))
	stmt.BindText(2, name)
	if err := run(stmt, len(name)); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	w.tx.names.merge += 1 + len(name)
	w.tx.names.merged = false
	return nil
}

// mergePages returns how many pages a transaction merges that appends so many bytes to the log, if
// so many bytes of names are to be merged.
func mergePages(appended int64, names int) int {
	return max(mergeStep, min(int(appended)/mergeShare, 1+names/mergedText, maxMerge))
}

// mergeNames merges segments of the index, a few pages of them. FTS5 does not interrupt the list of
// one trigram, which takes about a tenth of a second for a million plants.
func (w *writer) mergeNames() error {
	pages := mergePages(w.tx.bytes-w.bytes, w.tx.names.merge)
	more, err := w.merge(pages)
	w.tx.names.merge = max(0, w.tx.names.merge-pages*mergedText)
	if !more {
		w.tx.names.merge = 0
	}
	return err
}

// mergeRest merges what nobody waits for: segments as mergeNames does, and then all of them, if the others
// have more than half as many pages as the largest. That removes what is left of names that are gone.
func (w *writer) mergeRest() error {
	more, err := w.merge(mergeStep)
	if err != nil || more {
		return err
	}
	var all, largest int64
	err = query(w.conn, func(row *sqlite.Stmt) error {
		all, largest = row.ColumnInt64(0), row.ColumnInt64(1)
		return nil
	}, sizesOfSegments)
	if err == nil && 2*all > 3*largest {
		more, err = w.merge(-mergeStep)
	}
	w.tx.names.merged = !more
	return err
}

// sizesOfSegments returns how many pages the segments of the index have, and how many the largest has.
// FTS5 numbers a segment's pages from its own number times 2^37 on.
const sizesOfSegments = `WITH RECURSIVE segments (n) AS (
		SELECT min(segid) FROM names_idx
		UNION ALL SELECT (SELECT min(segid) FROM names_idx WHERE segid > n) FROM segments WHERE n IS NOT NULL),
	sizes (pages) AS (SELECT (SELECT max(id) FROM names_data WHERE id < (n << 37) + (1 << 31)) - (n << 37) FROM segments WHERE n IS NOT NULL)
	SELECT coalesce(sum(pages), 0), coalesce(max(pages), 0) FROM sizes`

// merge merges so many pages of segments that FTS5 finds to be due, or of all if the number is negative.
// It reports false if there is nothing to merge.
func (w *writer) merge(pages int) (more bool, err error) {
	const changes = "SELECT total_changes()"
	before, err := number(w.conn, changes)
	if err != nil {
		return false, err
	}
	if err := exec(w.conn, "INSERT INTO names (names, rank) VALUES ('merge', ?)", pages); err != nil {
		return false, fmt.Errorf("merge: %w", err)
	}
	after, err := number(w.conn, changes)
	return after-before >= 2, err // as FTS5 documents
}

// mayMerge reports whether segments of the index may be merged.
func (s *Store) mayMerge() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write.names.state != indexOff && !s.write.names.merged
}

// stepIndex makes, builds or drops the index, a bounded step of it, and returns when to call it
// again.
func (s *Store) stepIndex(ctx context.Context) (next time.Duration, err error) {
	s.mu.Lock()
	x, dropped := s.write.names, s.write.dropped
	s.mu.Unlock()
	var step func(*writer) error
	wanted := s.indexNames.Wants(s.plants.Load(), x.state != indexOff)
	switch {
	case x.state == indexOff && wanted:
		step = s.makeIndex
	case x.state != indexOff && !wanted:
		step = s.retireIndex
	case x.state == indexBuilding:
		step = (*writer).buildIndex
	case len(dropped) > 0:
		step = (*writer).dropTables
	default:
		return indexInterval, nil
	}
	busy := s.applying.Load() > 0 || time.Since(time.Unix(0, s.lastWrite.Load())) < idleAfter
	began := time.Now()
	if err := s.withUnsyncedWriter(ctx, step); err != nil {
		return indexInterval, err
	}
	if busy { // leave at least half of the time to others
		return max(idlePause, time.Since(began)), nil
	}
	return idlePause, nil
}

// makeIndex makes an empty index, to which the flush in progress now has to add plants, too.
func (s *Store) makeIndex(w *writer) error {
	for _, text := range createIndex {
		if err := exec(w.conn, text); err != nil {
			return fmt.Errorf("make the index of names: %w", err)
		}
	}
	w.tx.names = nameIndex{state: indexBuilding, next: memtable.FirstID}
	if frozen := s.unflushed.Load().Frozen; frozen != nil {
		w.tx.progress.left += indexWork * frozen.Size().Rows
	}
	return w.saveIndex()
}

// saveIndex stores how far the index is.
func (w *writer) saveIndex() error {
	x := &w.tx.names
	err := exec(w.conn, "UPDATE log_state SET search = ?, search_next = ?, search_plants = ?", int64(x.state), int64(x.next), x.plants)
	if err == nil && w.conn.Changes() != 1 {
		err = errNoState
	}
	return err
}

// buildIndex adds the next plants of the table to the index, or merges what was added.
func (w *writer) buildIndex() error {
	if w.tx.names.merge > 0 {
		return w.mergeNames()
	}
	x := &w.tx.names
	var plants []plantstore.Plant
	text, last := 0, true
	err := query(w.conn, func(row *sqlite.Stmt) error {
		p := plantstore.Plant{ID: plantstore.ID(row.ColumnInt64(0)), Name: row.ColumnText(1)}
		plants = append(plants, p)
		if text += rowOverhead + len(p.Name); len(plants) == indexGroup || text >= 2*indexText {
			last = p.ID == math.MaxInt64
			return errStop
		}
		return nil
	}, "SELECT id, name FROM stored WHERE id >= ? ORDER BY id", int64(x.next))
	if err != nil {
		return err
	}
	for _, p := range plants {
		if err := w.index(insertName, p.ID, indexed(&w.fold, p.ID, p.Name)); err != nil {
			return err
		}
	}
	x.plants += int64(len(plants))
	if last {
		x.state, x.next = indexReady, 0
	} else {
		x.next = plants[len(plants)-1].ID + 1
	}
	return w.saveIndex()
}

// droppedPrefix is how the names of tables begin that are to be dropped, a few rows at a time.
const droppedPrefix = "dropped_"

// retireIndex ends the use of the index. Its tables get other names, under which they are plain
// tables, and are then emptied in steps.
func (s *Store) retireIndex(w *writer) error {
	prefix := droppedPrefix + strings.ToLower(rand.Text()[:8])
	for _, table := range []string{"_data", "_idx"} {
		if err := exec(w.conn, "ALTER TABLE names"+table+" RENAME TO "+prefix+table); err != nil {
			return fmt.Errorf("drop the index of names: %w", err)
		}
		w.tx.dropped = append(w.tx.dropped[:len(w.tx.dropped):len(w.tx.dropped)], prefix+table)
	}
	if err := exec(w.conn, "DROP TABLE names"); err != nil {
		return fmt.Errorf("drop the index of names: %w", err)
	}
	w.tx.names = nameIndex{}
	if frozen := s.unflushed.Load().Frozen; frozen != nil {
		size := frozen.Size()
		w.tx.progress.left = min(w.tx.progress.left, size.Rows+size.TagChanges)
	}
	return w.saveIndex()
}

// dropTables removes some rows of the first of the tables that are to be dropped, or drops it.
func (w *writer) dropTables() error {
	table := w.tx.dropped[0]
	key, rows := "rowid", dropSize
	switch {
	case strings.HasSuffix(table, "_data"):
		rows = dropPages
	case strings.HasSuffix(table, "_idx"):
		key = "segid, term"
	}
	if err := exec(w.conn, fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (SELECT %s FROM %s LIMIT ?)", table, key, key, table), rows); err != nil {
		return fmt.Errorf("empty %s: %w", table, err)
	}
	if w.conn.Changes() > 0 {
		return nil
	}
	w.tx.dropped = w.tx.dropped[1:]
	return exec(w.conn, "DROP TABLE "+table)
}

// loadIndex reads how far the index is, after a start.
func (w *writer) loadIndex(snap *snapshot) (err error) {
	w.tx.names = snap.names
	w.tx.dropped, err = queryAll(w.conn, func(row *sqlite.Stmt) (string, error) { return row.ColumnText(0), nil },
		"SELECT name FROM sqlite_schema WHERE type = 'table' AND name GLOB ?", droppedPrefix+"*")
	return err
}

// checkIndex compares the index of names with the names: it adds up a hash of each plant with each
// of its trigrams, and of what the index has.
func (p *problems) checkIndex(s *Store, c *sqlite.Conn) error {
	return s.inSnapshot(c, func(snap *snapshot) error {
		if snap.names.state == indexOff {
			return nil
		}
		mem, err := snap.unflushed()
		if err != nil {
			return err
		}
		// About plants in memory the index may be behind the table.
		compared := func(id plantstore.ID) bool {
			_, row := mem.Find(id, snap.Last)
			return row == 0 && snap.names.has(id)
		}
		seed := maphash.MakeSeed()
		hash := func(id plantstore.ID, trigram string) uint64 {
			return maphash.Comparable(seed, struct {
				id   plantstore.ID
				text string
			}{id, trigram})
		}
		var want, got uint64
		var fold match.Matcher
		err = query(c, func(row *sqlite.Stmt) error {
			id := plantstore.ID(row.ColumnInt64(0))
			if compared(id) {
				for trigram := range trigrams(indexed(&fold, id, row.ColumnText(1))) {
					want += hash(id, trigram)
				}
			}
			return nil
		}, "SELECT id, name FROM stored")
		if err != nil {
			return err
		}
		err = exec(c, "CREATE VIRTUAL TABLE IF NOT EXISTS temp.names_content USING fts5vocab(main, names, instance)")
		if err != nil {
			return err
		}
		err = query(c, func(row *sqlite.Stmt) error {
			if id := plantstore.ID(row.ColumnInt64(1)); compared(id) {
				got += hash(id, row.ColumnText(0))
			}
			return nil
		}, "SELECT term, doc FROM temp.names_content")
		if err == nil && got != want {
			p.add("the index of names differs from the names: start the server with --search-index off, and then build it again")
		}
		return err
	})
}

// trigrams returns the different trigrams that FTS5 finds in a text.
func trigrams(text string) map[string]bool {
	all := map[string]bool{}
	var last []rune
	for _, r := range text {
		switch r {
		case 0:
			continue
		case 0xfffe, 0xffff:
			r = utf8.RuneError
		}
		if last = append(last, r); len(last) >= 3 {
			all[string(last[len(last)-3:])] = true
		}
	}
	return all
}
