package postgres

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/rules"
)

const (
	tokenColumns = `hash, name, scopes, created, expires, revoked, used, coalesce(rate, 'off')`
	insertToken  = `INSERT INTO stored_tokens (hash, name, scopes, created, expires, revoked, used, rate) VALUES ($1, $2, $3, $4, $5, $6, $7, nullif($8, 'off'))`
	touchToken   = `UPDATE stored_tokens SET used = $2 WHERE hash = $1 AND (used IS NULL OR used < $2)`
	selectTokens = `SELECT ` + tokenColumns + ` FROM stored_tokens ORDER BY seq`
	selectWithID = `SELECT ` + tokenColumns + ` FROM stored_tokens WHERE hash BETWEEN $1 AND $2 ORDER BY hash LIMIT 1`
	selectToken  = `SELECT ` + tokenColumns + ` FROM stored_tokens WHERE hash = $1`
	// lockToken keeps a token from being revoked until the end of the transaction.
	lockToken = selectToken + ` FOR SHARE`
	// tokenEnd is when a token ended or will end, as the index tokens_by_end has it.
	tokenEnd      = `coalesce(revoked, expires, 9223372036854775807)`
	isActive      = tokenEnd + ` > $1 AND revoked IS NULL`
	countActive   = `SELECT count(*) FROM stored_tokens WHERE ` + isActive
	selectActive  = `SELECT ` + tokenColumns + ` FROM stored_tokens WHERE ` + isActive
	countCreators = countActive + ` AND ',' || scopes || ',' LIKE '%,tokens:write,%'`
	// countEnded counts the tokens that are not active at $1, and those that ended by $2.
	countEnded  = `SELECT (SELECT count(*) FROM stored_tokens) - (` + countActive + `), (SELECT count(*) FROM stored_tokens WHERE ` + tokenEnd + ` <= $2)`
	deleteEnded = `DELETE FROM stored_tokens WHERE seq IN (SELECT seq FROM stored_tokens WHERE ` + tokenEnd + ` <= $1 ORDER BY ` + tokenEnd + `, seq LIMIT $2)`
)

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token, by plantstore.Actor) error {
	defer s.changes.Notify()
	return s.once(ctx, true, selectToken, t.Hash[:], func(tx transaction) error {
		if err := s.observeClock(tx.ctx, tx.c); err != nil {
			return err
		}
		return rules.CreateToken(tx, s.clock, t, by)
	})
}

// CreateFirstToken adds a token to a store that has never had one.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (first bool, err error) {
	defer s.changes.Notify()
	err = s.once(ctx, true, selectToken, t.Hash[:], func(tx transaction) (err error) {
		first, err = rules.CreateFirstToken(tx, t)
		return err
	})
	return first && err == nil, err
}

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	defer s.changes.Notify()
	return s.serialized(ctx, func(tx transaction) error {
		if err := s.observeClock(tx.ctx, tx.c); err != nil {
			return err
		}
		return rules.RevokeToken(tx, s.clock, hash, at, by)
	})
}

// transaction is one that changes tokens or a webhook: the [rules.TokenTx] and [rules.WebhookTx].
type transaction struct {
	ctx context.Context
	c   *pgx.Conn
	// selectToken is the statement that finds the token of an actor: lockToken, except in a
	// transaction that takes turns with RevokeToken. That one may change other tokens, and could
	// deadlock with TouchTokens.
	selectToken string
}

// serialized runs f in a transaction that takes turns with others. If the connection is lost, or
// the commit did not wait for the standbys, it runs f again: an f that succeeded may have taken
// effect.
func (s *Store) serialized(ctx context.Context, f func(transaction) error) error {
	return s.retryCall(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() error { return f(transaction{ctx, c, selectToken}) }, lockVersion)
	})
}

// once is serialized for an f that adds a row, or deletes it. If f has succeeded before, it runs
// again only if the query does not show that: whether the row exists.
func (s *Store) once(ctx context.Context, exists bool, query string, key any, f func(transaction) error) error {
	done := false
	return s.serialized(ctx, func(tx transaction) error {
		if done {
			found, err := tx.exec(query, key)
			if err != nil || (found > 0) == exists {
				return err
			}
		}
		err := f(tx)
		done = err == nil
		return err
	})
}

// exec executes a statement, and returns how many rows it found or changed.
func (tx transaction) exec(sql string, args ...any) (int64, error) {
	tag, err := tx.c.Exec(tx.ctx, sql, args...)
	return tag.RowsAffected(), err
}

func (tx transaction) Token(hash plantstore.TokenHash) (plantstore.Token, error) {
	return findToken(tx.ctx, tx.c, tx.selectToken, hash)
}

func (tx transaction) HasTokens() (bool, error) {
	return queryOne(tx.ctx, tx.c, pgx.RowTo[bool], nil, "SELECT count(*) > 0 FROM stored_tokens")
}

func (tx transaction) CountActive(at int64) (int64, error) {
	return queryOne(tx.ctx, tx.c, pgx.RowTo[int64], nil, countActive, at)
}

func (tx transaction) CountCreators(at int64) (int64, error) {
	return queryOne(tx.ctx, tx.c, pgx.RowTo[int64], nil, countCreators, at)
}

func (tx transaction) CountEnded(at, longAgo int64) (ended, old int64, err error) {
	err = tx.c.QueryRow(tx.ctx, countEnded, at, longAgo).Scan(&ended, &old)
	return ended, old, err
}

func (tx transaction) DeleteEnded(by, n int64) error {
	_, err := tx.exec(deleteEnded, by, n)
	return err
}

func (tx transaction) InsertToken(t plantstore.Token) error {
	_, err := tx.exec(insertToken,
		t.Hash[:], escape(t.Name), plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed), t.Rate.String())
	return err
}

func (tx transaction) SetRevoked(hash plantstore.TokenHash, at int64) error {
	_, err := tx.exec("UPDATE stored_tokens SET revoked = $2 WHERE hash = $1", hash[:], at)
	return err
}

func (tx transaction) LogToken(kind plantstore.EventType, value, by string) error {
	_, err := tx.exec(`SELECT append_log($1, $2, $3, $4, $5, NULL, NULL, 0, `+now+`, NULL)`,
		[]string{by}, []int16{int16(kind.Number())}, []int64{0}, []string{value}, []*string{nil})
	return err
}

// Tokens returns all tokens in the order of their creation.
func (s *Store) Tokens(ctx context.Context) ([]plantstore.Token, error) {
	return queryAll(ctx, s, rowToken, selectTokens)
}

// ActiveTokens returns the tokens that are active at that time.
func (s *Store) ActiveTokens(ctx context.Context, at time.Time) ([]plantstore.Token, error) {
	return queryAll(ctx, s, rowToken, selectActive, at.Unix())
}

// Token returns the token with that hash.
func (s *Store) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) (plantstore.Token, error) {
		return findToken(ctx, c, selectToken, hash)
	})
}

// TokenWithID returns the token with that id.
func (s *Store) TokenWithID(ctx context.Context, id string) (plantstore.Token, error) {
	least, greatest, ok := plantstore.HashesWithID(id)
	if !ok {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) (plantstore.Token, error) {
		return queryOne(ctx, c, rowToken, plantstore.ErrNoSuchToken, selectWithID, least[:], greatest[:])
	})
}

func findToken(ctx context.Context, c *pgx.Conn, query string, hash plantstore.TokenHash) (plantstore.Token, error) {
	return queryOne(ctx, c, rowToken, plantstore.ErrNoSuchToken, query, hash[:])
}

// TouchTokens records when tokens were last used. It updates them in the order of
// their hashes, so that replicas do not deadlock.
func (s *Store) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	hashes := slices.SortedFunc(maps.Keys(used), func(a, b plantstore.TokenHash) int { return bytes.Compare(a[:], b[:]) })
	return s.retryCall(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
		var b pgx.Batch
		queueBegin(&b)
		for _, hash := range hashes {
			b.Queue(touchToken, hash[:], used[hash].Unix())
		}
		b.Queue("COMMIT")
		return c.SendBatch(ctx, &b).Close()
	})
}

func rowToken(row pgx.CollectableRow) (plantstore.Token, error) {
	var t plantstore.Token
	var hash []byte
	var scopes, rate string
	var created int64
	var expires, revoked, used *int64
	if err := row.Scan(&hash, &t.Name, &scopes, &created, &expires, &revoked, &used, &rate); err != nil {
		return t, err
	}
	copy(t.Hash[:], hash)
	t.Name = unescape(t.Name)
	t.Created = time.Unix(created, 0).UTC()
	t.Expires = timeOrZero(expires)
	t.Revoked = timeOrZero(revoked)
	t.LastUsed = timeOrZero(used)
	var badScopes, badRate error
	t.Scopes, badScopes = plantstore.ParseScopes(scopes)
	t.Rate, badRate = plantstore.ParseRate(rate)
	if err := cmp.Or(badScopes, badRate); err != nil {
		return t, fmt.Errorf("token %s: %w", t.Hash.ID(), err)
	}
	return t, nil
}

func timeOrZero(unix *int64) time.Time {
	if unix == nil {
		return time.Time{}
	}
	return time.Unix(*unix, 0).UTC()
}

func unixOrNull(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	return new(t.Unix())
}
