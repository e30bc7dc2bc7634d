package postgres

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

// The statements that keep the number of plants per tag. A batch says in its row of the
// log what it changes. That is added to the table later, for many batches at once: every
// batch would change the same few rows, and keep all others waiting for them.
const (
	selectUnfolded = `SELECT seq, (SELECT folded FROM tags_state WHERE id = 1) FROM log_state WHERE id = 1`
	lockTags       = `SELECT folded FROM tags_state WHERE id = 1 FOR UPDATE`
	// selectToFold has the first $2 rows after $1, and the end of the log.
	selectToFold = `SELECT first, tag_size, (SELECT seq FROM log_state WHERE id = 1)
		FROM log WHERE first > $1 ORDER BY first LIMIT $2`
	// addTags and subtractTags add what the rows from $1 to $2 change, and return the
	// tags that no plant has anymore. Without a text, a tag is in the table.
	addTags = `WITH sums AS (` + sumTags + `), added AS (
			INSERT INTO tags (key, tag, plants) SELECT key, tag, plants FROM sums WHERE tag IS NOT NULL
			ON CONFLICT (key) DO UPDATE SET plants = tags.plants + excluded.plants RETURNING key, plants
		)
		SELECT key FROM added WHERE plants = 0`
	subtractTags = `WITH sums AS (` + sumTags + `), subtracted AS (
			UPDATE tags SET plants = tags.plants + sums.plants FROM sums
			WHERE sums.tag IS NULL AND tags.key = sums.key RETURNING tags.key, tags.plants
		)
		SELECT key FROM subtracted WHERE plants = 0`
	sumTags = `SELECT changed.key, max(changed.tag) AS tag, sum(changed.plants)::bigint AS plants
			FROM log, unnest(tag_key, tag_text, tag_plants) AS changed (key, tag, plants)
			WHERE first > $1 AND first <= $2 GROUP BY changed.key HAVING sum(changed.plants) <> 0`
	deleteTags = `DELETE FROM tags WHERE key = ANY ($1::bytea[]) AND plants = 0`
	setFolded  = `UPDATE tags_state SET folded = $1 WHERE id = 1`

	// selectTags sorts by the start of the tag, which is in the index, and then only
	// those that start alike.
	selectTags = `SELECT tag, plants FROM tags WHERE left(tag, 500) >= $1 AND tag >= $2 ORDER BY left(tag, 500), tag LIMIT $3`
)

// How tags are folded: up to maxFold rows of the log, or about foldSize bytes of tags, in
// a transaction, as many as it takes, every foldInterval. A tag takes tagOverhead bytes in
// addition to its text.
const (
	maxFold      = 2000
	foldSize     = 4 << 20
	foldInterval = 2 * time.Second
	tagOverhead  = 80
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
	size   int64
}

func (c *tagCounts) add(key tagKey, tag *string, plants int64) {
	c.size += tagOverhead
	if tag != nil {
		c.size += int64(len(*tag))
	}
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

// folds lets one fold of a server run at a time.
type folds struct {
	running chan struct{} // holds a token while a fold runs
	started atomic.Int64  // folds that were started
	done    int64         // the last of them that succeeded
	limit   int           // on the rows of the next transaction; every failure halves it, because it may have taken too long
}

func newFolds() folds { return folds{running: make(chan struct{}, 1), limit: maxFold} }

// fold adds to the table of tags what the log had changed about them when it was called.
// Calls that wait for another's fold share the next one.
func (s *Store) fold(ctx context.Context) error {
	before := s.folds.started.Load()
	select {
	case s.folds.running <- struct{}{}:
		defer func() { <-s.folds.running }()
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", s.name, ctx.Err())
	}
	if s.folds.done > before {
		return nil
	}
	this, unfolded := s.folds.started.Add(1), s.unfolded.Load()
	for end, more := int64(-1), true; more; {
		err := s.withConn(ctx, s.write, s.callTimeout, func(ctx context.Context, c *pgx.Conn) (err error) {
			end, more, err = s.foldSome(ctx, c, end)
			return err
		})
		if err != nil {
			s.folds.limit = max(1, s.folds.limit/2)
			return err
		}
		s.folds.limit = min(maxFold, 2*s.folds.limit)
	}
	s.folds.done = this
	s.unfolded.Add(-unfolded)
	return nil
}

// awaitFold waits for a fold if there is too much to fold. It ignores errors: writes go
// on, and the next fold reports them.
func (s *Store) awaitFold(ctx context.Context) {
	if s.unfolded.Load() > foldSize {
		s.fold(ctx)
	}
}

// foldSome folds some rows, the oldest first, and reports whether there are more up to
// the event end, or up to the last one if end is negative. It returns that event.
func (s *Store) foldSome(ctx context.Context, c *pgx.Conn, end int64) (_ int64, more bool, err error) {
	var last, folded int64
	if err := c.QueryRow(ctx, selectUnfolded).Scan(&last, &folded); err != nil {
		return end, false, err
	}
	if end < 0 {
		end = last
	}
	if folded >= end {
		return end, false, nil
	}
	err = pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) error {
		folded, err = foldRows(ctx, tx, end, s.folds.limit)
		return err
	})
	return end, folded < end, err
}

// foldRows folds some rows, limit of them at most, unless all events up to end are
// folded, and returns the last one that is then. It need not be on disk when it commits: a
// fold that is lost is repeated.
func foldRows(ctx context.Context, tx pgx.Tx, end int64, limit int) (folded int64, err error) {
	if err := tx.QueryRow(ctx, lockTags).Scan(&folded); err != nil {
		return 0, err
	}
	if folded >= end { // another server has folded them
		return folded, nil
	}
	to, err := foldTarget(ctx, tx, folded, limit)
	if err != nil {
		return folded, err
	}
	if to == folded {
		return folded, fmt.Errorf("the log has no event %d", folded+1)
	}
	var gone [][]byte
	for _, statement := range []string{addTags, subtractTags} { // CockroachDB changes a table once in a statement
		rows, err := tx.Query(ctx, statement, folded, to)
		if err != nil {
			return folded, err
		}
		if gone, err = pgx.AppendRows(gone, rows, pgx.RowTo[[]byte]); err != nil {
			return folded, err
		}
	}
	var b pgx.Batch
	b.Queue(commitAsync)
	if len(gone) > 0 {
		b.Queue(deleteTags, gone)
	}
	b.Queue(setFolded, to)
	return to, tx.SendBatch(ctx, &b).Close()
}

// foldTarget returns the last event up to which to fold.
func foldTarget(ctx context.Context, tx pgx.Tx, folded int64, limit int) (to int64, err error) {
	rows, err := tx.Query(ctx, selectToFold, folded, limit+1)
	if err != nil {
		return folded, err
	}
	to = folded
	var first, size, end int64
	n, total, full := 0, int64(0), false
	_, err = pgx.ForEachRow(rows, []any{&first, &size, &end}, func() error {
		total += size
		switch {
		case full:
		case n == limit || n > 0 && total > foldSize:
			to, full = first-1, true
		default:
			to = end
		}
		n++
		return nil
	})
	return to, err
}

// foldAll folds now and then until ctx ends, so that there is little to fold when tags are
// read.
func (s *Store) foldAll(ctx context.Context) {
	tick := time.NewTicker(foldInterval)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := s.fold(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			s.log.Warn("cannot count the plants per tag, retrying", "db", s.name, "err", err)
		case err == nil && failing:
			s.log.Info("the plants per tag are counted again", "db", s.name)
		}
		failing = err != nil
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
