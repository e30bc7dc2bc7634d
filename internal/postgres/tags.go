package postgres

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// The statements that keep the number of plants per tag. A batch says in its row of the
// log what it changes. That is added to the table later, for many batches at once: every
// batch would change the same few rows, and keep all others waiting for them.
const (
	selectUnfolded = `SELECT seq > (SELECT folded FROM tags_state WHERE id = 1) FROM log_state WHERE id = 1`
	lockTags       = `SELECT folded FROM tags_state WHERE id = 1 FOR UPDATE`
	// selectToFold has the first $2 rows after $1, and the end of the log.
	selectToFold = `SELECT first, coalesce(pg_column_size(tag_text), 0), (SELECT seq FROM log_state WHERE id = 1)
		FROM log WHERE first > $1 ORDER BY first LIMIT $2`
	// foldTags adds what the rows from $1 to $2 change, and returns the tags that no
	// plant has anymore. Without a text, a tag is in the table.
	foldTags = `WITH sums AS (
			SELECT changed.key, max(changed.tag) AS tag, sum(changed.plants)::bigint AS plants
			FROM log, unnest(tag_key, tag_text, tag_plants) AS changed (key, tag, plants)
			WHERE first > $1 AND first <= $2 GROUP BY changed.key HAVING sum(changed.plants) <> 0
		), added AS (
			INSERT INTO tags (key, tag, plants) SELECT key, tag, plants FROM sums WHERE tag IS NOT NULL
			ON CONFLICT (key) DO UPDATE SET plants = tags.plants + excluded.plants RETURNING key, plants
		), subtracted AS (
			UPDATE tags SET plants = tags.plants + sums.plants FROM sums
			WHERE sums.tag IS NULL AND tags.key = sums.key RETURNING tags.key, tags.plants
		)
		SELECT key FROM added WHERE plants = 0 UNION ALL SELECT key FROM subtracted WHERE plants = 0`
	deleteTags = `DELETE FROM tags WHERE key = ANY ($1::bytea[]) AND plants = 0`
	setFolded  = `UPDATE tags_state SET folded = $1 WHERE id = 1`

	// selectTags sorts by the start of the tag, which is in the index, and then only
	// those that start alike.
	selectTags = `SELECT tag, plants FROM tags WHERE left(tag, 500) >= $1 AND tag >= $2 ORDER BY left(tag, 500), tag LIMIT $3`
)

// How tags are folded: up to maxFold rows of the log, or about foldSize bytes of tags, in
// a transaction, as many as it takes, every foldInterval.
const (
	maxFold      = 2000
	foldSize     = 16 << 20
	foldInterval = 2 * time.Second
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

// tagCounts are changes of the number of plants by tag, as arguments of a statement. The
// text of a tag is nil if the table has it.
type tagCounts struct {
	keys   [][]byte
	tags   []*string
	plants []int64
}

func (c *tagCounts) add(key tagKey, tag *string, plants int64) {
	c.keys, c.tags, c.plants = append(c.keys, key[:]), append(c.tags, tag), append(c.plants, plants)
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

// countNew returns the tags of new plants.
func countNew(rows []*row) (c tagCounts) {
	for tag, n := range newTags(rows) {
		c.add(newTagKey(tag), new(orderEscapes.Replace(tag)), n)
	}
	return c
}

// countChanges returns what the plan changes about tags.
func (p *plan) countChanges() (c tagCounts) {
	less := make(map[tagKey]int64)
	for _, r := range p.to(replaceRow, deleteRow) {
		if r.was != nil {
			less[*r.was]++
		}
	}
	for tag, n := range newTags(p.to(insertRow, replaceRow)) {
		key := newTagKey(tag)
		n -= less[key]
		delete(less, key)
		switch {
		case n > 0:
			c.add(key, new(orderEscapes.Replace(tag)), n)
		case n < 0:
			c.add(key, nil, n)
		}
	}
	for key, n := range less {
		c.add(key, nil, -n)
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

// fold adds to the table of tags what the log had changed about them when it was called.
func (s *Store) fold(ctx context.Context) error {
	for more := true; more; {
		err := s.withConn(ctx, s.list, s.callTimeout, func(ctx context.Context, c *pgx.Conn) error {
			if err := c.QueryRow(ctx, selectUnfolded).Scan(&more); err != nil || !more {
				return err
			}
			return pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) (err error) {
				more, err = foldSome(ctx, tx)
				return err
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// foldSome folds some rows, the oldest first, and reports whether there are more. It need
// not be on disk when it commits: a fold that is lost is repeated.
func foldSome(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	var folded int64
	if err := tx.QueryRow(ctx, lockTags).Scan(&folded); err != nil {
		return false, err
	}
	to, more, err := foldTarget(ctx, tx, folded)
	if err != nil || to == folded {
		return false, err
	}
	rows, err := tx.Query(ctx, foldTags, folded, to)
	if err != nil {
		return false, err
	}
	gone, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return false, err
	}
	var b pgx.Batch
	b.Queue(commitAsync)
	if len(gone) > 0 {
		b.Queue(deleteTags, gone)
	}
	b.Queue(setFolded, to)
	return more, tx.SendBatch(ctx, &b).Close()
}

// foldTarget returns the last event up to which to fold, and whether there are more.
func foldTarget(ctx context.Context, tx pgx.Tx, folded int64) (to int64, more bool, err error) {
	rows, err := tx.Query(ctx, selectToFold, folded, maxFold+1)
	if err != nil {
		return folded, false, err
	}
	to = folded
	var first, size, end int64
	n, total := 0, int64(0)
	_, err = pgx.ForEachRow(rows, []any{&first, &size, &end}, func() error {
		total += size
		switch {
		case more:
		case n == maxFold || n > 0 && total > foldSize:
			to, more = first-1, true
		default:
			to = end
		}
		n++
		return nil
	})
	return to, more, err
}

// foldAll folds now and then until ctx ends, so that there is little to fold when tags are
// read.
func (s *Store) foldAll(ctx context.Context) {
	tick := time.NewTicker(foldInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.fold(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("cannot count the plants per tag, retrying", "db", s.name, "err", err)
		}
	}
}

// Tags returns one page of tags. A statement is a snapshot: of the store as it was at the
// last fold, which is not older than the call.
func (s *Store) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	start := orderEscapes.Replace(q.Start())
	fetch := min(q.Limit, 1<<20) + 1
	var b *plantstore.TagPageBuilder
	read := func(ctx context.Context, c *pgx.Conn) error {
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
	}
	err := s.retry(ctx, func() error {
		if err := s.fold(ctx); err != nil {
			return err
		}
		return s.withConn(ctx, s.list, s.callTimeout, read)
	})
	if err != nil {
		return plantstore.TagPage{}, err
	}
	return b.Page(), nil
}
