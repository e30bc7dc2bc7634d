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
	"plantstore/internal/wire"
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
	tokenEnd     = `coalesce(revoked, expires, 9223372036854775807)`
	isActive     = tokenEnd + ` > $1 AND revoked IS NULL`
	countActive  = `SELECT count(*) FROM stored_tokens WHERE ` + isActive
	selectActive = `SELECT ` + tokenColumns + ` FROM stored_tokens WHERE ` + isActive
	// deleteEnded deletes the tokens that ended by $1 except the last $3, and those that
	// ended by $2, but at most $4.
	deleteEnded = `DELETE FROM stored_tokens WHERE seq IN (SELECT seq FROM stored_tokens WHERE ` + tokenEnd + ` <= $1 ORDER BY ` + tokenEnd + `, seq LIMIT least($4::bigint, greatest(
		(SELECT count(*) FROM stored_tokens) - (` + countActive + `) - $3::bigint,
		(SELECT count(*) FROM stored_tokens WHERE ` + tokenEnd + ` <= $2))))`
	// countCreators counts the other tokens that may create tokens.
	countCreators = `SELECT count(*) FROM stored_tokens WHERE hash <> $1 AND revoked IS NULL
		AND (expires IS NULL OR expires > $2) AND ',' || scopes || ',' LIKE '%,tokens:write,%'`
)

// maxDeletedTokens is how many tokens one transaction deletes.
const maxDeletedTokens = 1000

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token, by plantstore.Actor) error {
	defer s.changes.Notify()
	return s.addRow(ctx, selectToken, t.Hash[:], func(ctx context.Context, c *pgx.Conn) error {
		if err := checkActor(ctx, c, by, selectToken); err != nil {
			return err
		}
		var n int
		if err := c.QueryRow(ctx, countActive, t.Created.Unix()).Scan(&n); err != nil {
			return err
		}
		if n >= plantstore.MaxTokens && by.Name != plantstore.Operator {
			return plantstore.ErrTooMany
		}
		if err := s.deleteEndedTokens(ctx, c, t.Created); err != nil {
			return err
		}
		return addToken(ctx, c, t, by.Name)
	})
}

// CreateFirstToken adds a token to a store that has never had one.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (bool, error) {
	defer s.changes.Notify()
	first := false
	err := s.addRow(ctx, selectToken, t.Hash[:], func(ctx context.Context, c *pgx.Conn) error {
		var n int
		err := c.QueryRow(ctx, "SELECT count(*) FROM stored_tokens").Scan(&n)
		first = n == 0
		if err != nil || !first {
			return err
		}
		return addToken(ctx, c, t, plantstore.Operator)
	})
	return first && err == nil, err
}

func addToken(ctx context.Context, c *pgx.Conn, t plantstore.Token, by string) error {
	_, err := c.Exec(ctx, insertToken,
		t.Hash[:], escape(t.Name), plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed), t.Rate.String())
	if err != nil {
		return err
	}
	return logToken(ctx, c, plantstore.TokenCreated, t, by)
}

// checkActor fails if the actor's token, as the query returns it, has ended. The query must
// be lockToken, except in a transaction that takes turns with RevokeToken: that one may
// change other tokens, and could deadlock with TouchTokens.
func checkActor(ctx context.Context, c *pgx.Conn, by plantstore.Actor, query string) error {
	return by.Check(func(hash plantstore.TokenHash) (plantstore.Token, error) { return findToken(ctx, c, query, hash) })
}

func findToken(ctx context.Context, c *pgx.Conn, query string, hash plantstore.TokenHash) (plantstore.Token, error) {
	return queryOne(ctx, c, rowToken, plantstore.ErrNoSuchToken, query, hash[:])
}

// deleteEndedTokens deletes tokens that ended and are not to be kept at this time.
func (s *Store) deleteEndedTokens(ctx context.Context, c *pgx.Conn, at time.Time) error {
	if err := s.observeClock(ctx, c); err != nil {
		return err
	}
	tooMany, tooLongAgo := rules.EndedTokens(s.clock, at)
	_, err := c.Exec(ctx, deleteEnded, tooMany, tooLongAgo, plantstore.MaxEndedTokens, maxDeletedTokens)
	return err
}

// logToken appends a change to a token to the log. It must be the last statement of its
// transaction.
func logToken(ctx context.Context, c *pgx.Conn, kind plantstore.EventType, t plantstore.Token, by string) error {
	text := string(wire.EncodeToken(t.Logged(), ""))
	var b pgx.Batch
	b.Queue(lockLog)
	b.Queue(appendLog, []string{by}, []int16{int16(kind.Number())}, []int64{0}, []*string{&text}, []*string{nil}, 0)
	return c.SendBatch(ctx, &b).Close()
}

// inTurn runs f in a transaction that takes turns with others. If the connection is lost, or the
// commit did not wait for the standbys, it runs f again: an f that succeeded may have taken effect.
func (s *Store) inTurn(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	return s.retryCall(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() error { return f(ctx, c) }, lockVersion)
	})
}

// addRow runs f, which adds a row, in a transaction that takes turns with others. If it has
// succeeded before, it runs f again only if the query does not find the row.
func (s *Store) addRow(ctx context.Context, query string, key any, f func(context.Context, *pgx.Conn) error) error {
	added := false
	return s.inTurn(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if added {
			if found, err := c.Exec(ctx, query, key); err != nil || found.RowsAffected() > 0 {
				return err
			}
		}
		err := f(ctx, c)
		added = err == nil
		return err
	})
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
	return read(ctx, s, s.read, func(ctx context.Context, c *pgx.Conn) (plantstore.Token, error) {
		return findToken(ctx, c, selectToken, hash)
	})
}

// TokenWithID returns the token with that id.
func (s *Store) TokenWithID(ctx context.Context, id string) (plantstore.Token, error) {
	least, greatest, ok := plantstore.HashesWithID(id)
	if !ok {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return read(ctx, s, s.read, func(ctx context.Context, c *pgx.Conn) (plantstore.Token, error) {
		return queryOne(ctx, c, rowToken, plantstore.ErrNoSuchToken, selectWithID, least[:], greatest[:])
	})
}

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	defer s.changes.Notify()
	return s.inTurn(ctx, func(ctx context.Context, c *pgx.Conn) error {
		token, err := findToken(ctx, c, selectToken, hash)
		if err != nil || !token.Revoked.IsZero() {
			return err
		}
		if err := checkActor(ctx, c, by, selectToken); err != nil {
			return err
		}
		if by.Name != plantstore.Operator && token.CreatesTokens(at) {
			var others int
			if err := c.QueryRow(ctx, countCreators, hash[:], at.Unix()).Scan(&others); err != nil {
				return err
			}
			if others == 0 {
				return plantstore.ErrLastToken
			}
		}
		if _, err := c.Exec(ctx, "UPDATE stored_tokens SET revoked = $2 WHERE hash = $1", hash[:], at.Unix()); err != nil {
			return err
		}
		if err := s.deleteEndedTokens(ctx, c, at); err != nil {
			return err
		}
		token.Revoked = time.Unix(at.Unix(), 0).UTC()
		return logToken(ctx, c, plantstore.TokenRevoked, token, by.Name)
	})
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
