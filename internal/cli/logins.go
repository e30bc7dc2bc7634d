package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Logins are the tokens that are saved for servers, in the user's configuration directory.
type Logins struct {
	Path   string // of their file
	noDir  error  // why there is no such directory, and so no file
	tokens map[string]string
}

// OpenLogins reads the file of saved tokens, if there is one.
func OpenLogins() (*Logins, error) {
	l := &Logins{tokens: map[string]string{}}
	dir, err := os.UserConfigDir()
	if err != nil {
		l.noDir = fmt.Errorf("cannot find your configuration directory: %w", err)
		return l, nil
	}
	l.Path = filepath.Join(dir, "plantstore", "tokens.json")
	info, err := os.Stat(l.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o077 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("%s can be read by others: run chmod 600 on it, and replace the tokens in it", l.Path)
	}
	text, err := os.ReadFile(l.Path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &l.tokens); err != nil || l.tokens == nil {
		return nil, fmt.Errorf("%s is damaged: remove it and log in again", l.Path) // the error may quote a token
	}
	return l, nil
}

// Token returns the token for a server, or "".
func (l *Logins) Token(server string) string { return l.tokens[ServerKey(server)] }

// Servers returns the URLs of the servers that have a token.
func (l *Logins) Servers() []string { return slices.Sorted(maps.Keys(l.tokens)) }

// Save saves the token for a server.
func (l *Logins) Save(server, token string) error {
	l.tokens[ServerKey(server)] = token
	return l.write()
}

// Remove removes the token for a server.
func (l *Logins) Remove(server string) error {
	if l.noDir == nil && l.Token(server) == "" {
		return fmt.Errorf("no token is saved for %s", server)
	}
	delete(l.tokens, ServerKey(server))
	return l.write()
}

// write replaces the file, which only its owner can read.
func (l *Logins) write() error {
	if l.noDir != nil {
		return l.noDir
	}
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return err
	}
	err := WriteFile(context.Background(), l.Path, func(out io.Writer) error {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(l.tokens)
	})
	if err != nil {
		return fmt.Errorf("save the token: %w", err)
	}
	return nil
}

// ServerKey returns the form of a server's URL under which its token is saved.
func ServerKey(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	return strings.TrimRight(u.String(), "/")
}

// ReadSecret asks for a secret on out without showing it. If the input is not a terminal, it reads
// a line.
func ReadSecret(ctx context.Context, in io.Reader, out io.Writer, prompt string) (string, error) {
	file, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		lines := bufio.NewReader(io.LimitReader(in, 64<<10))
		line, err := UntilInterrupted(ctx, func() (string, error) { return lines.ReadString('\n') })
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the token: %w", err)
		}
		return strings.TrimSpace(line), nil
	}
	before, err := term.GetState(int(file.Fd()))
	if err != nil {
		return "", err
	}
	fmt.Fprint(out, prompt)
	defer fmt.Fprintln(out)
	text, err := UntilInterrupted(ctx, func() ([]byte, error) { return term.ReadPassword(int(file.Fd())) })
	if ctx.Err() != nil { // the terminal must show again what is typed
		err = errors.Join(ctx.Err(), term.Restore(int(file.Fd()), before))
	}
	return strings.TrimSpace(string(text)), err
}
