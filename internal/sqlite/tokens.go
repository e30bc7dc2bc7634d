package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/rules"
	"plantstore/internal/wire"
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
	// deleteEnded deletes the tokens that ended by ?1 except the last ?3, and those that
	// ended by ?2, but at most ?4. There are fewer active ones to count than ended ones.
	deleteEnded = "DELETE FROM tokens WHERE seq IN (SELECT seq FROM tokens WHERE " + tokenEnd + " <= ?1 ORDER BY " + tokenEnd + `, seq LIMIT min(?4, max(
		(SELECT count(*) FROM tokens) - (` + countActive + `) - ?3,
		(SELECT count(*) FROM tokens WHERE ` + tokenEnd + " <= ?2))))"
	// countCreators counts the other tokens that may create tokens.
	countCreators = `SELECT count(*) FROM tokens WHERE hash <> ?1 AND revoked IS NULL
		AND (expires IS NULL OR expires > ?2) AND ',' || scopes || ',' LIKE '%,tokens:write,%'`
)

// maxDeletedTokens is how many tokens one transaction deletes. Other writes wait for that
// about as long as for a batch of an import.
const maxDeletedTokens = 1000

// CreateToken adds a token.
func (s *Store) CreateToken(ctx context.Context, t plantstore.Token, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error {
		if err := w.check(by); err != nil {
			return err
		}
		n, err := number(w.conn, countActive, t.Created.Unix())
		if err != nil {
			return err
		}
		if n >= plantstore.MaxTokens && by.Name != plantstore.Operator {
			return plantstore.ErrTooMany
		}
		if err := s.deleteEndedTokens(w, t.Created); err != nil {
			return err
		}
		return s.insertToken(w, t, by.Name)
	})
}

// check fails if the actor's token has ended.
func (w *writer) check(by plantstore.Actor) error {
	return by.Check(func(hash plantstore.TokenHash) (plantstore.Token, error) { return findToken(w.conn, hash) })
}

// deleteEndedTokens deletes tokens that ended and are not to be kept at this time.
func (s *Store) deleteEndedTokens(w *writer, at time.Time) error {
	tooMany, tooLongAgo := rules.EndedTokens(s.Clock, at)
	return exec(w.conn, deleteEnded, tooMany, tooLongAgo, plantstore.MaxEndedTokens, maxDeletedTokens)
}

// CreateFirstToken adds a token to a store that has never had one.
func (s *Store) CreateFirstToken(ctx context.Context, t plantstore.Token) (bool, error) {
	first := false
	err := s.withWriter(ctx, func(w *writer) error {
		n, err := number(w.conn, "SELECT count(*) FROM tokens")
		first = err == nil && n == 0
		if !first {
			return err
		}
		return s.insertToken(w, t, plantstore.Operator)
	})
	return first && err == nil, err
}

func (s *Store) insertToken(w *writer, t plantstore.Token, by string) error {
	err := exec(w.conn, insertToken,
		t.Hash[:], t.Name, plantstore.FormatScopes(t.Scopes),
		t.Created.Unix(), unixOrNull(t.Expires), unixOrNull(t.Revoked), unixOrNull(t.LastUsed), t.Rate.String())
	if err != nil {
		return err
	}
	return s.logToken(w, plantstore.TokenCreated, t, by)
}

// logToken appends a change to a token to the log.
func (s *Store) logToken(w *writer, kind plantstore.EventType, t plantstore.Token, by string) error {
	if err := s.catchUp(w); err != nil {
		return err
	}
	w.tx.rows = append(w.tx.rows, logRow{kind: kind, by: by, plant: plantstore.Plant{Name: string(wire.EncodeToken(t.Logged(), ""))}})
	return w.appendRows(1)
}

// catchUp makes the transaction append after the rows of other processes: commands that
// create or revoke tokens.
func (s *Store) catchUp(w *writer) error {
	snap, err := beginRead(w.conn)
	if err != nil {
		return err
	}
	defer snap.end()
	last, err := snap.At(snap.Last)
	if err != nil {
		return err
	}
	if s.lock != nil && snap.Last > w.tx.seq { // others do not keep the sizes
		added, err := number(w.conn, "SELECT sum("+rowSize+") FROM log WHERE seq > ?", w.tx.seq)
		if err != nil {
			return err
		}
		w.tx.bytes += added
		w.tx.unflushedBytes += added
	}
	w.tx.seq, w.tx.time = last.Seq, max(w.tx.time, last.Time)
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

// RevokeToken revokes a token, once.
func (s *Store) RevokeToken(ctx context.Context, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error {
		token, err := findToken(w.conn, hash)
		if err != nil || !token.Revoked.IsZero() {
			return err
		}
		if err := w.check(by); err != nil {
			return err
		}
		if by.Name != plantstore.Operator && token.CreatesTokens(at) {
			others, err := number(w.conn, countCreators, hash[:], at.Unix())
			if err != nil {
				return err
			}
			if others == 0 {
				return plantstore.ErrLastToken
			}
		}
		token.Revoked = time.Unix(at.Unix(), 0).UTC()
		if err := exec(w.conn, "UPDATE tokens SET revoked = ? WHERE hash = ?", at.Unix(), hash[:]); err != nil {
			return err
		}
		if err := s.deleteEndedTokens(w, at); err != nil {
			return err
		}
		return s.logToken(w, plantstore.TokenRevoked, token, by.Name)
	})
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
