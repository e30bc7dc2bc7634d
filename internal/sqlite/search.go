package sqlite

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"math"
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

	// merge is how many bytes of the names that were added are to be merged before more are, and
	// merged says that there is nothing to merge.
	merge  int
	merged bool
}

// has reports whether the index has the plant with that id, if there is one.
func (x *nameIndex) has(id plantstore.ID) bool {
	return x.state == indexReady || x.state == indexBuilding && id < x.next
}

const (
	// indexWork is how many rows of a table take as long to write as a plant in the index.
	indexWork = 5
	// A transaction adds indexGroup plants to the index, if there are that many, because each
	// transaction makes a segment, and segments have to be merged. They have indexText bytes of
	// text, or a few times what the transaction appends to the log: they take about 20 ms.
	indexGroup = 2048
	indexText  = 64 << 10
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
// else; without content it does not have the names. Nothing is merged unless it is asked for: a
// merge would keep a batch waiting. A segment is merged when half of its names are out of date: with
// FTS5's 10 %, while all plants are replaced, the large ones would be merged again and again.
var createIndex = []string{
	"CREATE VIRTUAL TABLE names USING fts5(name, tokenize = 'trigram case_sensitive 1', detail = none, content = '', contentless_delete = 1)",
	"INSERT INTO names (names, rank) VALUES ('automerge', 0)",
	"INSERT INTO names (names, rank) VALUES ('crisismerge', 1999)",
	"INSERT INTO names (names, rank) VALUES ('usermerge', 16)",
	"INSERT INTO names (names, rank) VALUES ('deletemerge', 50)",
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

// flushNames brings the index of names up to date with the frozen generation, by as many plants as
// take as long as n rows, and reports whether that was the rest.
func (w *writer) flushNames(frozen *memtable.Generation, n int) (last bool, err error) {
	x, p := &w.tx.names, &w.tx.progress
	if x.state == indexOff {
		return true, nil
	}
	text, limit := 0, max(indexText, 3*(w.tx.bytes-w.bytes))
	n = max(1, min(n/indexWork, int(limit/rowOverhead)))
	chunk := frozen.From(p.nextName, math.MaxInt64, make([]memtable.Entry, 0, n))
	last = len(chunk) < n || chunk[n-1].ID == math.MaxInt64
	for _, e := range chunk {
		p.nextName = e.ID + 1
		p.left -= indexWork
		switch {
		case !x.has(e.ID): // it will be added
		case e.Deleted():
			if err := exec(w.conn, "DELETE FROM names WHERE rowid = ?", int64(e.ID)); err != nil {
				return false, err
			}
			x.merged = false
		default:
			name := frozen.Plant(e).Name
			text += rowOverhead + len(name) // as what is appended is counted: folded it may be longer
			if err := w.addName(e.ID, name); err != nil {
				return false, err
			}
		}
		if int64(text) >= limit {
			return last && e.ID == chunk[len(chunk)-1].ID, nil
		}
	}
	return last, nil
}

// addName adds a plant to the index, or replaces it there. They are added in order of their ids.
func (w *writer) addName(id plantstore.ID, name string) error {
	stmt, err := w.conn.Prepare(insertName)
	if err != nil {
		return err
	}
	name = indexed(&w.fold, id, name)
	stmt.BindInt64(1, int64(id))
	stmt.BindText(2, name)
	if err := run(stmt, len(name)); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	w.tx.names.merge += 1 + len(name)
	w.tx.names.merged = false
	return nil
}

// insertName adds a plant to the index of names. REPLACE removes what it has of the plant, so that
// the statement can be repeated. It does not add several: for the savepoint of such a statement FTS5
// would make a segment.
const insertName = "REPLACE INTO names (rowid, name) VALUES (?, ?)"

// mergePages returns how many pages a transaction merges that appends so many bytes to the log, if
// so many bytes of names are to be merged.
func mergePages(appended int64, names int) int {
	return max(mergeStep, min(int(appended)/mergeShare, 1+names/mergedText, maxMerge))
}

// mergeNames merges segments of the index, a few pages of them. FTS5 does not interrupt the list of
// one trigram, which takes about a tenth of a second for a million plants.
func (w *writer) mergeNames() error {
	pages := mergePages(w.tx.bytes-w.bytes, w.tx.names.merge)
	const changes = "SELECT total_changes()"
	before, err := number(w.conn, changes)
	if err != nil {
		return err
	}
	if err := exec(w.conn, "INSERT INTO names (names, rank) VALUES ('merge', ?)", pages); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	after, err := number(w.conn, changes)
	w.tx.names.merge = max(0, w.tx.names.merge-pages*mergedText)
	if after-before < 2 { // as FTS5 documents
		w.tx.names.merge, w.tx.names.merged = 0, true
	}
	return err
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
		if text += rowOverhead + len(p.Name); len(plants) == indexGroup || text >= 4*indexText {
			last = p.ID == math.MaxInt64
			return errStop
		}
		return nil
	}, "SELECT id, name FROM stored WHERE id >= ? ORDER BY id", int64(x.next))
	if err != nil {
		return err
	}
	for _, p := range plants {
		if err := w.addName(p.ID, p.Name); err != nil {
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
	for _, table := range []string{"_data", "_idx", "_docsize"} {
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
