package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

func TestFollowPrintsEventsImmediatelyUntilInterrupted(t *testing.T) {
	s := servertest.Start(t, servertest.Options{})
	t.Setenv("PLANTSTORE_TOKEN", s.Token)
	s.Fill(t, plantstore.Plant{ID: 1, Name: "before"})
	ctx, interrupt := context.WithCancel(t.Context())
	in, out := io.Pipe()
	var problems bytes.Buffer
	exited := make(chan int, 1)
	go func() {
		exited <- run(ctx, []string{"events", "--follow", "--url", s.URL}, streams{strings.NewReader(""), out, &problems})
		out.Close()
	}()
	lines := bufio.NewScanner(in)
	c := s.Client(client.Options{})
	if !lines.Scan() || !strings.Contains(lines.Text(), `"type":"token.created"`) {
		t.Fatalf("got %q, want the event of the token", lines.Text())
	}
	for _, name := range []string{"before", "second", "third"} {
		if err := c.Replace(t.Context(), plantstore.Plant{ID: 1, Name: name}, nil); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), `"name":"`+name+`"`) {
			t.Fatalf("got %q, want the event of %s", lines.Text(), name)
		}
	}
	interrupt()
	if lines.Scan() {
		t.Errorf("after the interrupt: %s", lines.Text())
	}
	if code := <-exited; code != exitOK || problems.Len() > 0 {
		t.Errorf("exit code %d, %s", code, &problems)
	}
}

func TestTableOfEvents(t *testing.T) {
	var table strings.Builder
	out := bufio.NewWriter(&table)
	out.WriteString(eventHeading)
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	for _, e := range []plantstore.Event{
		{Time: at, Type: plantstore.PlantCreated, Plant: plantstore.Plant{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")}, By: "0b9b2822416d"},
		{Time: at, Type: plantstore.PlantReplaced, Plant: plantstore.Plant{ID: math.MinInt64, Name: "Fern", Tag: plantstore.NewTag("")}, By: "0b9b2822416d"},
		{Time: at, Type: plantstore.TokenRevoked, Token: &plantstore.TokenInfo{ID: "7f469553add9", Name: "ci"}, By: plantstore.Operator},
		{Time: at, Type: plantstore.PlantDeleted, Plant: plantstore.Plant{ID: -5, Name: "\x1b[2J" + strings.Repeat("x", 100)}, By: "0b9b2822416d"},
	} {
		if err := writeEventRow(out, e); err != nil {
			t.Fatal(err)
		}
	}
	out.Flush()
	const want = `TIME                 TYPE            ID                    NAME                          TAG             BY
2026-01-31 12:00:00  plant.created   1                     Monstera                      tropical        0b9b2822416d
2026-01-31 12:00:00  plant.replaced  -9223372036854775808  Fern                          ""              0b9b2822416d
2026-01-31 12:00:00  token.revoked   7f469553add9          ci                                            operator
2026-01-31 12:00:00  plant.deleted   -5                    "\x1b[2Jxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"                  0b9b2822416d
`
	if table.String() != want {
		t.Errorf("got\n%swant\n%s", &table, want)
	}
}

func TestBarsOfAHistogram(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.Local)
	got := bars([]plantstore.Bucket{
		{Time: at, Events: 3, Partial: true}, {Time: at.Add(time.Hour)}, {Time: at.Add(2 * time.Hour), Events: 1_000_000}, {Time: at.Add(3 * time.Hour), Events: 500_000},
	})
	const want = `TIME                   EVENTS
2026-01-31 12:00:00        3+  █
2026-01-31 13:00:00        0
2026-01-31 14:00:00  1000000   ████████████████████████████████████████
2026-01-31 15:00:00   500000   ████████████████████
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
