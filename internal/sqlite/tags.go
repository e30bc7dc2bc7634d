package sqlite

import (
	"context"
	"slices"
	"strings"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/memtable"
	"plantstore/internal/rules"
)

// flushTags brings the table of tagged plants up to date with the frozen generation, by about
// n rows with up to that many bytes of text, and reports whether that was the rest. It goes
// from tag to tag, in order of id: a plant that has the tag in the end is added, one that has
// not is removed, whatever an interrupted flush has left.
func (w *writer) flushTags(frozen *memtable.Generation, n int, text int64) (last bool, err error) {
	p := &w.tx.progress
	for n > 0 && text > 0 {
		if len(p.ids) == 0 {
			tag, ok := frozen.NextTag(p.nextTag)
			if !ok {
				return true, nil
			}
			p.tag, p.nextTag = tag, tag+"\x00" // the least text after it
			p.ids, p.has = frozen.Tagged(tag)
		}
		ids := p.ids[:min(n, 1+int(text/int64(1+len(p.tag))), len(p.ids))]
		if err := w.storeTag(p.tag, ids, p.has[:len(ids)]); err != nil {
			return false, err
		}
		p.ids, p.has = p.ids[len(ids):], p.has[len(ids):]
		size := len(ids) * len(p.tag)
		n, text = n-max(1, len(ids)), text-int64(size)
		p.left -= len(ids)
		w.tx.text += int64(size)
	}
	return false, nil
}

// tagGroup is how many plants are brought up to date in the table of tagged plants at a time.
const tagGroup = 128

// storeTag brings the table of tagged plants up to date with plants that have got or lost a
// tag.
func (w *writer) storeTag(tag string, ids []plantstore.ID, has []bool) error {
	for len(ids) > 0 {
		n := min(tagGroup, len(ids))
		if err := w.storeTagged(tag, ids[:n], has); err != nil {
			return err
		}
		ids, has = ids[n:], has[n:]
	}
	return nil
}

// storeTagged is storeTag for a group. If the table has few other plants between the first and the last, it
// removes all, and adds those again that have the tag: that takes less time than to find each.
func (w *writer) storeTagged(tag string, ids []plantstore.ID, has []bool) error {
	var with, without []plantstore.ID
	for i, id := range ids {
		if has[i] {
			with = append(with, id)
		} else {
			without = append(without, id)
		}
	}
	if len(without) > 0 {
		first, last, few := int64(ids[0]), int64(ids[len(ids)-1]), 2*len(without)
		stored, err := queryAll(w.conn, func(row *sqlite.Stmt) (plantstore.ID, error) { return plantstore.ID(row.ColumnInt64(0)), nil },
			"SELECT id FROM stored_by_tag WHERE tag = ? AND id BETWEEN ? AND ? ORDER BY id LIMIT ?", tag, first, last, few+1)
		switch {
		case err != nil || len(stored) == 0:
		case len(stored) <= few:
			for _, id := range stored {
				if _, changed := slices.BinarySearch(ids, id); !changed {
					with = append(with, id)
				}
			}
			slices.Sort(with)
			err = exec(w.conn, "DELETE FROM stored_by_tag WHERE tag = ? AND id BETWEEN ? AND ?", tag, first, last)
		default:
			err = runTagged(w.fromTagged, tag, without)
		}
		if err != nil {
			return err
		}
	}
	return runTagged(w.intoTagged, tag, with)
}

// runTagged runs statements that bind a tag, and ids.
func runTagged(statements batched, tag string, ids []plantstore.ID) error {
	for len(ids) > 0 {
		stmt, n := statements.first(len(ids))
		stmt.BindText(1, tag)
		for i, id := range ids[:n] {
			stmt.BindInt64(i+2, int64(id))
		}
		if err := run(stmt, len(tag)); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// insertTagged returns a statement that adds n plants to the table of tagged plants. It binds
// their tag, and the ids. For OR IGNORE, unlike ON CONFLICT DO NOTHING, SQLite keeps no copies of
// the pages that it changes.
func insertTagged(n int) string {
	return "INSERT OR IGNORE INTO stored_by_tag (tag, id) VALUES (?1, ?2)" + strings.Repeat(", (?1, ?)", n-1)
}

// deleteTagged returns a statement that removes n plants from the table of tagged plants. It binds
// what insertTagged does.
func deleteTagged(n int) string {
	return "DELETE FROM stored_by_tag WHERE tag = ?1 AND id IN (?2" + strings.Repeat(", ?", n-1) + ")"
}

// tagBudget is how much work a page of tags does: the number of rows that it reads, where a
// plant that is looked up in memory counts as lookUpWork of them. It takes about a twentieth
// of a second.
const (
	tagBudget  = 100_000
	lookUpWork = 4
)

// Tags returns one page of tags.
func (s *Store) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	return readSnapshot(ctx, s.lists, func(snap *snapshot) (plantstore.TagPage, error) {
		page := rules.NewTagPageBuilder(q, tagBudget)
		mem, err := snap.unflushed()
		if err != nil {
			return plantstore.TagPage{}, err
		}
		from := q.Start()
		for {
			tag, ok, err := snap.nextTag(mem, from)
			if err != nil || !ok || !page.Wants(tag) {
				if last, find := page.Examined(); err == nil && find {
					var plants int
					var id plantstore.ID
					if plants, id, _, err = snap.countTagged(mem, last); plants > 0 {
						page.Found(id)
					}
				}
				return page.Page(), err
			}
			from = tag + "\x00" // the least text after it
			if !page.Matches(tag, lookUpWork) {
				continue
			}
			plants, id, work, err := snap.countTagged(mem, tag)
			if err != nil {
				return plantstore.TagPage{}, err
			}
			page.Add(tag, plants, id, work)
		}
	})
}

// nextTag returns the first tag that is not before from.
func (snap *snapshot) nextTag(mem *memtable.Unflushed, from string) (tag string, ok bool, err error) {
	tag, ok = mem.NextTag(from)
	err = query(snap.conn, func(row *sqlite.Stmt) error {
		if stored := row.ColumnText(0); !ok || stored < tag {
			tag, ok = stored, true
		}
		return nil
	}, "SELECT tag FROM stored_by_tag WHERE tag >= ? ORDER BY tag LIMIT 1", from)
	return tag, ok, err
}

// countTagged returns how many plants have a tag, one more than [plantstore.MaxTagPlants] at
// most, one of them, and how much work that was: those that have got or lost it in memory and
// have it in the end, and those that have it in the table, where memory does not say otherwise.
func (snap *snapshot) countTagged(mem *memtable.Unflushed, tag string) (plants int, one plantstore.ID, work int, err error) {
	const limit = plantstore.MaxTagPlants + 1
	found := make(map[plantstore.ID]bool)
	for id := range mem.Changed(tag) {
		work += lookUpWork
		if has, _ := mem.HasTag(id, tag, snap.Last); has {
			found[id], one = true, id
		}
		if len(found) == limit {
			return limit, one, work, nil
		}
	}
	plants = len(found)
	err = query(snap.conn, func(row *sqlite.Stmt) error {
		work++
		id := plantstore.ID(row.ColumnInt64(0))
		if has, logged := mem.HasTag(id, tag, snap.Last); (has || !logged) && !found[id] {
			plants++
			one = id
		}
		if plants == limit {
			return errStop
		}
		return nil
	}, "SELECT id FROM stored_by_tag WHERE tag = ? ORDER BY id", tag)
	return plants, one, work, err
}
