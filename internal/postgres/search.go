package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/match"
)

const (
	// maxIndexedName is the length in bytes, as it is stored, from which on a name is not indexed: it
	// is examined by every search.
	maxIndexedName = 1 << 10
	// longName is what the index has instead: trigrams that hardly any name has.
	longName = "qxzq"

	// maxParts is how many parts of the plants, of examinedFirst each, a search examines before it asks the
	// index, and denseShare the share of a part, one in so many, that has to match for the next one.
	maxParts   = 5
	denseShare = 100
	// foundAtOnce is how many plants the index is asked for at once.
	foundAtOnce = 10_000
	// maxPatterns is how many words of a search the database compares. More would leave hardly fewer plants.
	maxPatterns = 8
)

// examinedFirst is how many plants a search examines in their order before it asks the index: what
// many plants have is found at once that way, while the index would be read for all of them. They take
// about 15 ms. Tests make it smaller.
var examinedFirst = 20_000

// indexedText is what the index has of a plant, and what the patterns of a search are compared with.
// Names of ASCII are folded by the database.
var indexedText = fmt.Sprintf(`(CASE WHEN octet_length(name) < %d THEN coalesce(folded, lower(name COLLATE "C")) ELSE '%s' END)`, maxIndexedName, longName)

const (
	// In these statements, %[1]s is a query for a part of the plants, and %[2]s the condition of [matching]. A filter
	// keeps the order of the part.
	selectMatching = ` FROM (SELECT *%[1]s) AS part WHERE %[2]s LIMIT %[3]s`
	// selectNextPart has the id of the plant after the part.
	selectNextPart = `SELECT id FROM (SELECT *%[1]s) AS part OFFSET %[2]s`
	// selectFound has the ids of up to $2 plants from $1 on that the index finds. The sum keeps the planner from another index.
	selectFound = `SELECT id FROM stored_plants WHERE id + 0 >>= $1 AND %s ORDER BY id << LIMIT $2`
)

// indexSettings leave the planner only the index of names: the settings of a role, and its estimates of
// what is rare, have no say. A search that takes longer than this is given up, and plants are read in
// their order instead: the plants that match may be many although those with the least ids do not.
var indexSettings = `SELECT set_config(name, value, true) FROM (VALUES
	('enable_bitmapscan', 'on'), ('enable_sort', 'on'), ('enable_seqscan', 'off'), ('enable_indexscan', 'off'), ('jit', 'off'),
	('max_parallel_workers_per_gather', '0'), ('gin_fuzzy_search_limit', '0'), ('statement_timeout', '200')) AS settings (name, value)`

// indexIsReady reports whether searches can use the index.
const indexIsReady = `SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('plants_by_name') AND indisvalid)`

// folder folds names for searches by the database. It is not safe for concurrent use.
type folder struct{ match.Matcher }

// folded returns what a search compares of a name, escaped, or nil if that is the stored name with its ASCII
// letters in lower case, or if the name is not indexed.
func (f *folder) folded(stored, name string) *string {
	if isASCII(name) || len(stored) >= maxIndexedName {
		return nil
	}
	if folded := lower(f.Fold(name)); folded != asciiLower(stored) {
		return &folded
	}
	return nil
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// asciiLower is lower(… COLLATE "C") of PostgreSQL.
func asciiLower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}

// lower returns a folded text as the database has it: pg_trgm ignores case, too, but by the rules of the
// database's locale, in which a letter may depend on those beside it. Of lower case it changes nothing. A text
// may be folded to a letter without case, such as the iota below others, so it is made upper case first.
func lower(folded []byte) string {
	return escape(strings.Map(func(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }, string(folded)))
}

var escapeLike = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`)

// patterns returns patterns of LIKE that the [indexedText] of every plant matches whose name has all words of
// a text, or nil if the index would not help: it looks for three letters or digits in a row.
func patterns(text string) (all []string) {
	for _, word := range match.New(text).Words() {
		if word := lower(word); hasTrigram(word) && len(all) < maxPatterns {
			all = append(all, "%"+escapeLike.Replace(word)+"%")
		}
	}
	return all
}

// hasTrigram reports whether pg_trgm finds a trigram in a part of a word.
func hasTrigram(text string) bool {
	row := 0
	for _, r := range text {
		row++
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Other_Alphabetic, r) {
			row = 0
		}
		if row == 3 {
			return true
		}
	}
	return false
}

// matching returns the condition that the [indexedText] matches n patterns, which are the parameters from
// first on.
func matching(first, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s LIKE $%d AND ", indexedText, first+i)
	}
	return "(" + strings.TrimSuffix(b.String(), " AND ") + " OR " + indexedText + " LIKE '%" + longName + "%')"
}

// readMatching reads plants from an id on that may match the words: parts of the plants that a query with
// these arguments has, as long as many match, and then those that the index finds. It reports whether the rest has to be read
// without the index, from which id on.
func (r *reader) readMatching(query string, args []any, first plantstore.ID, words []string) (next plantstore.ID, more bool, err error) {
	n := len(args)
	part := fmt.Sprintf(selectMatching, query, matching(n+1, len(words)), fmt.Sprint("$", n+1+len(words)))
	for parts := 0; parts < maxParts; {
		args[0], args[1] = int64(first), examinedFirst
		all := slices.Clone(args)
		for _, word := range words {
			all = append(all, word)
		}
		found, wants, err := r.read(part, append(all, r.fetch)...)
		if err != nil || !wants {
			return 0, false, err
		}
		if found == r.fetch {
			if first, more = r.query.Following(r.last); !more {
				return 0, false, nil
			}
			continue
		}
		parts++
		args[1] = examinedFirst + 1
		if first, more, err = r.nextPart(query, args); err != nil || !more {
			return 0, false, err
		}
		if found*denseShare < examinedFirst {
			break
		}
	}
	return r.readFound(first, words)
}

// nextPart returns the first id after the part of the plants that a query has.
func (r *reader) nextPart(query string, args []any) (next plantstore.ID, more bool, err error) {
	sql := r.order.Replace(fmt.Sprintf(selectNextPart, query, fmt.Sprint("$", len(args)+1)))
	for id, err := range inOrder(r.ctx, r.conn, pgx.RowTo[int64], sql, append(slices.Clone(args), examinedFirst)...) {
		return plantstore.ID(id), err == nil, err
	}
	return 0, false, nil
}

// readFound is readMatching for the plants that the index finds.
func (r *reader) readFound(first plantstore.ID, words []string) (next plantstore.ID, more bool, err error) {
	for {
		ids, err := r.find(first, words)
		if sqlState(err) == queryCanceled && r.ctx.Err() == nil {
			return first, true, nil
		}
		if err != nil {
			return 0, false, err
		}
		if wants, err := r.readIDs(first, ids); err != nil || !wants || len(ids) < foundAtOnce {
			return 0, false, err
		}
		if first, more = r.query.Following(ids[len(ids)-1]); !more {
			return 0, false, nil
		}
	}
}

// find asks the index for ids.
func (r *reader) find(first plantstore.ID, words []string) (ids []plantstore.ID, err error) {
	args := []any{int64(first), foundAtOnce}
	for _, word := range words {
		args = append(args, word)
	}
	var b pgx.Batch
	b.Queue("SAVEPOINT found")
	b.Queue(indexSettings)
	b.Queue(r.order.Replace(fmt.Sprintf(selectFound, matching(3, len(words)))), args...).Query(func(rows pgx.Rows) error {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[plantstore.ID])
		return err
	})
	err = r.conn.SendBatch(r.ctx, &b).Close()
	if r.conn.IsClosed() {
		return nil, err
	}
	// The settings are only for this statement.
	if _, failed := r.conn.Exec(r.ctx, "ROLLBACK TO SAVEPOINT found"); failed != nil {
		return nil, failed
	}
	return ids, err
}

// canSearch reports whether the database has an index of names. Without one, plants are read in their
// order.
func canSearch(ctx context.Context, c *pgx.Conn) (bool, error) {
	return queryOne(ctx, c, pgx.RowTo[bool], nil, indexIsReady)
}
