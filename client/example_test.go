package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"slices"
	"strings"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// exampleClient starts a server with a few plants in this process, and returns a
// client. Other programs call client.New, as ExampleNew does.
func exampleClient() (c *client.Client, stop func()) {
	s := servertest.Launch(servertest.Options{})
	c = s.Client(client.Options{})
	_, err := c.Import(context.Background(), slices.Values([]plantstore.Plant{
		{ID: 1, Name: "Monstera", Tag: plantstore.NewTag("tropical")},
		{ID: 2, Name: "Oak", Tag: plantstore.NewTag("tree")},
		{ID: 3, Name: "Elm", Tag: plantstore.NewTag("tree")},
		{ID: 4, Name: "Moss"},
	}))
	must(err)
	return c, s.Stop
}

func ExampleNew() {
	server := servertest.Launch(servertest.Options{})
	defer server.Stop()

	c, err := client.New(server.URL, server.Token, client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.CloseIdleConnections()

	ctx := context.Background()
	if err := c.Create(ctx, plantstore.Plant{ID: 1, Name: "Monstera"}); err != nil {
		log.Fatal(err)
	}
	plant, err := c.Get(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(plant.Name)
	// Output: Monstera
}

func ExampleClient_Create() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	fern := plantstore.Plant{ID: 5, Name: "Fern", Tag: plantstore.NewTag("shade")}
	fmt.Println("created:", c.Create(ctx, fern))
	fmt.Println("created again:", c.Create(ctx, fern))

	err := c.Create(ctx, plantstore.Plant{ID: 5, Name: "Ivy"})
	fmt.Println("taken:", errors.Is(err, plantstore.ErrIDTaken))
	fmt.Println(err)
	// Output:
	// created: <nil>
	// created again: <nil>
	// taken: true
	// "id" 5 is taken by another plant: choose another id
}

func ExampleClient_Get() {
	c, stop := exampleClient()
	defer stop()

	plant, err := c.Get(context.Background(), 2)
	if err != nil {
		log.Fatal(err)
	}
	tag, tagged := plant.Tag.Text()
	fmt.Println(plant.ID, plant.Name, tag, tagged)

	_, err = c.Get(context.Background(), 99)
	fmt.Println("missing:", errors.Is(err, plantstore.ErrNoPlant))
	// Output:
	// 2 Oak tree true
	// missing: true
}

// The condition prevents two editors from overwriting each other: the second one has
// to read the plant again.
func ExampleClient_Replace() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	read, err := c.Get(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	asRead := &plantstore.Condition{Match: []plantstore.ETag{read.ETag()}}

	mine := read.Plant
	mine.Name = "Monstera deliciosa"
	fmt.Println("mine:", c.Replace(ctx, mine, asRead))

	theirs := read.Plant
	theirs.Name = "Monstera adansonii"
	err = c.Replace(ctx, theirs, asRead)
	fmt.Println("theirs is too late:", errors.Is(err, plantstore.ErrPrecondition))
	// Output:
	// mine: <nil>
	// theirs is too late: true
}

func ExampleClient_Delete() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	fmt.Println("deleted:", c.Delete(ctx, 4, nil))

	err := c.Delete(ctx, 4, nil)
	fmt.Println("missing:", errors.Is(err, plantstore.ErrNoPlant))
	// Output:
	// deleted: <nil>
	// missing: true
}

func ExampleClient_Page() {
	c, stop := exampleClient()
	defer stop()

	query := plantstore.Query{Limit: 3}
	for {
		page, err := c.Page(context.Background(), query)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("a page of", len(page.Plants))
		if page.Next == nil {
			break
		}
		query.After = page.Next
	}
	// Output:
	// a page of 3
	// a page of 1
}

func ExampleClient_List() {
	c, stop := exampleClient()
	defer stop()

	trees := plantstore.Query{Tag: plantstore.NewTag("tree")}
	for plant, err := range c.List(context.Background(), trees) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(plant.ID, plant.Name)
	}
	// Output:
	// 2 Oak
	// 3 Elm
}

func ExampleClient_Export() {
	c, stop := exampleClient()
	defer stop()

	for plant, err := range c.Export(context.Background(), plantstore.Query{Contains: "mo"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(plant.ID, plant.Name)
	}
	// Output:
	// 1 Monstera
	// 4 Moss
}

// A snapshot, and then every change that it does not have.
func ExampleClient_Events() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	var at plantstore.Cursor
	for plant, err := range c.ExportAt(ctx, plantstore.Query{}, &at) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("exported", plant.ID)
	}
	must(c.Delete(ctx, 1, nil))
	must(c.Create(ctx, plantstore.Plant{ID: 5, Name: "Fern"}))
	for event, err := range c.Events(ctx, plantstore.EventQuery{After: at}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Type, event.Plant.ID, event.Plant.Name)
		if event.Plant.ID == 5 {
			break // otherwise it waits for the next change
		}
	}
	// Output:
	// exported 1
	// exported 2
	// exported 3
	// exported 4
	// plant.deleted 1 Monstera
	// plant.created 5 Fern
}

func ExampleClient_EventPage() {
	c, stop := exampleClient()
	defer stop()

	page, err := c.EventPage(context.Background(), plantstore.EventQuery{Types: plantstore.PlantEventTypes(), Limit: 2})
	if err != nil {
		log.Fatal(err)
	}
	for _, event := range page.Events {
		fmt.Println(event.Type, event.Plant.ID)
	}
	fmt.Println("more:", page.More)
	// Output:
	// plant.created 1
	// plant.created 2
	// more: true
}

func ExampleClient_ExportLines() {
	c, stop := exampleClient()
	defer stop()

	lines, err := c.ExportLines(context.Background(), plantstore.Query{})
	if err != nil {
		log.Fatal(err)
	}
	defer lines.Close()
	if _, err := io.Copy(os.Stdout, lines); err != nil {
		log.Fatal(err)
	}
	// Output:
	// {"id":1,"name":"Monstera","tag":"tropical"}
	// {"id":2,"name":"Oak","tag":"tree"}
	// {"id":3,"name":"Elm","tag":"tree"}
	// {"id":4,"name":"Moss"}
}

func ExampleClient_Import() {
	c, stop := exampleClient()
	defer stop()

	seedlings := func(yield func(plantstore.Plant) bool) {
		for id := range plantstore.ID(1000) {
			if !yield(plantstore.Plant{ID: 1000 + id, Name: "Seedling"}) {
				return
			}
		}
	}
	report, err := c.Import(context.Background(), seedlings)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Created, "created,", report.Unchanged, "unchanged,", report.Failed, "failed")
	// Output: 1000 created, 0 unchanged, 0 failed
}

// Plants that somebody else has changed in the meantime are left alone.
func ExampleClient_ImportPlants() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	var lines []client.ImportLine
	for plant, err := range c.List(ctx, plantstore.Query{Details: true}) {
		if err != nil {
			log.Fatal(err)
		}
		plant.Tag = plantstore.NewTag("winter")
		lines = append(lines, client.ImportLine{Plant: plant.Plant, IfVersion: plant.Version.String()})
	}
	if err := c.Replace(ctx, plantstore.Plant{ID: 2, Name: "Beech"}, nil); err != nil {
		log.Fatal(err)
	}
	report, err := c.ImportPlants(ctx, slices.Values(lines), client.ImportOptions{Mode: plantstore.ImportReplace})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Replaced, "replaced,", report.Failed, "failed")
	for _, failed := range report.Errors {
		fmt.Printf("line %d: %v\n", failed.Line, failed.Err)
	}
	// Output:
	// 3 replaced, 1 failed
	// line 2: plant 2 does not meet the request's condition: get it again
}

func ExampleClient_ImportLines() {
	c, stop := exampleClient()
	defer stop()

	// A file works too, and can be sent again if the connection breaks.
	lines := strings.NewReader(`{"id":2,"name":"Oak","tag":"tree"}
{"id":3,"name":"Yew","tag":"tree"}
{"id":5,"name":"Fern"}
`)
	report, err := c.ImportLines(context.Background(), lines)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Created, "created,", report.Unchanged, "unchanged,", report.Failed, "failed")
	for _, failed := range report.Errors {
		fmt.Printf("line %d: %v\n", failed.Line, failed.Err)
	}
	// Output:
	// 1 created, 1 unchanged, 1 failed
	// line 2: "id" 3 is taken by another plant: choose another id
}

func ExampleClient_CreateWebhook() {
	c, stop := exampleClient()
	defer stop()

	ctx := context.Background()
	hook, secret, err := c.CreateWebhook(ctx, plantstore.Webhook{
		URL: "https://example.com/hook", Types: []plantstore.EventType{plantstore.PlantDeleted},
	}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(hook.URL, hook.Types, secret != "") // the receiver needs the secret
	if err := c.DeleteWebhook(ctx, hook.ID); err != nil {
		log.Fatal(err)
	}
	// Output: https://example.com/hook [plant.deleted] true
}

func ExampleVerifyWebhook() {
	secret := os.Getenv("PLANTSTORE_WEBHOOK_SECRET")
	http.HandleFunc("POST /hook", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 8<<20))
		if err == nil {
			err = client.VerifyWebhook(r.Header, body, secret)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		fmt.Printf("%s\n", body) // it is authentic
	})
}
