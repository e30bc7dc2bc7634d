package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/auth"
	"plantstore/internal/cli"
	"plantstore/internal/sqlite"
	"plantstore/internal/wire"
)

// tokenFlags say where the tokens are: behind a server, or in a store.
type tokenFlags struct {
	configFlags
	DB  *string `name:"db" env:"PLANTSTORE_DB" placeholder:"FILE|URL" help:"Open this store: the path of a file, or postgres://user:password@host:5432/database (plantstore.db, if no server is known)."`
	URL string  `name:"url" env:"PLANTSTORE_URL" placeholder:"URL" help:"Call the server with this base URL (the one of plantstore login)."`
}

const tokenTargetHelp = `The command calls the server of --url, PLANTSTORE_URL or plantstore login, with your own token. If no server is known, or if --db, PLANTSTORE_DB or the configuration file names a store, it opens the store, even while a server is using it. A flag overrides variables and the file. Without one, naming both a server and a store is an error.`

// choose sets either URL or DB, and returns a name for it in errors. A store that was given needs
// none: its errors name it.
func (f *tokenFlags) choose() (target string, err error) {
	if f.DB != nil && *f.DB == "" && cli.IsSet("PLANTSTORE_DB") {
		f.DB = nil // an empty variable names no store, as it names no server
	}
	switch {
	case f.URL != "" && f.DB != nil: // neither by a flag, which would override the other
		store := f.Config
		if cli.IsSet("PLANTSTORE_DB") {
			store = "PLANTSTORE_DB"
		}
		return "", usage("PLANTSTORE_URL names a server and %s a store: use only one of them, or --url or --db", store)
	case f.DB != nil:
		return "", nil
	case f.URL == "":
		saved, err := cli.OpenLogins()
		if err != nil {
			return "", err
		}
		servers := saved.Servers()
		if len(servers) == 0 {
			f.DB = new("plantstore.db")
			return "no server is known, so the store is " + *f.DB, nil
		}
		if len(servers) > 1 {
			return "", usage("there are logins for %s: use --url to name a server, or --db for a store", strings.Join(servers, ", "))
		}
		f.URL = servers[0]
	}
	if u, err := url.Parse(f.URL); err == nil {
		target = "server " + u.Redacted()
	}
	return target, nil
}

// run calls do once it is clear where the tokens are, and says that in its error.
func (f *tokenFlags) run(do func() error) error {
	target, err := f.choose()
	if err != nil {
		return err
	}
	if err = do(); err != nil && target != "" {
		return fmt.Errorf("%s: %w", target, err)
	}
	return err
}

// tokenStore has the tokens of a server or of a store: it is a [client.Client] or an [auth.Operator].
type tokenStore interface {
	Tokens(ctx context.Context) ([]plantstore.TokenInfo, error)
	CreateToken(ctx context.Context, asked plantstore.NewToken) (token plantstore.TokenInfo, secret string, err error)
	RevokeToken(ctx context.Context, id string) error
}

// use calls do with the tokens that were chosen. open opens the store, if they are in one.
func (f *tokenFlags) use(std streams, open func(storeFlags) (plantstore.Store, error), do func(tokenStore) error) error {
	if f.URL != "" {
		api, err := clientFlags{f.URL}.client(std, callTimeout)
		if err != nil {
			return err
		}
		return do(api)
	}
	store, err := open(storeFlags{DB: *f.DB})
	if err != nil {
		return err
	}
	return errors.Join(do(auth.Operator{Store: store}), store.Close())
}

type tokenCommand struct {
	Create tokenCreate `cmd:"" help:"Create a token and print it once."`
	List   tokenList   `cmd:"" help:"List the tokens."`
	Revoke tokenRevoke `cmd:"" help:"Revoke a token permanently."`
	Show   tokenShow   `cmd:"" help:"Show your own token, without its secret."`
}

// lifetime is how long a token is valid, or zero for never expiring.
type lifetime time.Duration

func (l *lifetime) UnmarshalText(text []byte) error {
	if string(text) == "never" {
		*l = 0
		return nil
	}
	if d, err := cli.ParseDuration(string(text)); err == nil && d >= time.Second {
		*l = lifetime(d)
		return nil
	}
	return fmt.Errorf("%q is not a valid lifetime: use 90d, 12h or never", text)
}

type tokenCreate struct {
	tokenFlags
	Name    string    `required:"" placeholder:"NAME" help:"The name of the token, such as its purpose."`
	Scopes  string    `default:"plants:write,plants:read" placeholder:"SCOPES" help:"Its rights: plants:write, plants:read, events:read, tokens:read, tokens:write, webhooks:read, webhooks:write, ops:read (${default})."`
	Expires *lifetime `placeholder:"TIME" help:"How long it is valid: 90d, 12h, never (90d; on a server no longer than your own token)."`
	Rate    tokenRate `placeholder:"RATE" help:"Its rate limit: 200/s, 200/s,burst=400, 30/m (the server's --rate-limit; on a server no more than your own limit)."`
	Init    bool      `help:"Create the store if there is none."`
	Force   bool      `help:"Create the token even if an active one has the same name."`
}

// tokenRate is a rate that is not off.
type tokenRate struct{ plantstore.Rate }

func (r *tokenRate) UnmarshalText(text []byte) (err error) {
	r.Rate, err = plantstore.ParseTokenRate(string(text))
	return err
}

func (tokenCreate) Help() string {
	return `Only the token goes to standard output, so that a script can capture it:
  TOKEN=$(plantstore token create --name ci)

It works immediately, even on a running server. Only its hash is stored, so it cannot be shown again.

` + tokenTargetHelp + `

On a server, your own token needs the scopes tokens:write and tokens:read (only the first with --force), and the new one gets no scope, lifetime or rate that yours does not have. A store must exist: start the server first, or use --init.`
}

func (c *tokenCreate) Run(ctx context.Context, std streams) error {
	scopes, err := plantstore.ParseScopes(c.Scopes)
	if err != nil {
		return usage("--scopes: %w", err)
	}
	if strings.TrimSpace(c.Name) == "" {
		return usage("--name must not be blank: say what the token is for")
	}
	asked := plantstore.NewToken{Name: c.Name, Scopes: scopes, DefaultExpiry: c.Expires == nil, Rate: c.Rate.Rate}
	if c.Expires != nil && *c.Expires != 0 {
		asked.Expires = time.Now().UTC().Truncate(time.Second).Add(time.Duration(*c.Expires))
	}
	return c.run(func() error {
		if c.Init && c.URL != "" {
			return usage("--init creates a store: use --db to name it")
		}
		err := c.create(ctx, std, sqlite.Existing, asked)
		switch {
		case c.URL != "" || !errors.Is(err, fs.ErrNotExist):
			return err
		case c.Init:
			return c.create(ctx, std, sqlite.Share, asked)
		}
		return fmt.Errorf("there is no store at %s: check --db, or use --init to create one", cli.MaskSecrets(*c.DB))
	})
}

// create creates the token and prints it. The mode is that in which a store is opened.
func (c *tokenCreate) create(ctx context.Context, std streams, mode sqlite.Mode, asked plantstore.NewToken) error {
	open := func(f storeFlags) (plantstore.Store, error) { return f.openAlongside(ctx, mode) }
	return c.use(std, open, func(tokens tokenStore) error {
		if err := c.checkName(ctx, tokens); err != nil {
			return err
		}
		token, secret, err := tokens.CreateToken(ctx, asked)
		if errors.Is(err, plantstore.ErrPrivilege) {
			err = fmt.Errorf("%w; to create a token without these limits, use the store itself: plantstore token create --db FILE|URL", err)
		}
		if err != nil {
			return err
		}
		if mode == sqlite.Share {
			std.say(cli.MaskSecrets(*c.DB) + " is a new store.")
		}
		std.say(describeToken(token) + " It will not be shown again.")
		_, err = fmt.Fprintln(std.out, secret)
		return err
	})
}

// checkName returns an error if a working token has the name, unless that is wanted.
func (c *tokenCreate) checkName(ctx context.Context, in tokenStore) error {
	if c.Force {
		return nil
	}
	tokens, err := in.Tokens(ctx)
	if err != nil {
		return fmt.Errorf("cannot check whether the name is free: %w; --force creates the token without the check", err)
	}
	for _, t := range tokens {
		if t.Name == c.Name && t.State(time.Now()) == "active" {
			return usage("token %s is named %q already, and works: choose another name, revoke it, or use --force", t.ID, c.Name)
		}
	}
	return nil
}

type tokenList struct {
	tokenFlags
	JSON bool `name:"json" help:"Print JSON."`
}

func (tokenList) Help() string { return tokenTargetHelp }

func (c *tokenList) Run(ctx context.Context, std streams) error {
	open := func(f storeFlags) (plantstore.Store, error) { return f.look(ctx, std) }
	return c.run(func() error {
		return c.use(std, open, func(in tokenStore) error {
			tokens, err := in.Tokens(ctx)
			if err != nil {
				return err
			}
			return c.print(std.out, tokens)
		})
	})
}

func (c *tokenList) print(out io.Writer, tokens []plantstore.TokenInfo) error {
	type row struct {
		ID       string             `json:"id"`
		Name     string             `json:"name"`
		State    string             `json:"state"`
		Scopes   []plantstore.Scope `json:"scopes"`
		Rate     string             `json:"rate,omitzero"`
		Created  time.Time          `json:"created"`
		Expires  time.Time          `json:"expires,omitzero"`
		Revoked  time.Time          `json:"revoked,omitzero"`
		LastUsed time.Time          `json:"last_used,omitzero"`
	}
	rows := make([]row, len(tokens))
	for i, t := range tokens {
		rows[i] = row{t.ID, t.Name, t.State(time.Now()), t.Scopes, "", t.Created, t.Expires, t.Revoked, t.LastUsed}
		if !t.Rate.IsZero() {
			rows[i].Rate = t.Rate.String()
		}
	}
	if c.JSON {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	return printTable(out, func(table io.Writer) {
		fmt.Fprintln(table, "ID\tNAME\tSTATE\tSCOPES\tRATE\tCREATED\tEXPIRES\tLAST USED")
		for _, r := range rows {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.ID, printable(r.Name), r.State,
				plantstore.FormatScopes(r.Scopes), cmp.Or(r.Rate, "default"), when(r.Created), when(r.Expires), when(r.LastUsed))
		}
	})
}

type tokenRevoke struct {
	tokenFlags
	Token string `arg:"" name:"token" placeholder:"ID|NAME" help:"The token's id, or its name if it is unique."`
}

func (tokenRevoke) Help() string {
	return `A running server refuses the token within two seconds. Revocation cannot be undone.

` + tokenTargetHelp
}

func (c *tokenRevoke) Run(ctx context.Context, std streams) error {
	open := func(f storeFlags) (plantstore.Store, error) { return f.openAlongside(ctx, sqlite.Existing) }
	return c.run(func() error {
		return c.use(std, open, func(in tokenStore) error {
			tokens, err := in.Tokens(ctx)
			if err != nil {
				return err
			}
			token, err := pickToken(tokens, c.Token)
			if err != nil {
				return err
			}
			if err := in.RevokeToken(ctx, token.ID); err != nil {
				return fmt.Errorf("cannot revoke the token: %w", err)
			}
			std.say(fmt.Sprintf("Token %s (%s) is revoked.", token.ID, token.Name))
			return nil
		})
	})
}

type tokenShow struct {
	clientFlags
	outputFlags
}

func (c *tokenShow) Run(ctx context.Context, api *client.Client, std streams) error {
	token, err := api.Token(ctx)
	if err != nil {
		return err
	}
	return c.print(std.out, wire.EncodeToken(token, ""), func(text io.Writer) { fmt.Fprintln(text, describeToken(token)) })
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
	if !t.Rate.IsZero() {
		scopes += " and the rate " + t.Rate.String()
	}
	expiry := "never expires"
	if !t.Expires.IsZero() {
		expiry = "expires " + when(t.Expires)
	}
	return fmt.Sprintf("%s has %s and %s.", who, scopes, expiry)
}

// pickToken finds the token with this id, or the only unrevoked one with this name.
func pickToken(tokens []plantstore.TokenInfo, key string) (plantstore.TokenInfo, error) {
	var named []plantstore.TokenInfo
	for _, t := range tokens {
		if t.ID == key {
			return t, nil
		}
		if t.Name == key && t.Revoked.IsZero() {
			named = append(named, t)
		}
	}
	switch len(named) {
	case 0:
		return plantstore.TokenInfo{}, fmt.Errorf("no token has the id or name %q: see plantstore token list", key)
	case 1:
		return named[0], nil
	}
	return plantstore.TokenInfo{}, fmt.Errorf("%d tokens are named %q: revoke one by its id, see plantstore token list", len(named), key)
}
