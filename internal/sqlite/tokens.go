package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/rules"
)

const tokenColumns = "hash, name, scopes, created, expires, revoked, used, coalesce(rate, 'off')"

// tokenEnd is when a token ended or will end, as the index tokens_by_end has it.
const tokenEnd = "coalesce(revoked, expires, 9223372036854775807)"

const (
	insertToken  = "INSERT INTO tokens (hash, name, scopes, created, expires, revoked, used, rate) VALUES (?, ?, ?, ?, ?, ?, ?, nullif(?, 'off'))"
	selectToken  = "SELECT " + tokenColumns + " FROM tokens WHERE hash = ?"
	selectTokens = "SELECT " + tokenColumns + " FROM tokens ORDER BY seq"
	selectWithID = "SELECT " + tokenColumns + " FROM tokens WHERE hash BETWEEN ? AND ? ORDER BY hash LIMIT 1"
	isActive     = tokenEnd + " > ?1 AND revoked IS NULL"
	selectActive = "SELECT " + tokenColumns + " FROM tokens WHERE " + isActive
	countActive  = "SELECT count(*) FROM tokens WHERE " + isActive
	// countEnded counts the tokens that are not active at ?1, of which there are more to count than
	// active ones, and those that ended by ?2.
	countEnded  = "SELECT (SELECT count(*) FROM tokens) - (" + countActive + "), (SELECT count(*) FROM tokens WHERE " + tokenEnd + " <= ?2)"
	deleteEnded = "DELETE FROM tokens WHERE seq IN (SELECT seq FROM tokens WHERE " + tokenEnd + " <= ?1 ORDER BY " + tokenEnd + ", seq LIMIT ?2)"
)

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error { return rules.CreateToken(w, s.Clock, t, by) })
}

// CreateFirstToken adds a token to a store that has never had one.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (first bool, err error) {
	err = s.withWriter(ctx, func(w *writer) (err error) {
		first, err = rules.CreateFirstToken(w, t)
		return err
	})
	return first && err == nil, err
}

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error { return rules.RevokeToken(w, s.Clock, hash, at, by) })
}

// What follows is the [rules.TokenTx] of a transaction.

func (w *writer) Token(hash plantstore.TokenHash) (plantstore.Token, error) {
	return findToken(w.conn, hash)
}

func (w *writer) HasTokens() (bool, error) {
	n, err := number(w.conn, "SELECT count(*) FROM tokens")
	return n > 0, err
}

func (w *writer) CountActive(at int64) (int64, error) { return number(w.conn, countActive, at) }

func (w *writer) CountCreators(at int64) (int64, error) {
	return number(w.conn, countActive+" AND ',' || scopes || ',' LIKE '%,tokens:write,%'", at)
}

func (w *writer) CountEnded(at, longAgo int64) (ended, old int64, err error) {
	err = query(w.conn, func(row *sqlite.Stmt) error {
		ended, old = row.ColumnInt64(0), row.ColumnInt64(1)
		return nil
	}, countEnded, at, longAgo)
	return ended, old, err
}

func (w *writer) DeleteEnded(by, n int64) error { return exec(w.conn, deleteEnded, by, n) }

func (w *writer) InsertToken(t plantstore.Token) error {
	return exec(w.conn, insertToken,
		t.Hash[:], t.Name, plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed), t.Rate.String())
}

func (w *writer) SetRevoked(hash plantstore.TokenHash, at int64) error {
	return exec(w.conn, "UPDATE tokens SET revoked = ? WHERE hash = ?", at, hash[:])
}

func (w *writer) LogToken(kind plantstore.EventType, value, by string) error {
	if err := w.catchUp(); err != nil {
		return err
	}
	w.tx.rows = append(w.tx.rows, logRow{kind: kind, by: by, plant: plantstore.Plant{Name: value}})
	return w.appendRows(1)
}

// catchUp makes the transaction append after the rows of other processes: commands that
// create or revoke tokens.
func (w *writer) catchUp() error {
	snap, err := beginSnapshot(w.conn)
	if err != nil {
		return err
	}
	defer snap.end()
	last, err := snap.At(snap.Last)
	if err != nil {
		return err
	}
	if w.serves && snap.Last > w.tx.seq { // others do not keep the sizes
		added, err := number(w.conn, "SELECT sum("+rowSize+") FROM log WHERE seq > ?", w.tx.seq)
		if err != nil {
			return err
		}
		w.tx.bytes += added
		w.tx.unflushedBytes += added
	}
	w.tx.seq, w.tx.time = last.Seq, max(w.tx.time, last.Time)
	w.tx.now = max(w.tx.now, w.tx.time)
	return nil
}

// Tokens returns all tokens in the order of their creation.
func (s *Store) Tokens(ctx context.Context) ([]plantstore.Token, error) {
	return read(ctx, s.tokens, func(c *sqlite.Conn) ([]plantstore.Token, error) { return queryAll(c, rowToken, selectTokens) })
}

// ActiveTokens returns the tokens that are active at that time.
func (s *Store) ActiveTokens(ctx context.Context, at time.Time) ([]plantstore.Token, error) {
	return read(ctx, s.tokens, func(c *sqlite.Conn) ([]plantstore.Token, error) {
		return queryAll(c, rowToken, selectActive, at.Unix())
	})
}

// Token returns the token with that hash.
func (s *Store) Token(ctx context.Context, hash plantstore.TokenHash) (plantstore.Token, error) {
	return read(ctx, s.tokens, func(c *sqlite.Conn) (plantstore.Token, error) { return findToken(c, hash) })
}

// TokenWithID returns the token with that id.
func (s *Store) TokenWithID(ctx context.Context, id string) (plantstore.Token, error) {
	least, greatest, ok := plantstore.HashesWithID(id)
	if !ok {
		return plantstore.Token{}, plantstore.ErrNoSuchToken
	}
	return read(ctx, s.tokens, func(c *sqlite.Conn) (plantstore.Token, error) {
		return queryOne(c, rowToken, plantstore.ErrNoSuchToken, selectWithID, least[:], greatest[:])
	})
}

func findToken(c *sqlite.Conn, hash plantstore.TokenHash) (plantstore.Token, error) {
	return queryOne(c, rowToken, plantstore.ErrNoSuchToken, selectToken, hash[:])
}

// TouchTokens records when tokens were last used.
func (s *Store) TouchTokens(ctx context.Context, used map[plantstore.TokenHash]time.Time) error {
	return s.withWriter(ctx, func(w *writer) error {
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
	var badScopes, badRate error
	t.Scopes, badScopes = plantstore.ParseScopes(row.ColumnText(2))
	t.Rate, badRate = plantstore.ParseRate(row.ColumnText(7))
	if err := cmp.Or(badScopes, badRate); err != nil {
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
