package rules

import (
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// MaxDeletedTokens is how many tokens one transaction deletes. Other writes wait for that about
// as long as for a batch of an import.
const MaxDeletedTokens = 1000

// TokenTx is a transaction that creates or revokes a token. A store runs one at a time. Times are
// in Unix seconds, as tokens are stored.
type TokenTx interface {
	// Token returns the token with this hash, or ErrNoSuchToken.
	Token(hash plantstore.TokenHash) (plantstore.Token, error)
	// HasTokens reports whether there is any token.
	HasTokens() (bool, error)
	// CountActive returns how many tokens are active at this time, and CountCreators how many
	// of them have ScopeTokensWrite.
	CountActive(at int64) (int64, error)
	CountCreators(at int64) (int64, error)
	// CountEnded returns how many tokens are not active at one time, and how many had ended by
	// another.
	CountEnded(at, longAgo int64) (ended, old int64, err error)
	// DeleteEnded deletes n of the tokens that ended by this time, those that ended first.
	DeleteEnded(by, n int64) error
	// InsertToken adds a token.
	InsertToken(t plantstore.Token) error
	// SetRevoked records when a token was revoked.
	SetRevoked(hash plantstore.TokenHash, at int64) error
	// LogToken appends a change to a token to the log. The value is what wire.DecodeToken
	// decodes. It is the last call of a transaction.
	LogToken(kind plantstore.EventType, value, by string) error
}

// CreateToken creates a token in a transaction of a store with this clock.
func CreateToken(tx TokenTx, clock *Clock, t plantstore.Token, by plantstore.Actor) error {
	if err := by.Check(tx.Token); err != nil {
		return err
	}
	active, err := tx.CountActive(t.Created.Unix())
	if err != nil {
		return err
	}
	if active >= plantstore.MaxTokens && by.Name != plantstore.Operator {
		return plantstore.ErrTooMany
	}
	if err := deleteEnded(tx, clock, t.Created); err != nil {
		return err
	}
	return addToken(tx, t, by.Name)
}

// CreateFirstToken creates a token unless the store has ever had one, and reports whether it did.
func CreateFirstToken(tx TokenTx, t plantstore.Token) (bool, error) {
	if later, err := tx.HasTokens(); err != nil || later {
		return false, err
	}
	return true, addToken(tx, t, plantstore.Operator)
}

func addToken(tx TokenTx, t plantstore.Token, by string) error {
	if err := tx.InsertToken(t); err != nil {
		return err
	}
	return logToken(tx, plantstore.TokenCreated, t, by)
}

// RevokeToken revokes a token, once.
func RevokeToken(tx TokenTx, clock *Clock, hash plantstore.TokenHash, at time.Time, by plantstore.Actor) error {
	t, err := tx.Token(hash)
	if err != nil || !t.Revoked.IsZero() {
		return err
	}
	if err := by.Check(tx.Token); err != nil {
		return err
	}
	if by.Name != plantstore.Operator && t.CreatesTokens(at) {
		creators, err := tx.CountCreators(at.Unix())
		if err != nil {
			return err
		}
		if creators <= 1 {
			return plantstore.ErrLastToken
		}
	}
	t.Revoked = at
	if err := tx.SetRevoked(hash, at.Unix()); err != nil {
		return err
	}
	if err := deleteEnded(tx, clock, at); err != nil {
		return err
	}
	return logToken(tx, plantstore.TokenRevoked, t, by.Name)
}

// deleteEnded deletes tokens that ended and are not to be kept at this time.
func deleteEnded(tx TokenTx, clock *Clock, at time.Time) error {
	by, longAgo := EndedTokens(clock, at)
	ended, old, err := tx.CountEnded(by, longAgo)
	if err != nil {
		return err
	}
	n := max(ended-plantstore.MaxEndedTokens, old)
	if n <= 0 {
		return nil
	}
	return tx.DeleteEnded(by, min(n, MaxDeletedTokens))
}

// EndedTokens returns until when tokens that are deleted at a time have ended, in Unix seconds:
// those that are too many, and those that ended too long ago.
func EndedTokens(c *Clock, at time.Time) (tooMany, tooLongAgo int64) {
	return min(at.Unix(), c.Time().Unix()), min(at.Add(-plantstore.MaxEndedAge).Unix(), c.Ago(plantstore.MaxEndedAge).Unix())
}

func logToken(tx TokenTx, kind plantstore.EventType, t plantstore.Token, by string) error {
	return tx.LogToken(kind, string(wire.EncodeToken(t.Logged(), "")), by)
}
