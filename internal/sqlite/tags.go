package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tidwall/btree"
	"zombiezen.com/go/sqlite"

	"plantstore"
)

// tagSum is what has changed about a tag since a generation began: how many more plants
// have it, and which have got or lost it. A reader whose snapshot is older than the last
// transaction that changed it sees the number before.
type tagSum struct {
	n, before int64
	seq       int64           // the last row of that transaction
	ids       []plantstore.ID // of the plants that have got or lost it
	lost      []plantstore.ID // of those that have lost it, maybe to get it again
	sorted    bool
}

func (s *tagSum) at(seq int64) int64 {
	if s.seq > seq {
		return s.before
	}
	return s.n
}

// sort sorts the ids. The generation must be frozen: the flush is the only one to use them.
// For half a million ids it takes some 60 ms, once.
func (s *tagSum) sort() {
	if s.sorted {
		return
	}
	slices.Sort(s.ids)
	slices.Sort(s.lost)
	s.ids, s.sorted = slices.Compact(s.ids), true
}

// tagOverhead is the approximate size of a tag in memory in addition to its text, and idSize
// that of the id of a plant that has got or lost it, in bytes.
const (
	tagOverhead = 132
	idSize      = 8
)

// tagChange says that a plant has got or lost a tag.
type tagChange struct {
	tag  string
	id   plantstore.ID
	lost bool
}

// size returns how much memory it takes.
func (c *tagChange) size() int64 {
	if c.lost {
		return 2 * idSize
	}
	return idSize
}

// changeTags adds what a row changes.
func changeTags(changes []tagChange, kind int64, plant plantstore.Plant, was plantstore.Tag) []tagChange {
	if kind == rowReplaced && plant.Tag == was {
		return changes
	}
	if text, ok := plant.Tag.Text(); ok {
		changes = append(changes, tagChange{text, plant.ID, kind == rowDeleted})
	}
	if text, ok := was.Text(); ok && kind == rowReplaced {
		changes = append(changes, tagChange{text, plant.ID, true})
	}
	return changes
}

// tagSums are the sums of a generation, in the order of the tags.
type tagSums struct {
	btree.Map[string, *tagSum]
	bytes   int64 // approximately in memory
	changes int
}

// add adds the changes of a transaction that ends with that row.
func (t *tagSums) add(changes []tagChange, seq int64) {
	for _, c := range changes {
		sum, ok := t.Get(c.tag)
		if !ok {
			sum = new(tagSum)
			t.Set(strings.Clone(c.tag), sum)
			t.bytes += int64(len(c.tag)) + tagOverhead
		}
		if sum.seq != seq {
			sum.before, sum.seq = sum.n, seq
		}
		sum.ids = append(sum.ids, c.id)
		if c.lost {
			sum.n--
			sum.lost = append(sum.lost, c.id)
		} else {
			sum.n++
		}
		t.bytes += c.size()
	}
	t.changes += len(changes)
}

// remove takes back the changes that were added last.
func (t *tagSums) remove(changes []tagChange) {
	for _, c := range changes {
		sum, _ := t.Get(c.tag)
		sum.n, sum.seq = sum.before, 0
		sum.ids = sum.ids[:len(sum.ids)-1]
		if c.lost {
			sum.lost = sum.lost[:len(sum.lost)-1]
		}
		t.bytes -= c.size()
	}
	t.changes -= len(changes)
}

// rows returns how many rows a flush of the tags writes, at most.
func (t *tagSums) rows() int { return t.Len() + t.changes }

// next returns the first tag that is not before that one, or that comes after it.
func (t *tagSums) next(tag string, after bool) (next string, sum *tagSum, ok bool) {
	t.Ascend(tag, func(key string, value *tagSum) bool {
		if after && key == tag {
			return true
		}
		next, sum, ok = key, value, true
		return false
	})
	return next, sum, ok
}

// tagChunk has sums of adjacent tags.
type tagChunk struct {
	tags []plantstore.TagCount // with changes instead of numbers
	end  string                // the tag after the last, or empty if there is none
}

// chunk returns up to n sums from the first tag on, as a snapshot at that row sees them.
// It ends early when they have that many bytes of text.
func (t *tagSums) chunk(first string, seq int64, n int, text int64) (c tagChunk) {
	t.Ascend(first, func(tag string, sum *tagSum) bool {
		if len(c.tags) == n || text <= 0 && len(c.tags) > 0 {
			c.end = tag
			return false
		}
		c.tags = append(c.tags, plantstore.TagCount{Tag: tag, Plants: sum.at(seq)})
		text -= int64(len(tag))
		return true
	})
	return c
}

// tagMark says that while the rows up to seq are flushed, the table of tags has their
// changes to tags before next. It is zero if there are none.
type tagMark struct {
	seq  int64
	next string
}

// readTagMark reads the mark. The connection is in a transaction.
func readTagMark(c *sqlite.Conn) (m tagMark, err error) {
	row, err := c.Prepare("SELECT tags_seq, tags_next FROM log_state")
	if err != nil {
		return m, err
	}
	defer row.Reset()
	if found, err := row.Step(); err != nil || !found {
		return m, cmp.Or(err, errNoState)
	}
	return tagMark{row.ColumnInt64(0), row.ColumnText(1)}, nil
}

// flushTags brings the tables of tags up to date with the frozen generation, by about n rows
// with up to that many bytes of text, and reports whether that was the rest. It goes
// from tag to tag: which plants have it, and then how many. The former it can repeat; to
// add a number twice would be wrong. So the mark, which is written in the same transaction,
// says which numbers have been added.
func (w *writer) flushTags(frozen *generation, n int, text int64) (last bool, err error) {
	p := &w.tx.progress
	tag, sum, ok := frozen.tags.next(p.tag, false)
	for ok && n > 0 && text > 0 {
		rows, done, err := w.flushTag(frozen, tag, sum, min(n, 1+int(text/int64(1+len(tag)))))
		if err != nil {
			return false, err
		}
		size := rows * len(tag)
		n, text = n-rows, text-int64(size)
		p.left -= rows
		w.tx.text += int64(size)
		w.tx.pages += 2 + rows/groupSize + size/pageSize
		if !done {
			break
		}
		tag, sum, ok = frozen.tags.next(tag, true)
		p.tag, p.id = tag, firstID
	}
	if !ok {
		return true, nil
	}
	w.setTagMark.BindInt64(1, frozen.final.Load())
	w.setTagMark.BindText(2, tag)
	if err := run(w.setTagMark); err != nil || w.conn.Changes() == 1 {
		return false, err
	}
	return false, errNoState
}

// flushTag brings the table of tagged plants up to date with the next n plants that have
// got or lost a tag, and after the last that of tags. It returns how many rows it was, and
// whether it is done with the tag. For plants it writes final states: whatever an
// interrupted flush has left, the table is right afterwards.
func (w *writer) flushTag(frozen *generation, tag string, sum *tagSum, n int) (rows int, done bool, err error) {
	sum.sort()
	next, _ := slices.BinarySearch(sum.ids, w.tx.progress.id)
	ids := sum.ids[next:]
	if done = len(ids) <= n; !done {
		w.tx.progress.id = ids[n]
		ids = ids[:n]
	}
	rows = len(ids)
	if len(sum.lost) > 0 {
		if ids, err = w.untagLost(frozen, tag, sum.lost, ids); err != nil {
			return 0, false, err
		}
	}
	if err := w.addTagged(tag, ids); err != nil || !done {
		return rows, false, err
	}
	return rows + 1, true, w.storeTag(tag, sum.n)
}

// untagLost removes those of the ids from the table of tagged plants that do not have the
// tag any more, and returns the others.
func (w *writer) untagLost(frozen *generation, tag string, lost, ids []plantstore.ID) (tagged []plantstore.ID, err error) {
	hash := hashTag(plantstore.NewTag(tag))
	for _, id := range ids {
		has := true
		if _, ok := slices.BinarySearch(lost, id); ok {
			if has, err = w.hasTag(frozen, id, tag, hash); err != nil {
				return nil, err
			}
		}
		if has {
			tagged = append(tagged, id)
			continue
		}
		w.untag.BindText(1, tag)
		w.untag.BindInt64(2, int64(id))
		if err := run(w.untag); err != nil {
			return nil, err
		}
	}
	return tagged, nil
}

// hasTag reports whether a plant of the frozen generation has the tag with that hash.
func (w *writer) hasTag(frozen *generation, id plantstore.ID, tag string, hash uint32) (bool, error) {
	e, _ := frozen.find(id, math.MaxInt64)
	if e.tag != hash {
		return false, nil
	}
	plant, err := entryPlant(w.logged, e)
	return err == nil && plant.Tag == plantstore.NewTag(tag), err
}

// The start and the end of a statement that adds plants to the table of tagged plants.
const (
	insertTagged   = "INSERT INTO stored_by_tag (tag, id) VALUES "
	unlessIncluded = " ON CONFLICT DO NOTHING"
)

// taggedGroup returns the rows of a group, which have the same tag.
func taggedGroup() string {
	var rows strings.Builder
	for i := range groupSize {
		if i > 0 {
			rows.WriteString(", ")
		}
		fmt.Fprintf(&rows, "(?1, ?%d)", i+2)
	}
	return rows.String()
}

// addTagged adds plants to the table of tagged plants.
func (w *writer) addTagged(tag string, ids []plantstore.ID) error {
	for len(ids) > 0 {
		stmt, n := w.tagOne, 1
		if len(ids) >= groupSize {
			stmt, n = w.tagGroup, groupSize
		}
		stmt.BindText(1, tag)
		for i, id := range ids[:n] {
			stmt.BindInt64(i+2, int64(id))
		}
		if err := run(stmt); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// storeTag adds to the number of plants that have a tag.
func (w *writer) storeTag(tag string, n int64) error {
	if n == 0 {
		return nil
	}
	stmt := w.addTag
	if n < 0 {
		stmt = w.subtractTag
	}
	stmt.BindText(1, tag)
	stmt.BindInt64(2, n)
	if err := run(stmt); err != nil || n > 0 {
		return err
	}
	if w.conn.Changes() != 1 {
		return inconsistent("there are fewer plants with the tag %q than the log says", plantstore.Shorten(tag))
	}
	w.removeTag.BindText(1, tag)
	return run(w.removeTag)
}

// Tags returns one page of tags: those of the table, with the changes that it does not
// have yet.
func (s *Store) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	b := plantstore.NewTagPageBuilder(q)
	err := s.withReader(ctx, s.read, func(r *reader) error {
		snap, err := s.tagSnapshot(r.conn, q)
		if err != nil {
			return err
		}
		defer snap.tx.end()
		return snap.each(r.conn, q.Start(), b)
	})
	if err != nil {
		return plantstore.TagPage{}, err
	}
	return b.Page(), nil
}

// tagSnapshot is a read transaction, and the changes that it does not find in the table.
type tagSnapshot struct {
	tx             *readTx
	active, frozen tagChunk
}

// maxUnusedTags is how many tags without plants a page may meet before it ends early.
const maxUnusedTags = 1024

// tagSnapshot begins a read transaction, which the caller must end, and collects the
// changes.
func (s *Store) tagSnapshot(c *sqlite.Conn, q plantstore.TagQuery) (*tagSnapshot, error) {
	for {
		snap, err := s.tryTagSnapshot(c, s.unflushed.Load(), q)
		if err != nil || snap != nil {
			return snap, err
		}
	}
}

// tryTagSnapshot returns nil if the active generation was frozen before the transaction
// began. While it holds that generation, nothing can be added to it: the snapshot has
// every transaction whose changes are there, or all but the last.
func (s *Store) tryTagSnapshot(c *sqlite.Conn, mem *unflushed, q plantstore.TagQuery) (snap *tagSnapshot, err error) {
	mem.active.mu.RLock()
	defer mem.active.mu.RUnlock()
	tx, err := beginRead(c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if snap == nil {
			tx.end()
		}
	}()
	state := tx.logState
	mark, err := readTagMark(c)
	if err != nil {
		return nil, err
	}
	if s.lock == nil {
		// The server's sums are in another process, so load them from the log.
		mem = &unflushed{active: newGeneration(), frozen: newGeneration()}
		mem.frozen.final.Store(mark.seq)
		_, _, err := loadEntries(c, state.flushed, mark.seq, mem.frozen)
		if err == nil {
			_, _, err = loadEntries(c, max(state.flushed, mark.seq), state.seq, mem.active)
		}
		if err != nil {
			return nil, err
		}
	} else if !mem.active.covers(state.seq) {
		return nil, nil
	}
	n := min(q.Limit, math.MaxInt32) + maxUnusedTags
	return &tagSnapshot{tx, mem.active.notFlushed(state, mark, q.Start(), n), mem.frozen.notFlushed(state, mark, q.Start(), n)}, nil
}

// notFlushed returns the sums from the first tag on that the table does not have. The
// caller holds the active generation.
func (g *generation) notFlushed(state logState, mark tagMark, first string, n int) tagChunk {
	if g == nil {
		return tagChunk{}
	}
	switch final := g.final.Load(); {
	case final != 0 && final <= state.flushed:
		return tagChunk{}
	case final != 0 && final == mark.seq:
		first = max(first, mark.next)
	}
	return g.tags.chunk(first, state.seq, n, flushText)
}

// each adds the tags from the first on to a page: the rows of the table and the changes,
// merged in order.
func (snap *tagSnapshot) each(c *sqlite.Conn, first string, b *plantstore.TagPageBuilder) error {
	rows, err := c.Prepare("SELECT tag, plants FROM stored_tags WHERE tag >= ? ORDER BY tag")
	if err != nil {
		return err
	}
	defer rows.Reset()
	rows.BindText(1, first)
	var row tagChunk // the next one of the table
	for found := true; ; {
		if len(row.tags) == 0 && found {
			if found, err = rows.Step(); err != nil {
				return err
			}
			if found {
				row.tags = []plantstore.TagCount{{Tag: rows.ColumnText(0), Plants: rows.ColumnInt64(1)}}
			}
		}
		next, ok := leastTag(row, snap.active, snap.frozen)
		if !ok {
			return nil
		}
		if next != "" && (next == snap.active.end || next == snap.frozen.end) {
			b.End(next) // what follows may have changes that were not collected
			return nil
		}
		sum := snap.active.take(next) + snap.frozen.take(next) + row.take(next)
		if !b.Add(plantstore.TagCount{Tag: next, Plants: sum}) {
			return nil
		}
	}
}

// leastTag returns the first tag, or end, of the chunks.
func leastTag(chunks ...tagChunk) (least string, ok bool) {
	for _, c := range chunks {
		first := c.end
		if len(c.tags) > 0 {
			first = c.tags[0].Tag
		} else if c.end == "" {
			continue
		}
		if !ok || first < least {
			least, ok = first, true
		}
	}
	return least, ok
}

// take removes the first tag of the chunk, if it is that one, and returns its number.
func (c *tagChunk) take(tag string) (n int64) {
	if len(c.tags) == 0 || c.tags[0].Tag != tag {
		return 0
	}
	n = c.tags[0].Plants
	c.tags = c.tags[1:]
	return n
}
