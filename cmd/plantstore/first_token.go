package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"

	"plantstore"
)

const bootstrapEnv = "PLANTSTORE_BOOTSTRAP_TOKEN"

// newFirstToken returns the token that an empty store gets, and its secret if that
// was generated and has to be shown.
func newFirstToken(log *slog.Logger) (token plantstore.Token, newSecret string) {
	now := time.Now().UTC()
	token = plantstore.Token{Name: "first", Scopes: plantstore.AllScopes(), Created: now, Expires: now.Add(plantstore.DefaultLifetime)}
	if secret, given := os.LookupEnv(bootstrapEnv); given {
		if len(secret) < 32 {
			log.Warn(bootstrapEnv + " is short enough to be guessed: use at least 32 random characters")
		}
		token.Name, token.Expires, token.Hash = "bootstrap", time.Time{}, plantstore.HashSecret(secret)
		return token, ""
	}
	newSecret = plantstore.NewSecret()
	token.Hash = plantstore.HashSecret(newSecret)
	return token, newSecret
}

// createFirstToken creates the token if the store has never had one, and reports
// whether the store has it now: an earlier attempt whose outcome is unknown may have
// created it.
func createFirstToken(ctx context.Context, store plantstore.Tokens, token plantstore.Token) (bool, error) {
	for {
		made, err := store.CreateFirstToken(ctx, token)
		if err == nil && !made {
			_, err = store.Token(ctx, token.Hash)
			made = err == nil
		}
		switch {
		case err == nil, errors.Is(err, plantstore.ErrNoSuchToken):
			return made, nil
		case !errors.Is(err, plantstore.ErrRetry) || ctx.Err() != nil:
			return false, fmt.Errorf("create the first token: %w", err)
		}
	}
}

func printFirstToken(out io.Writer, api *url.URL, listener net.Addr, secret string) {
	place, curl := api.String(), "curl"
	create := fmt.Sprintf("Open %s in a browser and paste it there, or create", &url.URL{Scheme: api.Scheme, Host: api.Host, Path: "/"})
	if listener.Network() == "unix" { // which no browser opens
		place, curl = "the socket "+listener.String(), "curl --unix-socket "+listener.String()
		create = "Create"
	}
	fmt.Fprintf(out, `Plantstore is ready at %s

This store is new. Here is its first token. It will not be shown again and expires in 90 days:

  %[2]s

%[3]s a plant from the command line:

  %[4]s -H 'Authorization: Bearer %[2]s' -H 'Content-Type: application/json' -d '{"id":1,"name":"Monstera","tag":"tropical"}' %[5]s/plants

`, place, secret, create, curl, api)
}
