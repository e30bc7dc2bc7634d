package postgres

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore"
)

const (
	tokenColumns = `hash, name, scopes, created, expires, revoked, used`
	insertToken  = `INSERT INTO tokens (` + tokenColumns + `) VALUES ($1, $2, $3, $4, $5, $6, $7)`
	// confirmToken changes nothing, but its commit waits for the standbys.
	confirmToken = `UPDATE tokens SET hash = hash WHERE hash = $1`
	revokeToken  = `UPDATE tokens SET revoked = coalesce(revoked, $2) WHERE hash = $1`
	touchToken   = `UPDATE tokens SET used = $2 WHERE hash = $1 AND (used IS NULL OR used < $2)`
	countTokens  = `SELECT count(*) FROM tokens`
	selectTokens = `SELECT ` + tokenColumns + ` FROM tokens ORDER BY seq`
	selectToken  = `SELECT ` + tokenColumns + ` FROM tokens WHERE hash = $1`
)

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token) error {
	return s.addRow(ctx, confirmToken, t.Hash[:], func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, insertToken, tokenRow(t)...)
		return err
	})
}

// CreateFirstToken adds a token to a store that has never had one. Replicas that do so
// concurrently take turns by locking the row of the schema's version.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (bool, error) {
	first := false
	err := s.addRow(ctx, confirmToken, t.Hash[:], func(ctx context.Context, c *pgx.Conn) error {
		return pgx.BeginTxFunc(ctx, c, readCommitted, func(tx pgx.Tx) error {
			var n int
			if err := tx.QueryRow(ctx, lockVersion).Scan(&n); err != nil {
				return err
			}
			err := tx.QueryRow(ctx, countTokens).Scan(&n)
			first = n == 0
			if err != nil || !first {
				return err
			}
			_, err = tx.Exec(ctx, insertToken, tokenRow(t)...)
			return err
		})
	})
	return first && err == nil, err
}

// addRow runs f, which adds a row. If the connection is lost, or the commit did not wait
// for the standbys, it runs f again unless the statement confirm finds the row by then.
func (s *Store) addRow(ctx context.Context, confirm string, key any, f func(context.Context, *pgx.Conn) error) error {
	maybeAdded := false
	return s.retryWrite(ctx, func(ctx context.Context, c *pgx.Conn) error {
		if maybeAdded {
			tag, err := c.Exec(ctx, confirm, key)
			if err != nil || tag.RowsAffected() > 0 {
				return err
			}
		}
		err := f(ctx, c)
		maybeAdded = maybeAdded || err == nil || c.IsClosed()
		return err
	})
}

// Tokens returns all tokens in the order of their creation.
func (s *Store) Tokens(ctx context.Context) ([]plantstore.Token, error) {
	return s.queryTokens(ctx, selectTokens)
}

// Token returns the token with that hash.
func (s *Store) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	found, err := s.queryTokens(ctx, selectToken, hash[:])
	if err != nil {
		return plantstore.Token{}, err
	}
	if len(found) == 0 {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return found[0], nil
}

func (s *Store) queryTokens(ctx context.Context, query string, args ...any) (tokens []plantstore.Token, err error) {
	err = s.retryRead(ctx, s.tokens, func(ctx context.Context, c *pgx.Conn) error {
		rows, err := c.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		tokens, err = pgx.CollectRows(rows, rowToken)
		return err
	})
	return tokens, err
}

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time) error {
	return s.retryWrite(ctx, func(ctx context.Context, c *pgx.Conn) error {
		tag, err := c.Exec(ctx, revokeToken, hash[:], at.Unix())
		if err == nil && tag.RowsAffected() == 0 {
			return plantstore.ErrNoSuchToken
		}
		return err
	})
}

// TouchTokens records when tokens were last used. It updates them in the order of
// their hashes, so that replicas do not deadlock.
func (s *Store) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	hashes := slices.SortedFunc(maps.Keys(used), func(a, b plantstore.TokenHash) int { return bytes.Compare(a[:], b[:]) })
	return s.retryWrite(ctx, func(ctx context.Context, c *pgx.Conn) error {
		var b pgx.Batch
		for _, hash := range hashes {
			b.Queue(touchToken, hash[:], used[hash].Unix())
		}
		return c.SendBatch(ctx, &b).Close()
	})
}

func tokenRow(t plantstore.Token) []any {
	return []any{
		t.Hash[:], escape(t.Name), plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed),
	}
}

func rowToken(row pgx.CollectableRow) (plantstore.Token, error) {
	var t plantstore.Token
	var hash []byte
	var scopes string
	var created int64
	var expires, revoked, used *int64
	if err := row.Scan(&hash, &t.Name, &scopes, &created, &expires, &revoked, &used); err != nil {
		return t, err
	}
	copy(t.Hash[:], hash)
	t.Name = unescape(t.Name)
	t.Created = time.Unix(created, 0).UTC()
	t.Expires = timeOrZero(expires)
	t.Revoked = timeOrZero(revoked)
	t.LastUsed = timeOrZero(used)
	var err error
	if t.Scopes, err = plantstore.ParseScopes(scopes); err != nil {
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
