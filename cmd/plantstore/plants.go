package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/wire"
)

// clientFlags say which server a command calls. The token has no flag: every user of
// the machine can read a command line.
type clientFlags struct {
	URL string `name:"url" default:"http://127.0.0.1:8080" env:"PLANTSTORE_URL" placeholder:"URL" help:"The base URL of the server (${default})."`
}

// tokenEnv is the variable that has the token.
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
		saved, err := openLogins()
		if err != nil && !errors.Is(err, errNoConfigDir) {
			return nil, err
		}
		token = saved.tokens[loginKey(url)]
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
			expires.Do(func() {
				fmt.Fprintf(std.err, "plantstore: the token expires at %s: ask for a new one\n", at.Format(time.RFC3339))
			})
		},
	})
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// plantArgs are a plant as a person types it.
type plantArgs struct {
	ID   plantstore.ID  `arg:"" placeholder:"ID" help:"The plant's id."`
	Name string         `arg:"" placeholder:"NAME" help:"The plant's name."`
	Tag  plantstore.Tag `placeholder:"TAG" help:"The plant's tag (its type)."`
	JSON bool           `name:"json" help:"Print JSON even on a terminal."`
}

func (a plantArgs) plant() plantstore.Plant {
	return plantstore.Plant{ID: a.ID, Name: a.Name, Tag: a.Tag}
}

type createCommand struct {
	clientFlags
	plantArgs
}

func (createCommand) Help() string {
	return tokenHelp + `

Example:
  plantstore create 1 Monstera --tag tropical`
}

func (c *createCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	if err := api.Create(ctx, c.plant()); err != nil {
		return err
	}
	return showPlant(std.out, c.plant(), c.JSON)
}

type putCommand struct {
	clientFlags
	plantArgs
}

func (c *putCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	if err := api.Replace(ctx, c.plant(), nil); err != nil {
		return err
	}
	return showPlant(std.out, c.plant(), c.JSON)
}

type getCommand struct {
	clientFlags
	ID   plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	JSON bool          `name:"json" help:"Print JSON even on a terminal."`
}

func (c *getCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	plant, err := api.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	return showPlant(std.out, plant, c.JSON)
}

type deleteCommand struct {
	clientFlags
	ID plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
}

func (c *deleteCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	if err := api.Delete(ctx, c.ID, nil); err != nil {
		return err
	}
	_, err := fmt.Fprintf(std.err, "Plant %d is deleted.\n", c.ID)
	return err
}

// filterFlags say which plants a list or an export has.
type filterFlags struct {
	Tag      plantstore.Tag `placeholder:"TAG" help:"Only plants with exactly this tag."`
	Contains string         `name:"q" placeholder:"TEXT" help:"Only plants whose name contains every word of this text, ignoring case and diacritics."`
	After    *plantstore.ID `placeholder:"ID" help:"Only plants with a greater id."`
}

func (f filterFlags) query() plantstore.Query {
	return plantstore.Query{Tag: f.Tag, Contains: f.Contains, After: f.After}
}

type listCommand struct {
	clientFlags
	filterFlags
	Limit int  `default:"50" min:"0" placeholder:"N" help:"The maximum number of plants to list; 0 for all (${default})."`
	JSON  bool `name:"json" help:"Print a JSON array even on a terminal."`
}

func (listCommand) Help() string {
	return `Prints a table on a terminal, and a JSON array elsewhere. ` + tokenHelp + `

Examples:
  plantstore list --q 'deliciosa monst'
  plantstore list --tag tropical --limit 0 | jq '.[].name'`
}

func (c *listCommand) Run(ctx context.Context, line *kong.Context, api *client.Client, std streams) error {
	return interruption(ctx, "the list", c.list(ctx, api, line.Args, std))
}

// list prints the plants. If there are more, it says how to go on, with the arguments that
// were given.
func (c *listCommand) list(ctx context.Context, api *client.Client, args []string, std streams) error {
	show := newListing(interruptible{ctx, std.out}, c.JSON, plantHeading)
	query := c.query()
	query.Limit = 1000
	if c.Limit > 0 {
		query.Limit = min(c.Limit+1, 1000)
	}
	shown := 0
	var last plantstore.ID
	for plant, err := range api.List(ctx, query) {
		if err != nil {
			return errors.Join(err, show.stop())
		}
		if c.Limit > 0 && shown == c.Limit {
			if err := show.close(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(std.err, "There are more: plantstore %s\n", withAfter(args, last))
			return err
		}
		if err := show.add(plant); err != nil {
			return err
		}
		shown++
		last = plant.ID
	}
	return show.close()
}

// withAfter returns the arguments, with that of --after replaced, as they are typed in a shell.
// prepareArgs has joined each flag with its value.
func withAfter(args []string, after plantstore.ID) string {
	var words []string
	for _, arg := range args {
		name, value, hasValue := strings.Cut(arg, "=")
		switch {
		case name == "--after":
		case hasValue:
			words = append(words, name+"="+shellQuoted(value))
		default:
			words = append(words, arg)
		}
	}
	return strings.Join(append(words, "--after="+after.String()), " ")
}

// shellQuoted returns text as one word of a shell.
func shellQuoted(text string) string {
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

var plainWord = regexp.MustCompile(`^[\w:/.,@%+-]+$`)

// plantHeading is the heading of a table of plants.
const plantHeading = "ID\tNAME\tTAG"

// listing prints plants, or something else, as a table on a terminal, and as a JSON array
// elsewhere. The array is closed only when it is complete, so that a part never looks like
// the whole.
type listing struct {
	table *tabwriter.Writer // nil for JSON
	out   *bufio.Writer
	count int
}

func newListing(out io.Writer, asJSON bool, heading string) *listing {
	l := &listing{out: bufio.NewWriter(out)}
	if !asJSON && isTerminal(out) {
		l.table = tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(l.table, heading)
	}
	return l
}

func (l *listing) add(p plantstore.Plant) error {
	tag, _ := p.Tag.Text()
	text, err := wire.AppendNewPlant(nil, p)
	if err != nil {
		return err
	}
	return l.row(fmt.Sprintf("%d\t%s\t%s", p.ID, printable(p.Name), printable(tag)), text)
}

// row adds a row, given as the cells of a table and as JSON.
func (l *listing) row(cells string, text []byte) error {
	lead := ",\n"
	if l.count == 0 {
		lead = "[\n"
	}
	l.count++
	if l.table != nil {
		_, err := fmt.Fprintln(l.table, cells)
		return err
	}
	_, err := fmt.Fprintf(l.out, "%s%s", lead, text)
	return err
}

// stop prints the rows of a list that cannot be completed, if there are any.
func (l *listing) stop() error {
	if l.count == 0 {
		return nil
	}
	return l.flush()
}

// close ends a list that is complete.
func (l *listing) close() error {
	end := "\n]\n"
	switch {
	case l.table != nil:
		end = ""
	case l.count == 0:
		end = "[]\n"
	}
	l.out.WriteString(end) // flush returns the error
	return l.flush()
}

func (l *listing) flush() error {
	if l.table != nil {
		if err := l.table.Flush(); err != nil {
			return err
		}
	}
	return l.out.Flush()
}

// showPlant prints one plant: as a table on a terminal, as JSON elsewhere.
func showPlant(out io.Writer, p plantstore.Plant, asJSON bool) error {
	if !asJSON && isTerminal(out) {
		one := newListing(out, false, plantHeading)
		return errors.Join(one.add(p), one.close())
	}
	line, err := wire.AppendNewPlant(nil, p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}
