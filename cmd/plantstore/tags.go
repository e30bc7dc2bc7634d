package main

import (
	"context"
	"errors"
	"fmt"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
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

func (c *tagsCommand) Run(ctx context.Context, api *client.Client, std streams) (err error) {
	defer func() { err = interruption(ctx, "the list of tags", err) }()
	show := c.listing(cli.WriterUntil(ctx, std.out), "TAG\tPLANTS\n")
	for tag, err := range api.Tags(ctx, plantstore.TagQuery{Prefix: c.Prefix, Contains: c.Contains}) {
		if err != nil {
			return errors.Join(err, show.Out.Flush())
		}
		text, err := wire.AppendTag(nil, tag)
		if err != nil {
			return err
		}
		plus := ""
		if tag.More {
			plus = "+"
		}
		if err := show.row(fmt.Sprintf("%s\t%d%s\n", printable(tag.Tag), tag.Plants, plus), text); err != nil {
			return err
		}
	}
	return show.Close()
}
