package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// The statements that keep the number of plants per tag. They follow the one that locks
// log_state, so that transactions never wait for each other's tags. One that is part of
// the same statement inserts: an update would not see what was committed while the
// statement waited for that lock.
const (
	insertTags = `INSERT INTO tags (key, tag, plants) `
	orAddTags  = ` ON CONFLICT (key) DO UPDATE SET plants = tags.plants + excluded.plants`
	addTags    = insertTags + `SELECT * FROM unnest($1::bytea[], $2::text[], $3::bigint[])` + orAddTags

	subtractTags = `UPDATE tags SET plants = tags.plants - less.plants
		FROM unnest($1::bytea[], $2::bigint[]) AS less (key, plants) WHERE tags.key = less.key`
	deleteTags = `DELETE FROM tags WHERE key = ANY ($1::bytea[]) AND plants = 0`

	// selectTags sorts by the start of the tag, which is in the index, and then only
	// those that start alike.
	selectTags = `SELECT tag, plants FROM tags WHERE left(tag, 500) >= $1 AND tag >= $2 ORDER BY left(tag, 500), tag LIMIT $3`
)

// tagStart is how many characters of a tag are in the index that has their order.
const tagStart = 500

// PostgreSQL's type text rejects U+0000. In the table of tags it is escaped in a way that
// preserves the order of bytes.
var (
	orderEscapes   = strings.NewReplacer("\x00", "\x01\x01", "\x01", "\x01\x02")
	orderUnescapes = strings.NewReplacer("\x01\x01", "\x00", "\x01\x02", "\x01")
)

// tagKey is the key of a tag in the table of tags.
type tagKey [16]byte

func newTagKey(tag string) tagKey {
	sum := sha256.Sum256([]byte(orderEscapes.Replace(tag)))
	return tagKey(sum[:])
}

// tagCounts are numbers of plants by tag, as arguments of a statement.
type tagCounts struct {
	keys   [][]byte
	tags   []string
	plants []int64
	size   int // of the text
}

func (c *tagCounts) add(tag string, plants int64) {
	key := newTagKey(tag)
	c.keys, c.tags, c.plants = append(c.keys, key[:]), append(c.tags, orderEscapes.Replace(tag)), append(c.plants, plants)
	c.size += len(tag)
}

// newTags counts the tags of rows that get a plant.
func newTags(rows []*row) map[string]int64 {
	counts := make(map[string]int64)
	for _, r := range rows {
		if r.after == nil {
			continue
		}
		if tag, ok := r.after.Tag.Text(); ok {
			counts[tag]++
		}
	}
	return counts
}

// countNew returns the tags of the plan's new plants.
func (p *plan) countNew() (c tagCounts) {
	for tag, n := range newTags(p.rows) {
		c.add(tag, n)
	}
	return c
}

// tagKeys returns the key of each row's tag, or nil if it has none.
func tagKeys(rows []*row) [][]byte {
	keys := make([][]byte, len(rows))
	known := make(map[string][]byte)
	for i, r := range rows {
		tag, ok := r.after.Tag.Text()
		if !ok {
			continue
		}
		if known[tag] == nil {
			key := newTagKey(tag)
			known[tag] = key[:]
		}
		keys[i] = known[tag]
	}
	return keys
}

// queueTags queues what the plan changes about tags.
func (p *plan) queueTags(b *pgx.Batch) {
	less := make(map[tagKey]int64)
	for _, r := range p.rows {
		if (r.action == replaceRow || r.action == deleteRow) && r.was != nil {
			less[*r.was]++
		}
	}
	more := newTags(filter(p.rows, func(r *row) bool { return r.action == insertRow || r.action == replaceRow }))
	var added tagCounts
	queue := func() {
		if len(added.keys) > 0 {
			b.Queue(addTags, added.keys, added.tags, added.plants)
			added = tagCounts{}
		}
	}
	for tag, n := range more {
		key := newTagKey(tag)
		n -= less[key]
		delete(less, key)
		if n > 0 {
			added.add(tag, n)
		} else if n < 0 {
			less[key] = -n
		}
		if added.size > statementSize {
			queue()
		}
	}
	queue()
	if len(less) == 0 {
		return
	}
	var keys [][]byte
	var plants []int64
	for _, key := range slices.SortedFunc(maps.Keys(less), func(a, b tagKey) int { return cmp.Compare(string(a[:]), string(b[:])) }) {
		keys, plants = append(keys, key[:]), append(plants, less[key])
	}
	b.Queue(subtractTags, keys, plants)
	b.Queue(deleteTags, keys)
}

// Tags returns one page of tags. A statement is a snapshot.
func (s *Store) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	start := orderEscapes.Replace(q.Start())
	fetch := min(q.Limit, 1<<20) + 1
	var b *plantstore.TagPageBuilder
	err := s.retryRead(ctx, s.read, func(ctx context.Context, c *pgx.Conn) error {
		b = plantstore.NewTagPageBuilder(q)
		rows, err := c.Query(ctx, selectTags, prefix(start, tagStart), start, fetch)
		if err != nil {
			return err
		}
		defer rows.Close()
		for fetched, text := 1, 0; rows.Next(); fetched++ {
			var t plantstore.TagCount
			if err := rows.Scan(&t.Tag, &t.Plants); err != nil {
				return err
			}
			text += len(t.Tag)
			t.Tag = orderUnescapes.Replace(t.Tag)
			if !b.Add(t) {
				closeUnlessShort(ctx, c, text, fetched, fetch-fetched)
				return nil
			}
			if fetched == fetch {
				b.End(t.Tag + "\x00")
			}
		}
		return rows.Err()
	})
	if err != nil {
		return plantstore.TagPage{}, err
	}
	return b.Page(), nil
}
