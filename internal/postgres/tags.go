package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/rules"
)

// tagBudget is how many plants one page of tags examines. They take about a tenth of a second
// to read.
const tagBudget = 50_000

// selectTags has up to $3 tags that are not before $1, in order, how many plants each has, counted
// up to $5, and one of these. It goes from the start of a tag in the index to the next one, and ends
// after one that does not begin as $2 does, or when it has counted $4 plants. A start that is not
// a whole tag may be that of several, whose plants are then grouped: all of them, whatever $4 is.
//
// No text that is stored contains U+0000, so the first text after another one adds U+0001 to
// it. As in [selectTagged], = is expressed by >= and <=.
const selectTags = `WITH RECURSIVE starts (start, plants, plant, counted, next) AS (
		SELECT NULL::text COLLATE "C", 0::bigint, 0::bigint, 0::bigint, left($1, 100) COLLATE "C"
		UNION ALL
		SELECT found.start, counted.plants, counted.plant, starts.counted + starts.plants, found.start || chr(1)
		FROM starts, LATERAL (
			SELECT left(tag, 100) COLLATE "C" AS start FROM stored_plants
			WHERE tag IS NOT NULL AND (left(tag, 100) COLLATE "C") >= starts.next
			ORDER BY (left(tag, 100) COLLATE "C"), id LIMIT 1
		) AS found, LATERAL (
			SELECT count(*) AS plants, min(id) AS plant FROM (
				SELECT id FROM stored_plants
				WHERE tag IS NOT NULL
					AND (left(tag, 100) COLLATE "C") >= found.start
					AND (left(tag, 100) COLLATE "C") <= found.start
				ORDER BY (left(tag, 100) COLLATE "C"), id
				LIMIT CASE WHEN length(found.start) < 100 THEN $5::bigint ELSE 0 END
			) AS first
		) AS counted
		WHERE (starts.start IS NULL OR starts_with(starts.start, left($2, 100))) AND starts.counted < $4
	)
	SELECT tags.tag, tags.plants, tags.plant FROM starts, LATERAL (
		SELECT starts.start AS tag, starts.plants, starts.plant WHERE starts.plants > 0
		UNION ALL (
			SELECT tag COLLATE "C" AS tag, count(*) AS plants, min(id) AS plant FROM stored_plants
			WHERE length(starts.start) = 100 AND tag IS NOT NULL
				AND (left(tag, 100) COLLATE "C") = starts.start AND tag COLLATE "C" >= $1
			GROUP BY 1 ORDER BY 1 LIMIT $3
		)
	) AS tags LIMIT $3`

// Tags returns one page of tags. A statement is a snapshot.
func (s *Store) Tags(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	most := q.Limit
	if q.Contains != "" {
		most = tagBudget // most of them may not match
	}
	args := []any{escape(q.Start()), escape(q.Prefix), min(most, tagBudget) + 1, tagBudget, plantstore.MaxTagPlants + 1}
	return read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) (plantstore.TagPage, error) {
		b := rules.NewTagPageBuilder(q, tagBudget)
		for t, err := range inOrder(ctx, c, rowTag, selectTags, args...) {
			if err != nil || !b.Wants(t.text) {
				return b.Page(), err
			}
			if b.Matches(t.text, t.plants) {
				b.Add(t.text, t.plants, plantstore.ID(t.plant), t.plants)
			} else {
				b.Found(plantstore.ID(t.plant))
			}
		}
		return b.Page(), nil
	})
}

// taggedPlants are the plants of a tag.
type taggedPlants struct {
	text   string
	plants int
	plant  int64 // one of them
}

func rowTag(row pgx.CollectableRow) (t taggedPlants, err error) {
	err = row.Scan(&t.text, &t.plants, &t.plant)
	t.text = unescape(t.text)
	return t, err
}
