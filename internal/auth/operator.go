package auth

import (
	"context"
	"fmt"
	"time"

	"plantstore"
)

// Operator creates and revokes the tokens of a store without a server: whoever can open the store
// may do anything. Its methods are those of the Go client.
type Operator struct{ Store plantstore.Tokens }

var operator = plantstore.Actor{Name: plantstore.Operator}

// Tokens returns all tokens.
func (o Operator) Tokens(ctx context.Context) ([]plantstore.TokenInfo, error) {
	tokens, err := o.Store.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot list the tokens: %w", err)
	}
	all := make([]plantstore.TokenInfo, len(tokens))
	for i := range tokens {
		all[i] = tokens[i].Info()
	}
	return all, nil
}

// CreateToken creates a token and returns it with its secret.
func (o Operator) CreateToken(ctx context.Context, asked plantstore.NewToken) (plantstore.TokenInfo, string, error) {
	secret := plantstore.NewSecret()
	now := time.Now().UTC().Truncate(time.Second)
	token := plantstore.Token{
		Hash: plantstore.HashSecret(secret), Name: asked.Name, Scopes: asked.Scopes, Rate: asked.Rate, Created: now, Expires: asked.Expires,
	}
	if asked.DefaultExpiry {
		token.Expires = now.Add(plantstore.DefaultLifetime)
	}
	if err := o.Store.CreateToken(ctx, token, operator); err != nil {
		return plantstore.TokenInfo{}, "", fmt.Errorf("cannot create the token: %w", err)
	}
	return token.Info(), secret, nil
}

// RevokeToken revokes the token with this id.
func (o Operator) RevokeToken(ctx context.Context, id string) error {
	token, err := o.Store.TokenWithID(ctx, id)
	if err != nil {
		return err
	}
	return o.Store.RevokeToken(ctx, token.Hash, time.Now(), operator)
}
