package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/term"

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
	secret, err := readSecret(ctx, std, "Token for "+c.URL+": ")
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
	file, err := openLogins()
	if err != nil {
		return err
	}
	file.tokens[loginKey(c.URL)] = secret
	if err := file.save(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.err, "%s It is saved in %s.\n", describeToken(token), file.path)
	return err
}

type logoutCommand struct{ loginArgs }

func (logoutCommand) Help() string {
	return "Removes the token that login saved for this server. The token itself stays valid: see plantstore token revoke."
}

func (c *logoutCommand) Run(std streams) error {
	file, err := openLogins()
	if err != nil {
		return err
	}
	key := loginKey(c.URL)
	if _, ok := file.tokens[key]; !ok {
		return fmt.Errorf("no token is saved for %s", c.URL)
	}
	delete(file.tokens, key)
	if err := file.save(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.err, "The token for %s is removed. It stays valid until it expires or is revoked.\n", c.URL)
	return err
}

// readSecret asks for a secret without showing it. If the input is not a terminal, it
// reads a line.
func readSecret(ctx context.Context, std streams, prompt string) (string, error) {
	file, ok := std.in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		in := bufio.NewReader(io.LimitReader(std.in, 64<<10))
		line, err := cli.UntilInterrupted(ctx, func() (string, error) { return in.ReadString('\n') })
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the token: %w", err)
		}
		return strings.TrimSpace(line), nil
	}
	before, err := term.GetState(int(file.Fd()))
	if err != nil {
		return "", err
	}
	fmt.Fprint(std.err, prompt)
	defer fmt.Fprintln(std.err)
	text, err := cli.UntilInterrupted(ctx, func() ([]byte, error) { return term.ReadPassword(int(file.Fd())) })
	if ctx.Err() != nil { // the terminal must show again what is typed
		err = errors.Join(ctx.Err(), term.Restore(int(file.Fd()), before))
	}
	return strings.TrimSpace(string(text)), err
}

// logins are the saved tokens, by the URL of their server.
type logins struct {
	path   string
	tokens map[string]string
}

// errNoConfigDir means that the user has no configuration directory, and so no logins.
var errNoConfigDir = errors.New("cannot find your configuration directory")

// openLogins reads the file of saved tokens, if there is one.
func openLogins() (*logins, error) {
	l := &logins{tokens: map[string]string{}}
	dir, err := os.UserConfigDir()
	if err != nil {
		return l, fmt.Errorf("%w: %w", errNoConfigDir, err)
	}
	l.path = filepath.Join(dir, "plantstore", "tokens.json")
	info, err := os.Stat(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s can be read by others: run chmod 600 on it, and replace the tokens in it", l.path)
	}
	text, err := os.ReadFile(l.path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &l.tokens); err != nil || l.tokens == nil {
		return nil, fmt.Errorf("%s is damaged: remove it and log in again", l.path) // the error may quote a token
	}
	return l, nil
}

// save replaces the file, which only its owner can read.
func (l *logins) save() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	err := cli.WriteFile(context.Background(), l.path, func(out io.Writer) error {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(l.tokens)
	})
	return wrap("save the token", err)
}

// loginKey returns the form of a URL under which its token is saved.
func loginKey(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/")
}
