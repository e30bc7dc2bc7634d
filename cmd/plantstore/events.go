package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/wire"
)

type eventsCommand struct {
	clientFlags
	Follow bool     `help:"Keep printing new changes until interrupted."`
	After  string   `placeholder:"CURSOR" help:"Only events after this cursor, or latest for new ones only."`
	ID     *plantID `name:"id" placeholder:"ID" help:"Only events of this plant."`
	Type   []string `placeholder:"TYPE" help:"Only events of these types: plant.created, plant.replaced, plant.deleted, token.created, token.revoked."`
	JSON   bool     `name:"json" help:"Print JSON even on a terminal."`
}

// Help is the long part of the help page.
func (eventsCommand) Help() string {
	return `Prints what has changed, oldest first: a table on a terminal, and one JSON object per line elsewhere. To continue later without missing anything, pass the cursor of the last event as --after; the table does not have it, --json does. The token needs the scope events:read. ` + tokenHelp + `

Examples:
  plantstore events --id 1
  plantstore events --follow --after latest
  plantstore events --follow --type plant.deleted | jq .plant.name`
}

// Run prints the events.
func (c *eventsCommand) Run(ctx context.Context, std streams) error {
	timeout := callTimeout
	if c.Follow {
		timeout = fileTimeout
	}
	api, err := c.client(std, timeout)
	if err != nil {
		return err
	}
	err = c.list(ctx, api, std)
	if c.Follow && ctx.Err() != nil {
		return nil // that is how following ends
	}
	return interruption(ctx, "the list of events", err)
}

func (c *eventsCommand) list(ctx context.Context, api *client.Client, std streams) error {
	list := newEventListing(interruptible{ctx, std.out}, !c.JSON && isTerminal(std.out))
	events := readEvents(ctx, api, c.query())
	if c.Follow {
		events = api.Events(ctx, c.query())
	}
	for event, err := range events {
		if err != nil {
			return errors.Join(err, list.out.Flush())
		}
		if err := list.add(event); err != nil {
			return err
		}
		if !c.Follow {
			continue
		}
		if err := list.out.Flush(); err != nil {
			return err
		}
	}
	return list.out.Flush()
}

func (c *eventsCommand) query() plantstore.EventQuery {
	q := plantstore.EventQuery{After: plantstore.Cursor(c.After), Types: eventTypes(c.Type), WithTokens: true}
	if c.ID != nil {
		id := plantstore.ID(*c.ID)
		q.ID = &id
	}
	return q
}

// readEvents yields the events up to now.
func readEvents(ctx context.Context, api *client.Client, q plantstore.EventQuery) iter.Seq2[plantstore.Event, error] {
	q.Limit = 1000
	return func(yield func(plantstore.Event, error) bool) {
		for more := true; more; {
			page, err := api.EventPage(ctx, q)
			if err != nil {
				yield(plantstore.Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			q.After, more = page.Next, page.More
		}
	}
}

// eventListing prints events as a table or as NDJSON. The columns of the table have
// fixed widths, because a row is printed as soon as it is known.
type eventListing struct {
	out   *bufio.Writer
	table bool
	line  []byte
}

const eventRow = "%-19s  %-14s  %-20v  %-28s  %-14s  %s\n"

func newEventListing(out io.Writer, table bool) *eventListing {
	l := &eventListing{out: bufio.NewWriter(out), table: table}
	if table {
		fmt.Fprintf(l.out, eventRow, "TIME", "TYPE", "ID", "NAME", "TAG", "BY")
		l.out.Flush()
	}
	return l
}

func (l *eventListing) add(e plantstore.Event) (err error) {
	if l.table {
		id, name := fmt.Sprint(e.Plant.ID), e.Plant.Name
		if e.Token != nil {
			id, name = e.Token.ID, e.Token.Name
		}
		text, tagged := e.Plant.Tag.Text()
		tag := printable(plantstore.Shorten(text))
		if tagged && text == "" {
			tag = `""` // unlike no tag
		}
		_, err = fmt.Fprintf(l.out, eventRow, e.Time.Local().Format(time.DateTime), printable(string(e.Type)), printable(id),
			printable(plantstore.Shorten(name)), tag, printable(e.By))
		return err
	}
	if l.line, err = wire.AppendEvent(l.line[:0], e); err != nil {
		return err
	}
	_, err = l.out.Write(append(l.line, '\n'))
	return err
}
