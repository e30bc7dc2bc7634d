package sqlite

import (
	"cmp"
	"context"
	"math"
	"strings"

	"github.com/tidwall/btree"
	"zombiezen.com/go/sqlite"

	"plantstore"
)

// tagSum is how many more plants have a tag since a generation began. A reader whose
// snapshot is older than the last transaction that changed it sees the number before.
type tagSum struct {
	n, before int64
	seq       int64 // the last row of that transaction
}

func (s *tagSum) at(seq int64) int64 {
	if s.seq > seq {
		return s.before
	}
	return s.n
}

// tagOverhead is the approximate size of a tag in memory in addition to its text, in
// bytes.
const tagOverhead = 96

// tagSums are the sums of a generation, in the order of the tags.
type tagSums struct {
	btree.Map[string, *tagSum]
	bytes int64 // approximately in memory
}

// add adds the changes of a transaction that ends with that row.
func (t *tagSums) add(changes map[string]int64, seq int64) {
	for tag, n := range changes {
		if n == 0 {
			continue
		}
		sum, ok := t.Get(tag)
		if !ok {
			sum = new(tagSum)
			t.Set(strings.Clone(tag), sum)
			t.bytes += int64(len(tag)) + tagOverhead
		}
		sum.before, sum.seq = sum.n, seq
		sum.n += n
	}
}

// remove takes back the changes that were added last.
func (t *tagSums) remove(changes map[string]int64) {
	for tag, n := range changes {
		if n == 0 {
			continue
		}
		if sum, ok := t.Get(tag); ok {
			sum.n, sum.seq = sum.before, 0
		}
	}
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

// changeTags adds what a row changes to the numbers of plants per tag.
func changeTags(changes map[string]int64, kind int64, tag, was plantstore.Tag) {
	if kind == rowReplaced && tag == was {
		return
	}
	if text, ok := tag.Text(); ok && kind == rowDeleted {
		changes[text]--
	} else if ok {
		changes[text]++
	}
	if text, ok := was.Text(); ok && kind == rowReplaced {
		changes[text]--
	}
}

// flushTags brings the table of tags up to date with the next n tags of the frozen
// generation, but with no more text than that. It reports whether these were the last.
// Adding a change twice would be wrong, so the mark, which is written in the same
// transaction, says which changes have been added.
func (w *writer) flushTags(frozen *generation, n int, text int64) (last bool, err error) {
	chunk := frozen.tags.chunk(w.tx.nextTag, math.MaxInt64, n, text)
	for _, t := range chunk.tags {
		if err := w.storeTag(t.Tag, t.Plants); err != nil {
			return false, err
		}
		w.tx.text += int64(len(t.Tag))
		w.tx.pages += 1 + len(t.Tag)/pageSize
	}
	w.tx.left -= len(chunk.tags)
	if chunk.end == "" {
		return true, nil
	}
	w.tx.nextTag = chunk.end
	w.setTagMark.BindInt64(1, frozen.final.Load())
	w.setTagMark.BindText(2, w.tx.nextTag)
	if err := run(w.setTagMark); err != nil || w.conn.Changes() == 1 {
		return false, err
	}
	return false, errNoState
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
		_, err := loadEntries(c, state.flushed, mark.seq, mem.frozen)
		if err == nil {
			_, err = loadEntries(c, max(state.flushed, mark.seq), state.seq, mem.active)
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
