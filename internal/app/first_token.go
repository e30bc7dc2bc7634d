package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plantstore"
)

// FirstToken is the token that a store gets if it has never had one.
type FirstToken struct {
	Secret string // if it was generated and has to be shown
	token  plantstore.Token
}

// NewFirstToken returns a token with this secret, or with a generated one if it is empty. Only a
// generated one expires.
func NewFirstToken(secret string) FirstToken {
	now := time.Now().UTC()
	f := FirstToken{token: plantstore.Token{Name: "bootstrap", Scopes: plantstore.AllScopes(), Created: now}}
	if secret == "" {
		secret = plantstore.NewSecret()
		f.Secret, f.token.Name, f.token.Expires = secret, "first", now.Add(plantstore.DefaultLifetime)
	}
	f.token.Hash = plantstore.HashSecret(secret)
	return f
}

// Create creates the token if the store has never had one, and reports whether the store has it
// now: an earlier attempt whose outcome is unknown may have created it.
func (f *FirstToken) Create(ctx context.Context, store plantstore.Tokens) (bool, error) {
	for {
		created, err := store.CreateFirstToken(ctx, f.token)
		if err == nil && !created {
			_, err = store.Token(ctx, f.token.Hash)
			created = err == nil
		}
		switch {
		case err == nil, errors.Is(err, plantstore.ErrNoSuchToken):
			return created, nil
		case !errors.Is(err, plantstore.ErrRetry) || ctx.Err() != nil:
			return false, fmt.Errorf("create the first token: %w", err)
		}
	}
}
