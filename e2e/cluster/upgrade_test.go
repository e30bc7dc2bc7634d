package cluster

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
)

// Servers of release 0.2.0 go on serving while a newer one migrates the database. What they
// acknowledged is there, and they refuse everything afterwards.
func TestOlderReleaseIsFencedOff(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t).URL()
	program := harness.Earlier(t, harness.Release020)
	var olds []*harness.Server
	var clients []*client.Client
	for range 2 {
		old := harness.New(t, db)
		old.Program = program
		old.Run()
		old.AwaitToken()
		olds = append(olds, old)
		clients = append(clients, old.Client(client.Options{
			Retries: -1, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		}))
	}
	w := harness.StartWorkload(t, 16, harness.SingleWrites, rand.Uint64(), clients...)
	w.AwaitAcked(int64(harness.Times(1000, 100_000)))

	s := harness.StartOn(t, db)
	s.AwaitReady(200)
	if status, body := s.Call(harness.Token, "POST", "/plants", `{"id":-1,"name":"early"}`); status != 200 {
		t.Fatalf("a create after the migration: %d %s", status, body)
	}
	const why = "a newer Plantstore wrote this store: its schema is version 10, this release supports schemas up to 9"
	for _, old := range olds {
		for _, late := range []struct{ method, path, body string }{
			{"POST", "/plants", `{"id":-2,"name":"late"}`},
			{"PUT", "/plants/-1", `{"id":-1,"name":"late"}`},
			{"DELETE", "/plants/-1", ""},
			{"GET", "/plants", ""},
			{"GET", "/readyz", ""},
		} {
			if status, body := old.Call(harness.Token, late.method, late.path, late.body); status != 503 || !strings.Contains(body, why) {
				t.Errorf("%s %s of release 0.2.0 after the migration: %d %s", late.method, late.path, status, body)
			}
		}
	}
	if status, body := s.Call(harness.Token, "DELETE", "/plants/-1", ""); status != 204 {
		t.Errorf("the plant that release 0.2.0 did not change: %d %s", status, body)
	}
	if len(w.Errors()) == 0 {
		t.Error("no write of release 0.2.0 failed")
	}
	if !strings.Contains(s.Log(), "servers of earlier releases can no longer write") {
		t.Errorf("the newer release logged:\n%s", s.Log())
	}
	if got := s.Command("check"); got != "ok" {
		t.Errorf("check: %s", got)
	}
	harness.Report(t, "%s", w.Verify(s.Client(client.Options{})))
}

// The way back that docs/operations/upgrade.md describes, with its commands.
func TestGoingBackToRelease020(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(harness.Root + "/docs/operations/upgrade.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Going back with PostgreSQL\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(section, -1)
	if len(blocks) != 4 {
		t.Fatalf("the page has %d blocks of commands, want 4", len(blocks))
	}
	db := pgtest.Start(t)
	db.Exec(t, "CREATE ROLE plantstore LOGIN")
	db.Exec(t, "CREATE DATABASE plantstore OWNER plantstore ENCODING 'UTF8' TEMPLATE template0")
	host, port, _ := strings.Cut(db.Addr(), ":")
	at := func(database string) string {
		return fmt.Sprintf("postgres://plantstore@%s/%s?sslmode=disable", db.Addr(), database)
	}
	dir := t.TempDir()
	// run runs a block with the program, whose server is s.
	run := func(program string, s *harness.Server, block int) {
		t.Helper()
		commands := strings.NewReplacer("@db/", "@"+db.Addr()+"/", "-h db", "-h "+host+" -p "+port, "http://localhost:8080", s.API).Replace(blocks[block][1])
		path := t.TempDir()
		if err := os.Symlink(program, filepath.Join(path, "plantstore")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-ec", commands)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PLANTSTORE_TOKEN="+harness.Token, "PATH="+path+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", commands, err, out)
		}
	}
	create := func(s *harness.Server, id int) {
		t.Helper()
		if status, body := s.Call(harness.Token, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"fern"}`, id)); status != 200 {
			t.Fatalf("create %d: %d %s", id, status, body)
		}
	}
	program := harness.Earlier(t, harness.Release020)
	old := harness.New(t, at("plantstore"))
	old.Program = program
	old.Run()
	old.AwaitToken()
	create(old, 1)
	run(program, old, 0) // the backup
	create(old, 2)
	old.Stop()

	upgraded := harness.StartOn(t, at("plantstore"))
	upgraded.AwaitReady(200)
	create(upgraded, 3)
	run(harness.Binary(), upgraded, 1) // the export
	upgraded.Stop()
	old.Run()
	<-old.Exited()
	if err := old.Wait(); err == nil || !strings.Contains(old.Log(), "a newer Plantstore wrote this store") {
		t.Fatalf("release 0.2.0 on the migrated store ended: %v; it logged:\n%s", err, old.Log())
	}

	run(program, old, 2) // the restore
	back := harness.New(t, at("plantstore_before"))
	back.Program = program
	back.Run()
	back.AwaitToken()
	create(back, 4)
	run(program, back, 3) // the import
	for id := 1; id <= 4; id++ {
		if status, body := back.Call(harness.Token, "GET", fmt.Sprintf("/plants/%d", id), ""); status != 200 {
			t.Errorf("get %d: %d %s", id, status, body)
		}
	}
	// The migrated store is as it was, and what was restored can be upgraded again.
	upgraded.Run()
	create(upgraded, 5)
	back.Stop()
	again := harness.StartOn(t, at("plantstore_before"))
	again.AwaitReady(200)
	create(again, 6)
	if got := again.Command("check"); got != "ok" {
		t.Errorf("check after another upgrade: %s", got)
	}
}

// A server meets a schema that it may not write to, while it runs and when it starts.
func TestServerThatMeetsANewerSchemaSaysWhy(t *testing.T) {
	t.Parallel()
	db := pgtest.Start(t)
	s := harness.StartOn(t, db.URL())
	s.AwaitReady(200)
	db.Exec(t, "BEGIN; UPDATE plantstore_schema SET version = 99; UPDATE log_state SET oldest_writer = 99; COMMIT")
	s.AwaitReady(503) // the result of a check is used again for a moment
	const why = "a newer Plantstore wrote this store: its schema is version 99, this release supports schemas up to "
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/plants", `{"id":1,"name":"late"}`},
		{"GET", "/plants/1", ""},
		{"GET", "/plants", ""},
		{"POST", "/tokens", `{"name":"late","scopes":["plants:read"]}`},
		{"GET", "/readyz", ""},
	} {
		status, body := s.Call(harness.Token, request.method, request.path, request.body)
		if status != 503 || !strings.Contains(body, why) {
			t.Errorf("%s %s: %d %s", request.method, request.path, status, body)
		}
	}
	if n := pgtest.QueryInt(t, db.URL(), "SELECT count(*) FROM plants"); n != 0 {
		t.Errorf("%d plants were written", n)
	}
	s.Stop()
	if n := strings.Count(s.Log(), "this server refuses everything from now on"); n != 1 {
		t.Errorf("the server said %d times that it refuses everything:\n%s", n, s.Log())
	}
	if out, err := s.TryCommand("check"); err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("check: %s, %v", out, err)
	}
	s.Run()
	<-s.Exited()
	if err := s.Wait(); err == nil || !strings.Contains(s.Log(), why) {
		t.Errorf("started again, it ended: %v; it logged:\n%s", err, s.Log())
	}
}
