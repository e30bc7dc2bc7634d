package server

import (
	"errors"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// slowClient reads or sends a number of bytes per second, and honours deadlines as a
// connection does.
type slowClient struct {
	http.ResponseWriter
	rate     int
	deadline time.Time
	bytes    int
}

func (c *slowClient) SetWriteDeadline(t time.Time) error { c.deadline = t; return nil }
func (c *slowClient) SetReadDeadline(t time.Time) error  { c.deadline = t; return nil }

func (c *slowClient) Write(b []byte) (int, error) {
	took := time.Duration(len(b)) * time.Second / time.Duration(c.rate)
	left := time.Until(c.deadline)
	time.Sleep(min(took, left))
	if took > left {
		return 0, os.ErrDeadlineExceeded
	}
	c.bytes += len(b)
	return len(b), nil
}

// Read returns what has arrived within a second.
func (c *slowClient) Read(b []byte) (int, error) { return c.Write(b[:min(len(b), c.rate)]) }

func TestStreamsAreEndedBelowTheMinimumSpeed(t *testing.T) {
	const timeout = 30 * time.Second
	buffer := make([]byte, 1<<20)
	export := func(c *slowClient) func() error {
		out := &pacedWriter{c, newPace(minExportRate, timeout)}
		return func() error { _, err := out.Write(buffer); return err }
	}
	body := func(c *slowClient) func() error {
		in := &pacedReader{c, c, newPace(minImportRate, timeout)}
		return func() error { _, err := in.Read(buffer); return err }
	}
	for _, tt := range []struct {
		name   string
		stream func(*slowClient) func() error
		rate   int
		ends   bool
	}{
		{"export at half the rate", export, minExportRate / 2, true},
		{"export at the rate", export, minExportRate, false},
		{"export at a good rate", export, 75_000, false},
		{"import at half the rate", body, minImportRate / 2, true},
		{"import of a byte per second", body, 1, true},
		{"import at the rate", body, minImportRate, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := &slowClient{rate: tt.rate}
				step := tt.stream(client)
				start := time.Now()
				var err error
				for err == nil && time.Since(start) < time.Hour {
					err = step()
				}
				if ended := errors.Is(err, os.ErrDeadlineExceeded); ended != tt.ends {
					t.Errorf("after %v and %d bytes: %v", time.Since(start), client.bytes, err)
				}
				if tt.ends && time.Since(start) > 3*timeout {
					t.Errorf("it was not ended after %v", time.Since(start))
				}
			})
		})
	}
}

// A stream that was fast does not earn the right to be slow for long, and time that
// the server needs does not count against the client.
func TestCreditOfAStreamIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &slowClient{rate: 1 << 30}
		out := &pacedWriter{client, newPace(minExportRate, 30*time.Second)}
		buffer := make([]byte, 64<<10)
		for range 1000 {
			if _, err := out.Write(buffer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute) // the server's own
		}
		client.rate = 1
		start := time.Now()
		if _, err := out.Write(buffer); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > 30*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
	})
}
