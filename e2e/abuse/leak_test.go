package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// Many clients connect concurrently and disconnect in every way. Afterwards the server
// must have as many files and connections open as before.
func TestDisconnectedClientsLeaveNoFilesOpen(t *testing.T) {
	harness.NeedProc(t)
	s := harness.Start(t)
	lines := strings.Builder{}
	for id := range 20000 {
		fmt.Fprintf(&lines, "{\"id\":%d,\"name\":\"plant %d\"}\n", id, id)
	}
	s.Import(lines.String())
	visitMany := func() { harness.Parallel(t, 300, func(i int) error { return visit(s.Addr, i) }) }
	visitMany() // opens everything that stays open
	before, storeBefore := awaitNoClients(t, s)
	for range harness.Times(3, 50) {
		visitMany()
		after, storeAfter := awaitNoClients(t, s)
		if !slices.Equal(before, after) {
			t.Fatalf("the server has open %q, and had %q before", after, before)
		}
		// Eight connections read, and are opened when they are needed. Eight exports can
		// run at once, and SQLite keeps their files for the next ones.
		if storeAfter > storeBefore+24 {
			t.Fatalf("the server has %d files of the store open, and had %d before", storeAfter, storeBefore)
		}
	}
}

// visit connects, sends something, and disconnects.
func visit(addr string, i int) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	request := func(line, accept string) error {
		_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n\r\n", line, addr, harness.Token, accept)
		return err
	}
	response := bufio.NewReader(conn)
	switch i % 5 {
	case 0: // sends nothing
		return nil
	case 1: // stops in the middle of the header
		_, err := io.WriteString(conn, "GET /plants HTTP/1.1\r\nHo")
		return err
	case 2: // reads the response
		if err := request("GET /plants/"+strconv.Itoa(i), "*/*"); err != nil {
			return err
		}
		line, err := response.ReadString('\n')
		if err == nil && line != "HTTP/1.1 200 OK\r\n" {
			err = fmt.Errorf("got %q", line)
		}
		return err
	case 3: // leaves in the middle of an export
		if err := request("GET /plants", "application/x-ndjson"); err != nil {
			return err
		}
		_, err := response.ReadString('\n')
		return err
	}
	// leaves in the middle of a body
	_, err = fmt.Fprintf(conn, "POST /plants HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", addr, harness.Token)
	return err
}

// awaitNoClients waits until the listener is the server's only socket. It returns what
// else the server has open, and how many files of the store.
func awaitNoClients(t *testing.T, s *harness.Server) (others []string, store int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		others, store = nil, 0
		files := s.OpenFiles()
		for _, name := range files {
			switch {
			case strings.HasPrefix(name, "socket:"):
			case strings.HasPrefix(name, s.DB):
				store++
			default:
				others = append(others, name)
			}
		}
		if n := countSockets(files); n != 1 {
			return fmt.Errorf("the server has %d sockets open", n)
		}
		return nil
	})
	return others, store
}
