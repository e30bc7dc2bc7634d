package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"plantstore"
	"plantstore/client"
)

// operation is a call of the client, and what the store contains before and after it.
type operation struct {
	name   string
	before []plantstore.Plant
	after  []plantstore.Plant
	call   func(context.Context, *client.Client) error
}

var (
	oak = plantstore.Plant{ID: 1, Name: "Oak"}
	elm = plantstore.Plant{ID: 1, Name: "Elm", Tag: plantstore.NewTag("tree")}
)

// operations returns every kind of call. Each succeeds.
func operations() []operation {
	has := func(plants ...plantstore.Plant) []plantstore.Plant { return plants }
	exists := &plantstore.Condition{Match: []plantstore.ETag{`"other"`, plantstore.AnyETag}}
	absent := &plantstore.Condition{NoneMatch: []plantstore.ETag{plantstore.AnyETag}}
	return []operation{
		{"create", nil, has(oak), func(ctx context.Context, c *client.Client) error {
			return c.Create(ctx, oak)
		}},
		{"get", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			p, err := c.Get(ctx, 1)
			return wrong(err, p.Plant != oak || p.Version.Time == 0, p)
		}},
		{"get details", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			p, err := c.GetDetails(ctx, 1)
			return wrong(err, p.Plant != oak || p.Version.Time == 0 || p.Created != p.Version.Time, p)
		}},
		{"token", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			token, err := c.Token(ctx)
			return wrong(err, token.ID == "" || len(token.Scopes) == 0, token)
		}},
		{"list tokens", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			tokens, err := c.Tokens(ctx)
			return wrong(err, len(tokens) == 0 || tokens[0].ID == "", tokens)
		}},
		{"get the server's version and limits", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			about, err := c.About(ctx)
			return wrong(err, about.Plants == nil || *about.Plants != 1 || about.Limits.MaxBody == 0, about)
		}},
		{"replace", has(oak), has(elm), func(ctx context.Context, c *client.Client) error {
			return c.Replace(ctx, elm, nil)
		}},
		{"replace if it exists", has(oak), has(elm), func(ctx context.Context, c *client.Client) error {
			return c.Replace(ctx, elm, exists)
		}},
		{"replace if none", nil, has(elm), func(ctx context.Context, c *client.Client) error {
			return c.Replace(ctx, elm, absent)
		}},
		{"delete", has(oak), nil, func(ctx context.Context, c *client.Client) error {
			return c.Delete(ctx, 1, nil)
		}},
		{"delete if it exists", has(oak), nil, func(ctx context.Context, c *client.Client) error {
			return c.Delete(ctx, 1, exists)
		}},
		{"page", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			page, err := c.Page(ctx, plantstore.Query{})
			return wrong(err, !slices.Equal(plantsOf(page.Plants), has(oak)), page)
		}},
		{"list", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			plants, err := collect(c.List(ctx, plantstore.Query{}))
			return wrong(err, !slices.Equal(plants, has(oak)), plants)
		}},
		{"list tags", has(elm), has(elm), func(ctx context.Context, c *client.Client) error {
			for tag, err := range c.Tags(ctx, plantstore.TagQuery{Prefix: "t"}) {
				return wrong(err, tag != plantstore.TagCount{Tag: "tree", Plants: 1}, tag)
			}
			return errWrong
		}},
		{"export", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			plants, err := collect(c.Export(ctx, plantstore.Query{}))
			return wrong(err, !slices.Equal(plants, has(oak)), plants)
		}},
		{"export lines", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			lines, err := c.ExportLines(ctx, plantstore.Query{})
			if err != nil {
				return err
			}
			defer lines.Close()
			text, err := io.ReadAll(lines)
			return wrong(err, string(text) != "{\"id\":1,\"name\":\"Oak\"}\n", text)
		}},
		{"read events", nil, nil, func(ctx context.Context, c *client.Client) error {
			page, err := c.EventPage(ctx, plantstore.EventQuery{After: plantstore.LatestCursor})
			return wrong(err, len(page.Events) != 0 || page.Next == "" || page.More, page)
		}},
		{"count events", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			buckets, err := c.Histogram(ctx, plantstore.HistogramQuery{Since: time.Now().Add(-time.Hour), Buckets: 2})
			return wrong(err, len(buckets) != 2 || buckets[1].Events == 0 || buckets[0].Partial, buckets)
		}},
		{"follow events", has(oak), has(oak), func(ctx context.Context, c *client.Client) error {
			for e, err := range c.Events(ctx, plantstore.EventQuery{}) {
				return wrong(err, e.Cursor == "", e)
			}
			return errWrong
		}},
		{"import lines", nil, has(oak), func(ctx context.Context, c *client.Client) error {
			report, err := c.ImportLines(ctx, strings.NewReader("{\"id\":1,\"name\":\"Oak\"}\n"))
			return wrong(err, report.Created+report.Unchanged != 1 || report.Failed != 0, report)
		}},
		{"import", nil, has(oak), func(ctx context.Context, c *client.Client) error {
			report, err := c.Import(ctx, slices.Values(has(oak)))
			return wrong(err, report.Created != 1 || report.Failed+report.Unchanged != 0, report)
		}},
	}
}

// errWrong says that a call succeeded with a wrong result.
var errWrong = errors.New("wrong result")

func wrong(err error, unexpected bool, got any) error {
	if err == nil && unexpected {
		return fmt.Errorf("%w: %#v", errWrong, got)
	}
	return err
}
