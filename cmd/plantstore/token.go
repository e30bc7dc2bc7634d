package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"plantstore"
	"plantstore/internal/sqlite"
	"plantstore/internal/wire"
)

const defaultLifetime = 90 * 24 * time.Hour

type tokenCommand struct {
	Create tokenCreate `cmd:"" help:"Create a token and print it once."`
	List   tokenList   `cmd:"" help:"List the tokens."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token permanently."`
	Show   tokenShow   `cmd:"" help:"Show your own token, without its secret."`
}

// lifetime is how long a token is valid: a duration that may be in days, or zero for
// never expiring.
type lifetime time.Duration

func (l *lifetime) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*l = 0
		return nil
	}
	if days, isDays := strings.CutSuffix(string(text), "d"); isDays {
		if n, err := strconv.Atoi(days); err == nil && n > 0 && n <= 36500 {
			*l = lifetime(n) * lifetime(24*time.Hour)
			return nil
		}
	} else if d, err := time.ParseDuration(string(text)); err == nil && d >= time.Second {
		*l = lifetime(d)
		return nil
	}
	return fmt.Errorf("%q is not a valid lifetime: use 90d, 12h or never", text)
}

type tokenCreate struct {
	storeFlags
	Name    string   `required:"" placeholder:"NAME" help:"What the token is for."`
	Scopes  string   `default:"plants:write,plants:read" placeholder:"SCOPES" help:"What it may do: plants:write, plants:read, events:read, webhooks:read, webhooks:write, ops:read (${default})."`
	Expires lifetime `default:"90d" placeholder:"TIME" help:"How long it is valid: 90d, 12h, never (${default})."`
	Init    bool     `help:"Create the store if there is none."`
}

// Help is the long part of the help page.
func (tokenCreate) Help() string {
	return `Only the token goes to standard output, so that a script can capture it:
  TOKEN=$(plantstore token create --name ci)

It works immediately, even on a running server. Only its hash is stored, so it cannot be shown again.

The store must exist: start the server first, or use --init.`
}

func (c *tokenCreate) Run(ctx context.Context, std streams) error {
	scopes, err := plantstore.ParseScopes(c.Scopes)
	if err != nil {
		return usage("--scopes: %w", err)
	}
	if strings.TrimSpace(c.Name) == "" {
		return usage("--name must not be blank: say what the token is for")
	}
	secret := plantstore.NewSecret()
	now := time.Now().UTC().Truncate(time.Second)
	token := plantstore.Token{Hash: plantstore.HashSecret(secret), Name: c.Name, Scopes: scopes, Created: now}
	if c.Expires > 0 {
		token.Expires = now.Add(time.Duration(c.Expires))
	}
	name, err := c.add(ctx, sqlite.Existing, token)
	if errors.Is(err, fs.ErrNotExist) {
		if !c.Init {
			return fmt.Errorf("there is no store at %s: check --db, or use --init to create one", name)
		}
		if name, err = c.add(ctx, sqlite.Share, token); err == nil {
			fmt.Fprintf(std.err, "%s is a new store.\n", name)
		}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(std.err, "Token %s (%s) has the scopes %s and %s. It will not be shown again.\n",
		token.Hash.ID(), token.Name, strings.Join(strings.Split(plantstore.FormatScopes(scopes), ","), ", "), expiry(token.Expires))
	_, err = fmt.Fprintln(std.out, secret)
	return err
}

// add adds the token to the store, and returns where that is as it may be printed.
func (c *tokenCreate) add(ctx context.Context, mode sqlite.Mode, token plantstore.Token) (name string, err error) {
	store, err := c.openAlongside(mode)
	if err != nil {
		return c.DB, err
	}
	defer store.Close()
	if err := store.CreateToken(ctx, token); err != nil {
		return c.name(store), fmt.Errorf("cannot create the token: %w", err)
	}
	return c.name(store), nil
}

type tokenList struct {
	storeFlags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *tokenList) Run(ctx context.Context, std streams) error {
	store, err := c.openAlongside(sqlite.Existing)
	if err != nil {
		return err
	}
	defer store.Close()
	tokens, err := store.Tokens(ctx)
	if err != nil {
		return fmt.Errorf("cannot list the tokens: %w", err)
	}
	if c.JSON {
		return listJSON(std.out, tokens)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSTATE\tSCOPES\tCREATED\tEXPIRES\tLAST USED")
	for _, t := range tokens {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", t.Hash.ID(), printable(t.Name), state(&t),
			plantstore.FormatScopes(t.Scopes), when(t.Created), when(t.Expires), when(t.LastUsed))
	}
	return w.Flush()
}

func listJSON(out io.Writer, tokens []plantstore.Token) error {
	type row struct {
		ID       string             `json:"id"`
		Name     string             `json:"name"`
		State    string             `json:"state"`
		Scopes   []plantstore.Scope `json:"scopes"`
		Created  time.Time          `json:"created"`
		Expires  time.Time          `json:"expires,omitzero"`
		Revoked  time.Time          `json:"revoked,omitzero"`
		LastUsed time.Time          `json:"lastUsed,omitzero"`
	}
	rows := make([]row, len(tokens))
	for i, t := range tokens {
		rows[i] = row{t.Hash.ID(), t.Name, state(&t), t.Scopes, t.Created, t.Expires, t.Revoked, t.LastUsed}
	}
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(rows)
}

type tokenRevoke struct {
	storeFlags
	Token string `arg:"" name:"token" placeholder:"ID|NAME" help:"The token's id, or its name if it is unique."`
}

// Help is the long part of the help page.
func (tokenRevoke) Help() string {
	return `A running server refuses the token within two seconds. Revocation cannot be undone.`
}

func (c *tokenRevoke) Run(ctx context.Context, std streams) error {
	store, err := c.openAlongside(sqlite.Existing)
	if err != nil {
		return err
	}
	defer store.Close()
	tokens, err := store.Tokens(ctx)
	if err != nil {
		return fmt.Errorf("cannot read the tokens: %w", err)
	}
	token, err := pickToken(tokens, c.Token)
	if err != nil {
		return err
	}
	if err := store.RevokeToken(ctx, token.Hash, time.Now()); err != nil {
		return fmt.Errorf("cannot revoke the token: %w", err)
	}
	_, err = fmt.Fprintf(std.err, "Token %s (%s) is revoked.\n", token.Hash.ID(), token.Name)
	return err
}

type tokenShow struct {
	clientFlags
	JSON bool `name:"json" help:"Print JSON even on a terminal."`
}

// Help is the long part of the help page.
func (tokenShow) Help() string { return tokenHelp }

func (c *tokenShow) Run(ctx context.Context, std streams) error {
	api, err := c.client(std, callTimeout)
	if err != nil {
		return err
	}
	token, err := api.Token(ctx)
	if err != nil {
		return err
	}
	if c.JSON || !isTerminal(std.out) {
		_, err = fmt.Fprintf(std.out, "%s\n", wire.EncodeToken(token))
		return err
	}
	_, err = fmt.Fprintln(std.out, describeToken(token))
	return err
}

// describeToken says in a sentence what a token is.
func describeToken(t plantstore.TokenInfo) string {
	who := fmt.Sprintf("Token %s (%s)", t.ID, printable(t.Name))
	if t.Issuer != "" {
		who = fmt.Sprintf("The token of %s from %s", printable(t.Subject), printable(t.Issuer))
	}
	scopes := "no scopes"
	if len(t.Scopes) > 0 {
		scopes = "the scopes " + strings.ReplaceAll(plantstore.FormatScopes(t.Scopes), ",", ", ")
	}
	return fmt.Sprintf("%s has %s and %s.", who, scopes, expiry(t.Expires))
}

// pickToken finds the token with this id, or the only unrevoked one with this name.
func pickToken(tokens []plantstore.Token, key string) (plantstore.Token, error) {
	var named []plantstore.Token
	for _, t := range tokens {
		if t.Hash.ID() == key {
			return t, nil
		}
		if t.Name == key && t.Revoked.IsZero() {
			named = append(named, t)
		}
	}
	switch len(named) {
	case 0:
		return plantstore.Token{}, fmt.Errorf("no token has the id or name %q: see plantstore token list", key)
	case 1:
		return named[0], nil
	}
	return plantstore.Token{}, fmt.Errorf("%d tokens are named %q: revoke one by its id, see plantstore token list", len(named), key)
}

func state(t *plantstore.Token) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case t.ExpiredAt(time.Now()):
		return "expired"
	}
	return "active"
}

func expiry(t time.Time) string {
	if t.IsZero() {
		return "never expires"
	}
	return "expires " + when(t)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// printable returns text in a form that fits one cell of a table.
func printable(text string) string {
	quoted := strconv.Quote(text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}
