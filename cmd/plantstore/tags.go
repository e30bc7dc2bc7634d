package main

import (
	"context"
	"fmt"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/wire"
)

type tagsCommand struct {
	clientFlags
	Prefix   string `placeholder:"TEXT" help:"Only tags that begin with this text."`
	Contains string `name:"q" placeholder:"TEXT" help:"Only tags that contain every word of this text, ignoring case and diacritics."`
	outputFlags
}

func (tagsCommand) Help() string {
	return `Lists every tag in use, in the order of their bytes, with its number of plants, counted up to 1,000. Prints a table on a terminal, and a JSON array elsewhere. ` + tokenHelp + `

Examples:
  plantstore tags
  plantstore tags --prefix tro | jq '.[].plants'`
}

func (c *tagsCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	tags := api.Tags(ctx, plantstore.TagQuery{Prefix: c.Prefix, Contains: c.Contains})
	_, _, err := tagRows.print(ctx, c.outputFlags, std.out, tags, 0)
	return err
}

var tagRows = rows[plantstore.TagCount]{"TAG\tPLANTS\n", tagRow, wire.AppendTag}

func tagRow(t plantstore.TagCount) string {
	plus := ""
	if t.More {
		plus = "+"
	}
	return fmt.Sprintf("%s\t%d%s\n", printable(t.Tag), t.Plants, plus)
}
