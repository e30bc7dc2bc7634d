package sqlite

import (
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"plantstore"
)

const tokenColumns = "hash, name, scopes, created, expires, revoked, used"

// tokenPages is how many pages a new or changed token takes: one in the table and one
// in the index.
const tokenPages = 2

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token) error {
	return s.withWriter(ctx, func(w *writer) error {
		w.tx.pages += tokenPages
		return insertToken(w.conn, t)
	})
}

// CreateFirstToken adds a token to a store that has never had one.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (bool, error) {
	first := false
	err := s.withWriter(ctx, func(w *writer) error {
		w.tx.pages += tokenPages
		count, err := w.conn.Prepare("SELECT count(*) FROM tokens")
		if err != nil {
			return err
		}
		n, err := sqlitex.ResultInt64(count)
		if err != nil || n > 0 {
			return err
		}
		first = true
		return insertToken(w.conn, t)
	})
	return first && err == nil, err
}

func insertToken(c *sqlite.Conn, t plantstore.Token) error {
	return exec(c, "INSERT INTO tokens ("+tokenColumns+") VALUES (?, ?, ?, ?, ?, ?, ?)",
		t.Hash[:], t.Name, plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed))
}

// Tokens returns all tokens in the order of their creation.
func (s *Store) Tokens(ctx context.Context) ([]plantstore.Token, error) {
	return s.selectTokens(ctx, "SELECT "+tokenColumns+" FROM tokens ORDER BY seq")
}

// Token returns the token with that hash.
func (s *Store) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	found, err := s.selectTokens(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE hash = ?", hash[:])
	if err != nil {
		return plantstore.Token{}, err
	}
	if len(found) == 0 {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return found[0], nil
}

func (s *Store) selectTokens(ctx context.Context, query string, args ...any) ([]plantstore.Token, error) {
	var tokens []plantstore.Token
	err := s.withReader(ctx, s.tokens, func(r *reader) error {
		return sqlitex.Execute(r.conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(row *sqlite.Stmt) error {
			t, err := rowToken(row)
			tokens = append(tokens, t)
			return err
		}})
	})
	if err != nil {
		return nil, err
	}
	return tokens, nil
}

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time) error {
	return s.withWriter(ctx, func(w *writer) error {
		w.tx.pages += tokenPages
		err := exec(w.conn, "UPDATE tokens SET revoked = coalesce(revoked, ?) WHERE hash = ?", at.Unix(), hash[:])
		if err == nil && w.conn.Changes() == 0 {
			return plantstore.ErrNoSuchToken
		}
		return err
	})
}

// TouchTokens records when tokens were last used.
func (s *Store) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	return s.withWriter(ctx, func(w *writer) error {
		w.tx.pages += len(used)
		for hash, at := range used {
			if err := exec(w.conn, "UPDATE tokens SET used = max(coalesce(used, ?1), ?1) WHERE hash = ?2", at.Unix(), hash[:]); err != nil {
				return err
			}
		}
		return nil
	})
}

func rowToken(row *sqlite.Stmt) (plantstore.Token, error) {
	var t plantstore.Token
	row.ColumnBytes(0, t.Hash[:])
	t.Name = row.ColumnText(1)
	t.Created = rowTime(row, 3)
	t.Expires = rowTime(row, 4)
	t.Revoked = rowTime(row, 5)
	t.LastUsed = rowTime(row, 6)
	var err error
	if t.Scopes, err = plantstore.ParseScopes(row.ColumnText(2)); err != nil {
		return t, fmt.Errorf("token %s: %w", t.Hash.ID(), err)
	}
	return t, nil
}

func rowTime(row *sqlite.Stmt, column int) time.Time {
	if row.ColumnIsNull(column) {
		return time.Time{}
	}
	return time.Unix(row.ColumnInt64(column), 0).UTC()
}

func unixOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.Unix()
}
