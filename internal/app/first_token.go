package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plantstore"
)

// FirstToken returns a function that creates a token with this secret if the store has never had
// one. If the secret is empty, one is generated, expires, and is shown once the store has it.
func FirstToken(store plantstore.Tokens, secret string, show func(secret string)) func(context.Context) error {
	now := time.Now().UTC()
	token := plantstore.Token{Name: "bootstrap", Scopes: plantstore.AllScopes(), Created: now}
	generated := secret == ""
	if generated {
		secret = plantstore.NewSecret()
		token.Name, token.Expires = "first", now.Add(plantstore.DefaultLifetime)
	}
	token.Hash = plantstore.HashSecret(secret)
	return func(ctx context.Context) error {
		for {
			created, err := store.CreateFirstToken(ctx, token)
			if err == nil && !created { // an earlier attempt whose outcome is unknown may have
				_, err = store.Token(ctx, token.Hash)
				created = err == nil
			}
			switch {
			case err == nil && created && generated:
				show(secret)
				return nil
			case err == nil, errors.Is(err, plantstore.ErrNoSuchToken):
				return nil
			case !errors.Is(err, plantstore.ErrRetry) || ctx.Err() != nil:
				return fmt.Errorf("create the first token: %w", err)
			}
		}
	}
}
