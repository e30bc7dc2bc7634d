package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/alecthomas/kong"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/wire"
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
	outputFlags
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
	return c.printPlant(std.out, c.plant())
}

// conditionFlags say when a command changes a plant.
type conditionFlags struct {
	IfMatch *string `placeholder:"VERSION" help:"Only if the plant has this version: its ETag, without the quotes."`
}

func (f conditionFlags) condition() *plantstore.Condition {
	if f.IfMatch == nil {
		return nil
	}
	return &plantstore.Condition{Match: []plantstore.ETag{plantstore.ETag(`"` + *f.IfMatch + `"`)}}
}

type putCommand struct {
	clientFlags
	plantArgs
	conditionFlags
}

// Run replaces the plant. It says so if the plant loses its tag.
func (c *putCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	var before plantstore.Plant
	if _, tagged := c.Tag.Text(); !tagged {
		var err error
		before, err = api.Get(ctx, c.ID)
		if err != nil && !errors.Is(err, plantstore.ErrNoPlant) && !errors.Is(err, plantstore.ErrScope) {
			return err
		}
	}
	if err := api.Replace(ctx, c.plant(), c.condition()); err != nil {
		return err
	}
	if tag, ok := before.Tag.Text(); ok {
		fmt.Fprintf(std.err, "Plant %d no longer has the tag %q.\n", c.ID, tag)
	}
	return c.printPlant(std.out, c.plant())
}

type patchCommand struct {
	clientFlags
	ID    plantstore.ID  `arg:"" placeholder:"ID" help:"The plant's id."`
	Name  *string        `placeholder:"NAME" help:"The plant's new name."`
	Tag   plantstore.Tag `xor:"tag" placeholder:"TAG" help:"The plant's new tag."`
	NoTag bool           `xor:"tag" help:"Remove the plant's tag."`
	conditionFlags
	outputFlags
}

func (patchCommand) Help() string {
	return `What is not given stays as it is. ` + tokenHelp + `

Examples:
  plantstore patch 1 --name 'Monstera deliciosa'
  plantstore patch 1 --no-tag`
}

func (c *patchCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	patch := plantstore.PlantPatch{Name: c.Name}
	if _, given := c.Tag.Text(); given || c.NoTag {
		patch.Tag = &c.Tag
	}
	if patch == (plantstore.PlantPatch{}) {
		return usage("nothing to change: give --name, --tag or --no-tag")
	}
	plant, err := api.Patch(ctx, c.ID, patch, c.condition())
	if err != nil {
		return err
	}
	return c.printPlant(std.out, plant)
}

type getCommand struct {
	clientFlags
	ID plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	outputFlags
}

func (c *getCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	plant, err := api.Get(ctx, c.ID)
	if err != nil {
		return err
	}
	return c.printPlant(std.out, plant)
}

type deleteCommand struct {
	clientFlags
	ID plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	conditionFlags
}

func (c *deleteCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	if err := api.Delete(ctx, c.ID, c.condition()); err != nil {
		return err
	}
	_, err := fmt.Fprintf(std.err, "Plant %d is deleted.\n", c.ID)
	return err
}

// filterFlags say which plants a list or an export contains.
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
	Limit int `default:"50" min:"0" placeholder:"N" help:"The maximum number of plants to list; 0 for all (${default})."`
	outputFlags
}

func (listCommand) Help() string {
	return `Prints a table on a terminal, and a JSON array elsewhere. ` + tokenHelp + `

Examples:
  plantstore list --q 'deliciosa monst'
  plantstore list --tag tropical --limit 0 | jq '.[].name'`
}

// Run prints the plants. If there are more, it says how to go on, with the arguments that
// were given.
func (c *listCommand) Run(ctx context.Context, line *kong.Context, api *client.Client, std streams) (err error) {
	defer func() { err = interruption(ctx, "the list", err) }()
	show := c.listing(cli.WriterUntil(ctx, std.out), plantHeading)
	query := c.query()
	query.Limit = 1000
	if c.Limit > 0 {
		query.Limit = min(c.Limit+1, 1000)
	}
	var last plantstore.ID
	for plant, err := range api.List(ctx, query) {
		if err != nil {
			return errors.Join(err, show.Out.Flush())
		}
		if c.Limit > 0 && show.Count == int64(c.Limit) {
			if err := show.Close(); err != nil {
				return err
			}
			_, err := fmt.Fprintf(std.err, "There are more: plantstore %s\n", withAfter(line.Args, last))
			return err
		}
		encoded, err := wire.AppendNewPlant(nil, plant)
		if err != nil {
			return err
		}
		if err := show.row(plantRow(plant), encoded); err != nil {
			return err
		}
		last = plant.ID
	}
	return show.Close()
}

// withAfter returns the arguments, with that of --after replaced, as they are typed in a shell.
// cli.Prepare has joined each flag with its value.
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
const plantHeading = "ID\tNAME\tTAG\n"

func plantRow(p plantstore.Plant) string {
	tag, _ := p.Tag.Text()
	return fmt.Sprintf("%d\t%s\t%s\n", p.ID, printable(p.Name), printable(tag))
}

func (f outputFlags) printPlant(out io.Writer, p plantstore.Plant) error {
	encoded, err := wire.AppendNewPlant(nil, p)
	if err != nil {
		return err
	}
	return f.print(out, encoded, func(table io.Writer) { io.WriteString(table, plantHeading+plantRow(p)) })
}
