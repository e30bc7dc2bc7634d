package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"plantstore"
	"plantstore/client"
)

// clientFlags say which server a command talks to. The token has no flag: a
// command line can be read by everybody on the machine.
type clientFlags struct {
	URL string `name:"url" default:"http://127.0.0.1:8080" placeholder:"URL" help:"The base URL of the server (${default})."`
}

const tokenHelp = "The token is taken from the environment variable PLANTSTORE_TOKEN."

// How long a command tries to reach the server: not long where a person waits for
// one answer, and long enough for a fail-over where a file is under way.
const (
	callPatience = 5 * time.Second
	filePatience = time.Minute
)

func (f clientFlags) client(std streams, patience time.Duration) (*client.Client, error) {
	token := os.Getenv("PLANTSTORE_TOKEN")
	if token == "" {
		return nil, usage("no token: set PLANTSTORE_TOKEN to one that serve printed or that plantstore token create made")
	}
	var once sync.Once
	c, err := client.New(f.URL, token, client.Options{Patience: patience, Retrying: func(err error, _ time.Duration) {
		once.Do(func() { fmt.Fprintf(std.err, "plantstore: %v; trying again for up to %s\n", err, patience) })
	}})
	if err != nil {
		return nil, usage("%w", err)
	}
	return c, nil
}

// negative finds arguments that are negative numbers and not flags. protect marks
// them with a NUL, which no argument can have, so that the parser leaves them to
// plantID and text, which take the mark off.
var negative = regexp.MustCompile(`^-[0-9]+$`)

const mark = "\x00"

func protect(args []string) []string {
	protected := make([]string, len(args))
	for i, arg := range args {
		if negative.MatchString(arg) {
			arg = mark + arg
		}
		protected[i] = arg
	}
	return protected
}

type plantID plantstore.ID

func (id *plantID) UnmarshalText(b []byte) error {
	digits := strings.TrimPrefix(string(b), mark)
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return fmt.Errorf("an id is an integer from -9223372036854775808 to 9223372036854775807, got %q", digits)
	}
	*id = plantID(n)
	return nil
}

type text string

func (t *text) UnmarshalText(b []byte) error {
	*t = text(strings.TrimPrefix(string(b), mark))
	return nil
}

// plantArgs are a plant as a person types it.
type plantArgs struct {
	ID   plantID `arg:"" placeholder:"ID" help:"The identification number of the plant."`
	Name text    `arg:"" placeholder:"NAME" help:"The name of the plant."`
	Tag  *text   `placeholder:"TAG" help:"The type of the plant."`
}

func (a plantArgs) plant() plantstore.Plant {
	p := plantstore.Plant{ID: plantstore.ID(a.ID), Name: string(a.Name)}
	if a.Tag != nil {
		p.Tag = plantstore.NewTag(string(*a.Tag))
	}
	return p
}

type createCommand struct {
	clientFlags
	plantArgs
}

// Help is the long part of the help page.
func (createCommand) Help() string {
	return tokenHelp + `

Example:
  plantstore create 1 Monstera --tag tropical`
}

func (c *createCommand) Run(ctx context.Context, std streams) error {
	api, err := c.client(std, callPatience)
	if err != nil {
		return err
	}
	if err := api.Create(ctx, c.plant()); err != nil {
		return err
	}
	return showPlant(std.out, c.plant(), false)
}

type putCommand struct {
	clientFlags
	plantArgs
}

// Help is the long part of the help page.
func (putCommand) Help() string { return tokenHelp }

func (c *putCommand) Run(ctx context.Context, std streams) error {
	api, err := c.client(std, callPatience)
	if err != nil {
		return err
	}
	if err := api.Replace(ctx, c.plant(), nil); err != nil {
		return err
	}
	return showPlant(std.out, c.plant(), false)
}

type getCommand struct {
	clientFlags
	ID   plantID `arg:"" placeholder:"ID" help:"The identification number of the plant."`
	JSON bool    `name:"json" help:"Print JSON, also on a terminal."`
}

// Help is the long part of the help page.
func (getCommand) Help() string { return tokenHelp }

func (c *getCommand) Run(ctx context.Context, std streams) error {
	api, err := c.client(std, callPatience)
	if err != nil {
		return err
	}
	plant, err := api.Get(ctx, plantstore.ID(c.ID))
	if err != nil {
		return err
	}
	return showPlant(std.out, plant, c.JSON)
}

type deleteCommand struct {
	clientFlags
	ID plantID `arg:"" placeholder:"ID" help:"The identification number of the plant."`
}

// Help is the long part of the help page.
func (deleteCommand) Help() string { return tokenHelp }

func (c *deleteCommand) Run(ctx context.Context, std streams) error {
	api, err := c.client(std, callPatience)
	if err != nil {
		return err
	}
	return api.Delete(ctx, plantstore.ID(c.ID), nil)
}

// filterFlags say which plants a listing or an export has.
type filterFlags struct {
	Tag      *text    `placeholder:"TAG" help:"Only plants with exactly this tag."`
	Contains text     `name:"q" placeholder:"TEXT" help:"Only plants whose name has this as a part, whatever the case of its letters."`
	After    *plantID `placeholder:"ID" help:"Only plants with a greater id."`
}

func (f filterFlags) query() plantstore.Query {
	q := plantstore.Query{Contains: string(f.Contains)}
	if f.Tag != nil {
		q.Tag = plantstore.NewTag(string(*f.Tag))
	}
	if f.After != nil {
		after := plantstore.ID(*f.After)
		q.After = &after
	}
	return q
}

type listCommand struct {
	clientFlags
	filterFlags
	Limit int  `default:"50" placeholder:"N" help:"The most plants to list; 0 for all (${default})."`
	JSON  bool `name:"json" help:"Print a JSON array, also on a terminal."`
}

// Help is the long part of the help page.
func (listCommand) Help() string {
	return `On a terminal the plants are a table, elsewhere a JSON array. ` + tokenHelp + `

Examples:
  plantstore list --q monst
  plantstore list --tag tropical --limit 0 | jq '.[].name'`
}

func (c *listCommand) Run(ctx context.Context, std streams) error {
	if c.Limit < 0 {
		return usage("--limit: give a number that is not negative")
	}
	api, err := c.client(std, callPatience)
	if err != nil {
		return err
	}
	show := newListing(std.out, c.JSON)
	query := c.query()
	query.Limit = 1000
	if c.Limit > 0 {
		query.Limit = min(c.Limit+1, 1000)
	}
	shown := 0
	var last plantstore.ID
	for plant, err := range api.List(ctx, query) {
		if err != nil {
			return errors.Join(err, show.close())
		}
		if c.Limit > 0 && shown == c.Limit {
			defer fmt.Fprintf(std.err, "There are more: plantstore list --after %d\n", last)
			break
		}
		if err := show.add(plant); err != nil {
			return err
		}
		shown++
		last = plant.ID
	}
	return show.close()
}

// listing shows plants as a table on a terminal, and as a JSON array elsewhere.
type listing struct {
	table *tabwriter.Writer
	out   io.Writer
	count int
}

func newListing(out io.Writer, asJSON bool) *listing {
	if asJSON || !isTerminal(out) {
		return &listing{out: out}
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ID\tNAME\tTAG")
	return &listing{table: table}
}

func (l *listing) add(p plantstore.Plant) error {
	if l.table != nil {
		tag, _ := p.Tag.Text()
		_, err := fmt.Fprintf(l.table, "%d\t%s\t%s\n", p.ID, printable(p.Name), printable(tag))
		return err
	}
	lead := ",\n"
	if l.count == 0 {
		lead = "[\n"
	}
	l.count++
	line, err := plantJSON(p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(l.out, "%s%s", lead, line)
	return err
}

func (l *listing) close() error {
	if l.table != nil {
		return l.table.Flush()
	}
	end := "\n]\n"
	if l.count == 0 {
		end = "[]\n"
	}
	_, err := io.WriteString(l.out, end)
	return err
}

// showPlant shows one plant: readable on a terminal, JSON elsewhere.
func showPlant(out io.Writer, p plantstore.Plant, asJSON bool) error {
	if !asJSON && isTerminal(out) {
		one := newListing(out, false)
		return errors.Join(one.add(p), one.close())
	}
	line, err := plantJSON(p)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s\n", line)
	return err
}

func plantJSON(p plantstore.Plant) ([]byte, error) {
	row := struct {
		ID   plantstore.ID `json:"id"`
		Name string        `json:"name"`
		Tag  *string       `json:"tag,omitempty"`
	}{ID: p.ID, Name: p.Name}
	if tag, ok := p.Tag.Text(); ok {
		row.Tag = &tag
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(row); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}
