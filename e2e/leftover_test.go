package e2e

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/client"
	"plantstore/internal/postgres/pgtest"
)

// endBound is how long a server under load may take to end. Requests under way have
// ten seconds, and closing the store has as many.
const endBound = 20 * time.Second

// endUnderLoad asks the server to end while a crowd writes, starts it again, and
// calls ended in between. What the crowd was told must be so.
func endUnderLoad(t *testing.T, s *server, ended func()) {
	t.Helper()
	c := gather(t, 32, false, rand.Uint64(), s.client(client.Options{}))
	var longest time.Duration
	for range times(3, 100) {
		c.await(500)
		began := time.Now()
		s.stop() // fails unless the exit code is 0
		longest = max(longest, time.Since(began))
		ended()
		s.run()
	}
	c.await(64)
	plants := c.verify(s.client(client.Options{}))
	for _, err := range c.errors() {
		t.Error(err)
	}
	if longest > endBound {
		t.Errorf("the server took %v to end", longest)
	}
	t.Logf("longest end %v, %d writes acknowledged, %d plants looked at, longest call %v", longest, c.acknowledged.Load(), plants, c.longest())
}

// TestTermUnderLoad ends a server in order while it works. Of its files, those
// remain that docs/operations.md says are always there: the log has been taken in.
func TestTermUnderLoad(t *testing.T) {
	s := start(t)
	dir, base := filepath.Split(s.db)
	endUnderLoad(t, s, func() {
		var names []string
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			names = append(names, f.Name())
		}
		if want := []string{base, base + ".lock"}; !slices.Equal(names, want) {
			t.Errorf("the server left %q, want %q", names, want)
		}
	})
	s.stop()
	s.command("check")
}

// TestTermLeavesNoConnection ends a server on PostgreSQL. It must have said goodbye
// on each of its connections: PostgreSQL counts those that just broke off.
func TestTermLeavesNoConnection(t *testing.T) {
	db := pgtest.Start(t).URL()
	s := startOn(t, db)
	endUnderLoad(t, s, func() {
		for deadline := time.Now().Add(endBound); askNumber(t, db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'plantstore'") > 0; {
			if time.Now().After(deadline) {
				t.Fatal("the server's connections are still open")
			}
		}
		if n := askNumber(t, db, "SELECT sessions_abandoned FROM pg_stat_database WHERE datname = current_database()"); n > 0 {
			t.Errorf("%d connections broke off", n)
		}
	})
}

// askNumber returns the one number that a query gives.
func askNumber(t *testing.T, db, query string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if err := c.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestStormLeavesNoDescriptor has many callers come at once and go in every way
// there is. Afterwards the server must have as many files and connections open as
// before.
func TestStormLeavesNoDescriptor(t *testing.T) {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("this system does not show a process's descriptors: ", err)
	}
	s := start(t)
	fill := strings.Builder{}
	for id := range 20000 {
		fmt.Fprintf(&fill, "{\"id\":%d,\"name\":\"plant %d\"}\n", id, id)
	}
	if status, body := s.call(bootstrap, "POST", "/plants/import", fill.String(), "Content-Type", "application/x-ndjson"); status != 200 {
		t.Fatalf("import: %d %s", status, body)
	}
	http.DefaultClient.CloseIdleConnections() // the one of the import
	storm(t, s)                               // opens all that is kept open for later
	before, files := awaitNoCaller(t, s)
	for range times(3, 50) {
		storm(t, s)
		after, now := awaitNoCaller(t, s)
		if !slices.Equal(before, after) {
			t.Fatalf("the server has open %q, and before the storm had %q", after, before)
		}
		// Eight connections read, and are opened when they are needed. Eight exports
		// can be under way at once, and SQLite keeps their files for the next ones.
		if now > files+24 {
			t.Fatalf("the server has %d files of the store open, and before the storm had %d", now, files)
		}
	}
}

// storm has 300 callers come at once and returns when all have gone.
func storm(t *testing.T, s *server) {
	t.Helper()
	var callers sync.WaitGroup
	for i := range 300 {
		callers.Go(func() {
			if err := visit(s.addr, i); err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	callers.Wait()
}

// visit connects, asks for something, and goes.
func visit(addr string, i int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	request := func(line, accept string) error {
		_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n\r\n", line, addr, bootstrap, accept)
		return err
	}
	answer := bufio.NewReader(conn)
	switch i % 5 {
	case 0: // says nothing
		return nil
	case 1: // stops in the middle of the header
		_, err := io.WriteString(conn, "GET /plants HTTP/1.1\r\nHo")
		return err
	case 2: // reads its answer
		if err := request("GET /plants/"+strconv.Itoa(i), "*/*"); err != nil {
			return err
		}
		line, err := answer.ReadString('\n')
		if err == nil && line != "HTTP/1.1 200 OK\r\n" {
			err = fmt.Errorf("got %q", line)
		}
		return err
	case 3: // goes in the middle of an export
		if err := request("GET /plants", "application/x-ndjson"); err != nil {
			return err
		}
		_, err := answer.ReadString('\n')
		return err
	}
	// goes in the middle of a body
	_, err = fmt.Fprintf(conn, "POST /plants HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", addr, bootstrap)
	return err
}

// awaitNoCaller waits until the server has its listener open of all sockets. It
// returns what else it has open, and how many files of the store.
func awaitNoCaller(t *testing.T, s *server) (others []string, files int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		sockets := 0
		others, files = nil, 0
		for _, name := range descriptors(t, s.cmd.Process.Pid) {
			switch {
			case strings.HasPrefix(name, "socket:"):
				sockets++
			case strings.HasPrefix(name, s.db):
				files++
			default:
				others = append(others, name)
			}
		}
		if sockets == 1 {
			return others, files
		}
		if time.Now().After(deadline) {
			t.Fatalf("a minute after the last caller has gone the server has %d sockets open", sockets)
		}
		time.Sleep(time.Millisecond)
	}
}

// descriptors returns what a process has open, in order.
func descriptors(t *testing.T, pid int) []string {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, f := range files {
		name, err := os.Readlink(filepath.Join(dir, f.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		open = append(open, name)
	}
	slices.Sort(open)
	return open
}
