package main

import (
	"context"
	"fmt"

	"plantstore/internal/cli"
)

// loginArgs say which server a token is for.
type loginArgs struct {
	URL string `arg:"" optional:"" default:"http://127.0.0.1:8080" env:"PLANTSTORE_URL" placeholder:"URL" help:"The base URL of the server (${default})."`
}

type loginCommand struct{ loginArgs }

func (loginCommand) Help() string {
	return `Asks for a token, checks it, and saves it for this server in your configuration directory, in a file that only you can read. The commands that call the server then need no PLANTSTORE_TOKEN; if that is set, it is used instead.

If standard input is not a terminal, the token is its first line:
  plantstore login https://plants.example.com < token.txt`
}

func (c *loginCommand) Run(ctx context.Context, std streams) error {
	secret, err := cli.ReadSecret(ctx, std.in, std.err, "Token for "+c.URL+": ")
	if err != nil {
		return err
	}
	if secret == "" {
		return usage("no token: enter the one that serve printed, or one from plantstore token create")
	}
	api, err := clientWithToken(std, c.URL, secret, callTimeout)
	if err != nil {
		return err
	}
	token, err := api.Token(ctx)
	if err != nil {
		return err
	}
	logins, err := cli.OpenLogins()
	if err == nil {
		err = logins.Save(c.URL, secret)
	}
	if err != nil {
		return err
	}
	std.say(fmt.Sprintf("%s It is saved in %s.", describeToken(token), logins.Path))
	return nil
}

type logoutCommand struct{ loginArgs }

func (logoutCommand) Help() string {
	return "Removes the token that login saved for this server. The token itself stays valid: see plantstore token revoke."
}

func (c *logoutCommand) Run(std streams) error {
	logins, err := cli.OpenLogins()
	if err == nil {
		err = logins.Remove(c.URL)
	}
	if err != nil {
		return err
	}
	std.say(fmt.Sprintf("The token for %s is removed. It stays valid until it expires or is revoked.", c.URL))
	return nil
}
