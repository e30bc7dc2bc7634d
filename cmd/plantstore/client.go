package main

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"plantstore/client"
	"plantstore/internal/cli"
)

// clientFlags say which server a command calls. The token has no flag: every user of
// the machine can read a command line.
type clientFlags struct {
	URL string `name:"url" default:"http://127.0.0.1:8080" env:"PLANTSTORE_URL" placeholder:"URL" help:"The base URL of the server (${default})."`
}

// tokenEnv is the variable with the token.
const tokenEnv = "PLANTSTORE_TOKEN"

const tokenHelp = "The token is read from the environment variable PLANTSTORE_TOKEN, or is the one that plantstore login saved for the server."

// How long a command tries to reach the server: briefly where a person waits for one
// response, and long enough for a failover where a file is transferred.
const (
	callTimeout = 5 * time.Second
	fileTimeout = time.Minute
)

// Help is the long part of the help page. A command that has more to say has its own.
func (clientFlags) Help() string { return tokenHelp }

func (f clientFlags) client(std streams, timeout time.Duration) (*client.Client, error) {
	return newClient(std, f.URL, timeout, tokenEnv)
}

// clientOf returns the client that the command is run with, if its Run has one. A command that
// has something to check first calls client itself.
func clientOf(line *kong.Context, std streams) (*client.Client, error) {
	command := line.Selected().Target.Interface().(interface {
		client(streams, time.Duration) (*client.Client, error)
	})
	return command.client(std, callTimeout)
}

// newClient returns a client with the token in the first of the variables that is set,
// or the one that login saved for the URL.
func newClient(std streams, url string, timeout time.Duration, variables ...string) (*client.Client, error) {
	token := ""
	for _, name := range variables {
		token = cmp.Or(token, os.Getenv(name))
	}
	if token == "" {
		saved, err := cli.OpenLogins()
		if err != nil {
			return nil, err
		}
		token = saved.Token(url)
	}
	if token == "" {
		return nil, usage("no token: set %s to the token that serve printed, or one from plantstore token create, or run plantstore login", variables[0])
	}
	return clientWithToken(std, url, token, timeout)
}

func clientWithToken(std streams, url, token string, timeout time.Duration) (*client.Client, error) {
	var retrying, expires sync.Once
	c, err := client.New(url, token, client.Options{
		RetryTimeout: timeout,
		Retrying: func(err error, _ time.Duration) {
			retrying.Do(func() { fmt.Fprintf(std.err, "plantstore: %v; retrying for up to %s\n", err, timeout) })
		},
		TokenExpires: func(at time.Time) {
			expires.Do(func() { std.say("plantstore: the token expires at " + at.Format(time.RFC3339) + ": ask for a new one") })
		},
	})
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}
