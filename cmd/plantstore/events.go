package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/history"
	"plantstore/internal/plantfile"
	"plantstore/internal/wire"
)

type eventsCommand struct {
	clientFlags
	Follow   bool                   `help:"Keep printing new changes until interrupted."`
	After    string                 `xor:"start" placeholder:"CURSOR" help:"Only events after this cursor, or latest for new ones only."`
	ID       *plantstore.ID         `name:"id" placeholder:"ID" help:"Only events of this plant."`
	Type     []plantstore.EventType `placeholder:"TYPE" help:"Only events of these types: plant.created, plant.replaced, plant.deleted, token.created, token.revoked."`
	By       string                 `placeholder:"ID" help:"Only events of changes made by exactly this caller: the id of a token, the issuer and subject of an identity provider's token, or operator."`
	Contains string                 `name:"q" placeholder:"TEXT" help:"Only events of plants whose name contains every word of this text, ignoring case and diacritics."`
	Since    time.Time              `xor:"start" placeholder:"TIME" help:"Only events from this time on, such as 2026-01-31T12:00:00Z. For --histogram, the default is 24 hours ago."`
	Newest   bool                   `help:"Print the newest event first."`

	Histogram bool      `help:"Count the events of all kinds over time: bars on a terminal, and a JSON array elsewhere."`
	Until     time.Time `placeholder:"TIME" help:"When the histogram ends (now)."`
	Buckets   int       `placeholder:"N" default:"24" help:"The number of bars in the histogram, up to 500 (${default})."`

	outputFlags
}

func (eventsCommand) Help() string {
	return `Prints changes, oldest first unless --newest is given: a table on a terminal, and one JSON object per line elsewhere. To continue later without missing anything, pass the cursor of the last event as --after; the table does not show it, but --json does. In a histogram, + marks a time before the oldest event kept: there may have been more. The token needs the scope events:read. ` + tokenHelp + `

Examples:
  plantstore events --id 1
  plantstore events --follow --after latest
  plantstore events --follow --type plant.deleted | jq .plant.name
  plantstore events --newest | head
  plantstore events --histogram --since 2026-01-31T12:00:00Z`
}

func (c *eventsCommand) Run(ctx context.Context, std streams) error {
	selects := c.After != "" || c.ID != nil || len(c.Type) > 0 || c.By != "" || c.Contains != ""
	switch {
	case c.Histogram && (c.Follow || c.Newest || selects):
		return usage("--histogram counts all events: combine it only with --since, --until and --buckets")
	case !c.Until.IsZero() && !c.Histogram:
		return usage("--until needs --histogram")
	case c.Newest && (c.Follow || c.After != "" || !c.Since.IsZero()):
		return usage("--newest goes back to the oldest event kept: do not combine it with --follow, --after or --since")
	}
	timeout := callTimeout
	if c.Follow {
		timeout = fileTimeout
	}
	api, err := c.client(std, timeout)
	if err != nil {
		return err
	}
	if c.Histogram {
		return c.histogram(ctx, std, api)
	}
	err = c.list(ctx, api, std, plantstore.EventQuery{
		After: plantstore.Cursor(c.After), Since: c.Since, ID: c.ID, Types: c.Type, By: c.By, Contains: c.Contains, WithTokens: true, Newest: c.Newest,
	})
	if c.Follow && ctx.Err() != nil {
		return nil // the user ended it
	}
	return err
}

func (c *eventsCommand) list(ctx context.Context, api *client.Client, std streams, query plantstore.EventQuery) error {
	out := bufio.NewWriter(cli.WriterUntil(ctx, std.out))
	write := writeEvent
	if !c.asJSON(std.out) {
		write = writeEventRow
		io.WriteString(out, eventHeading) // Flush returns the error
		if err := out.Flush(); err != nil {
			return err
		}
	}
	events := history.Events(ctx, api, query)
	if c.Follow {
		events = api.Events(ctx, query)
	}
	for event, err := range events {
		if err != nil {
			return errors.Join(err, out.Flush())
		}
		if err := write(out, event); err != nil {
			return err
		}
		if !c.Follow {
			continue
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
	return out.Flush()
}

func (c *eventsCommand) histogram(ctx context.Context, std streams, api *client.Client) error {
	since := cmp.Or(c.Since, cmp.Or(c.Until, time.Now()).Add(-24*time.Hour))
	buckets, err := api.Histogram(ctx, plantstore.HistogramQuery{Since: since, Until: c.Until, Buckets: c.Buckets})
	if err != nil {
		return err
	}
	if !c.asJSON(std.out) {
		_, err := io.WriteString(std.out, bars(buckets))
		return err
	}
	array := &plantfile.Writer{Layout: plantfile.JSON.Layout(false), Out: bufio.NewWriter(std.out)}
	for _, b := range buckets {
		text, err := wire.AppendBucket(nil, b)
		if err != nil {
			return err
		}
		if err := array.Write(text); err != nil {
			return err
		}
	}
	return array.Close()
}

// bars draws a histogram. The largest bar has maxBar characters, and one that is not empty at
// least one.
func bars(buckets []plantstore.Bucket) string {
	const maxBar = 40
	most, width := int64(1), len("EVENTS")
	for _, b := range buckets {
		most = max(most, b.Events)
	}
	width = max(width, len(fmt.Sprint(most))+1)
	var out strings.Builder
	fmt.Fprintf(&out, "%-19s  %*s\n", "TIME", width, "EVENTS")
	for _, b := range buckets {
		count := fmt.Sprint(b.Events) + " "
		if b.Partial {
			count = fmt.Sprint(b.Events) + "+"
		}
		length := int((b.Events*maxBar + most - 1) / most)
		line := fmt.Sprintf("%s  %*s  %s", b.Time.Local().Format(time.DateTime), width, count, strings.Repeat("█", length))
		out.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return out.String()
}

// The columns of a table of events have fixed widths, because a row is printed as soon as it
// is known.
const eventRow = "%-19s  %-14s  %-20v  %-28s  %-14s  %s\n"

var eventHeading = fmt.Sprintf(eventRow, "TIME", "TYPE", "ID", "NAME", "TAG", "BY")

func writeEventRow(out *bufio.Writer, e plantstore.Event) error {
	id, name := fmt.Sprint(e.Plant.ID), e.Plant.Name
	if e.Token != nil {
		id, name = e.Token.ID, e.Token.Name
	}
	_, err := fmt.Fprintf(out, eventRow, e.Time.Local().Format(time.DateTime), printable(string(e.Type)), printable(id),
		printable(plantstore.Shorten(name)), shortTag(e.Plant.Tag), printable(e.By))
	return err
}

// shortTag returns the tag of an event in a table.
func shortTag(tag plantstore.Tag) string {
	text, tagged := tag.Text()
	if tagged && text == "" {
		return `""` // unlike no tag
	}
	return printable(plantstore.Shorten(text))
}

// writeEvent writes an event as a line of NDJSON.
func writeEvent(out *bufio.Writer, e plantstore.Event) error {
	line, err := wire.AppendEvent(out.AvailableBuffer(), e)
	if err != nil {
		return err
	}
	_, err = out.Write(append(line, '\n'))
	return err
}
