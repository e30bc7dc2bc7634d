package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kong"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/wire"
)

// plantArgs are a plant as a person types it.
type plantArgs struct {
	ID   plantstore.ID  `arg:"" placeholder:"ID" help:"The plant's id."`
	Name string         `arg:"" placeholder:"NAME" help:"The plant's name."`
	Tag  plantstore.Tag `placeholder:"TAG" help:"The plant's tag (its type)."`
	outputFlags
}

func (a plantArgs) plant() plantstore.StoredPlant {
	return plantstore.StoredPlant{Plant: plantstore.Plant{ID: a.ID, Name: a.Name, Tag: a.Tag}}
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
	if err := api.Create(ctx, c.plant().Plant); err != nil {
		return err
	}
	return plantRows.printOne(c.outputFlags, std.out, c.plant())
}

// conditionFlags say when a command changes a plant.
type conditionFlags struct {
	IfMatch *string `placeholder:"VERSION" help:"Only if the plant has this version: see plantstore get --details."`
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
	var before plantstore.StoredPlant
	if _, tagged := c.Tag.Text(); !tagged {
		var err error
		before, err = api.Get(ctx, c.ID)
		if err != nil && !errors.Is(err, plantstore.ErrNoPlant) && !errors.Is(err, plantstore.ErrScope) {
			return err
		}
	}
	if err := api.Replace(ctx, c.plant().Plant, c.condition()); err != nil {
		return err
	}
	if tag, ok := before.Tag.Text(); ok {
		fmt.Fprintf(std.err, "Plant %d no longer has the tag %q.\n", c.ID, tag)
	}
	return plantRows.printOne(c.outputFlags, std.out, c.plant())
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
	return `Everything that is not given stays as it is. ` + tokenHelp + `

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
	return plantRows.printOne(c.outputFlags, std.out, plant)
}

type getCommand struct {
	clientFlags
	ID      plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	Details bool          `help:"Add the version of the plant, and when it was created and last changed."`
	outputFlags
}

func (getCommand) Help() string {
	return `Prints a table on a terminal, and a JSON object elsewhere. Pass the version as --if-match to change the plant only if nobody else has. ` + tokenHelp + `

Examples:
  plantstore get 1
  plantstore get 1 --details | jq -r .version`
}

func (c *getCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	get, show := api.Get, plantRows
	if c.Details {
		get, show = api.GetDetails, detailRows
	}
	plant, err := get(ctx, c.ID)
	if err != nil {
		return err
	}
	return show.printOne(c.outputFlags, std.out, plant)
}

// known returns a time of a plant in a table.
func known(at time.Time) string {
	if at.IsZero() {
		return "unknown"
	}
	return at.Local().Format(time.DateTime)
}

// searchFlags say which plants a command is about.
type searchFlags struct {
	Tag       []string `sep:"none" placeholder:"TAG" help:"Only plants with exactly this tag, or, if it is given several times, with any of these tags."`
	TagPrefix *string  `placeholder:"TEXT" help:"Only plants with a tag that begins with this text. Beside --tag and --untagged, also those."`
	Untagged  bool     `help:"Only plants without a tag. Beside --tag and --tag-prefix, also those."`
	Contains  string   `name:"q" placeholder:"TEXT" help:"Only plants whose name contains every word of this text, ignoring case and diacritics."`
}

func (f searchFlags) query() plantstore.Query {
	return plantstore.Query{Tags: f.Tag, TagPrefix: f.TagPrefix, Untagged: f.Untagged, Contains: f.Contains}
}

// filterFlags say which plants a list or an export contains.
type filterFlags struct {
	searchFlags
	Order     plantstore.Order      `enum:"id,-id,name,-name" default:"id" placeholder:"ORDER" help:"The order of the plants: id, -id, name or -name (${default}). By name takes a million plants at most."`
	After     *plantstore.ID        `placeholder:"ID" help:"Only plants that come after this id in the order."`
	AfterName plantstore.NameCursor `placeholder:"CURSOR" help:"Only plants that come after this position in an order by name, as list prints it."`
}

func (f filterFlags) query() plantstore.Query {
	query := f.searchFlags.query()
	query.Order, query.After, query.AfterName = f.Order, f.After, f.AfterName
	return query
}

// check refuses a position in another order.
func (f filterFlags) check() error {
	switch {
	case f.After != nil && f.Order.ByName():
		return usage("--after is an id: use --after-name in an order by name")
	case f.AfterName != "" && !f.Order.ByName():
		return usage("--after-name needs --order=name or --order=-name")
	case f.AfterName != "":
		if _, err := f.AfterName.Position(); err != nil {
			return usage("--after-name must be a position that list has printed, got %q", plantstore.Shorten(string(f.AfterName)))
		}
	}
	return nil
}

type listCommand struct {
	clientFlags
	filterFlags
	Limit int  `default:"50" min:"0" placeholder:"N" help:"The maximum number of plants to list; 0 for all (${default})."`
	Count bool `help:"Print how many plants match instead: up to 10000, 10000+ if there are more, and ? if counting them would be too much work."`
	outputFlags
}

func (listCommand) Help() string {
	return `Prints a table on a terminal, and a JSON array elsewhere. ` + tokenHelp + `

Examples:
  plantstore list --q 'deliciosa monst'
  plantstore list --order name
  plantstore list --order=-id --limit 10
  plantstore list --tag tropical --tag shade --untagged
  plantstore list --q monst --count
  plantstore list --tag tropical --limit 0 | jq '.[].name'`
}

// Run prints the plants. If there are more, it says how to go on, with the arguments that
// were given.
func (c *listCommand) Run(ctx context.Context, line *kong.Context, api *client.Client, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Count {
		return c.printCount(ctx, api, std.out)
	}
	query := c.query()
	query.Limit = pageSize(c.Limit)
	last, more, err := plantRows.print(ctx, c.outputFlags, std.out, api.List(ctx, query), c.Limit)
	if err != nil || !more {
		return err
	}
	next := cli.WithFlag(line.Args, "--after", last.ID.String())
	if c.Order.ByName() {
		at := plantstore.NamePosition{Name: plantstore.SortedName(last.Name), ID: last.ID}
		next = cli.WithFlag(line.Args, "--after-name", string(at.Cursor()))
	}
	std.say("There are more: plantstore " + next)
	return nil
}

func (c *listCommand) printCount(ctx context.Context, api *client.Client, out io.Writer) error {
	if c.After != nil || c.AfterName != "" {
		return usage("--count counts all plants that match: do not combine it with --after or --after-name")
	}
	query := c.query()
	query.Limit, query.Count = 1, true
	page, err := api.Page(ctx, query)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, wire.FormatCount(page.Count))
	return err
}

var (
	plantRows = rows[plantstore.StoredPlant]{
		"ID\tNAME\tTAG\n",
		func(p plantstore.StoredPlant) string { return plantCells(p) + "\n" },
		func(dst []byte, p plantstore.StoredPlant) ([]byte, error) { return wire.AppendNewPlant(dst, p.Plant) },
	}
	detailRows = rows[plantstore.StoredPlant]{
		"ID\tNAME\tTAG\tVERSION\tCREATED\tUPDATED\n",
		func(p plantstore.StoredPlant) string {
			return fmt.Sprintf("%s\t%s\t%s\t%s\n", plantCells(p), p.Version, known(p.CreatedAt()), known(p.Version.Updated()))
		},
		wire.AppendStored,
	}
)

func plantCells(p plantstore.StoredPlant) string {
	tag, _ := p.Tag.Text()
	return fmt.Sprintf("%d\t%s\t%s", p.ID, printable(p.Name), printable(tag))
}
