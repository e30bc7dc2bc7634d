package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// after returns a handler that responds like first to some requests, and then with an
// oak.
func after(requests int, first http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if requests--; requests >= 0 {
			first(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"Oak"}`)
	}
}

func unavailable(retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"error":50301,"message":"later"}`)
	}
}

func TestRetryAfterIsAddedToThePause(t *testing.T) {
	const second = time.Second
	for _, test := range []struct {
		retryAfter  string
		least, most time.Duration
	}{
		{"", 50 * time.Millisecond, 100 * time.Millisecond},
		{"0", 50 * time.Millisecond, 100 * time.Millisecond},
		{"7", 7*second + 50*time.Millisecond, 7*second + 100*time.Millisecond},
		// The clock of a bubble begins at midnight of this day.
		{"Sat, 01 Jan 2000 00:00:20 GMT", 20*second + 50*time.Millisecond, 20*second + 100*time.Millisecond},
		{"Fri, 31 Dec 1999 00:00:00 GMT", 50 * time.Millisecond, 100 * time.Millisecond},
		{"soon", 50 * time.Millisecond, 100 * time.Millisecond},
		{"-5", 50 * time.Millisecond, 100 * time.Millisecond},
	} {
		withFake(t, after(1, unavailable(test.retryAfter)), client.Options{}, func(t *testing.T, c *client.Client) {
			start := time.Now()
			if err := c.Create(t.Context(), oak); err != nil {
				t.Errorf("Retry-After %q: %v", test.retryAfter, err)
			}
			if took := time.Since(start); took < test.least || took > test.most {
				t.Errorf("Retry-After %q: waited %v, want %v to %v", test.retryAfter, took, test.least, test.most)
			}
		})
	}
}

// attempts returns the pauses between the attempts of one call.
func attempts(t *testing.T, opts client.Options) (pauses []time.Duration, err error) {
	t.Helper()
	var last time.Time
	count := func(w http.ResponseWriter, r *http.Request) {
		if !last.IsZero() {
			pauses = append(pauses, time.Since(last))
		}
		last = time.Now()
		unavailable("")(w, r)
	}
	withFake(t, count, opts, func(t *testing.T, c *client.Client) { err = c.Create(t.Context(), oak) })
	if last.IsZero() {
		t.Fatal("there was no attempt")
	}
	return pauses, err
}

func TestPausesDoubleUpToALimit(t *testing.T) {
	pauses, err := attempts(t, client.Options{})
	if len(pauses) != 18 || !errors.Is(err, plantstore.ErrUnavailable) {
		t.Errorf("%d retries, then %v, want 18, then ErrUnavailable", len(pauses), err)
	}
	whole, same := 100*time.Millisecond, 0
	total := time.Duration(0)
	for i, pause := range pauses {
		if pause < whole/2 || pause > whole {
			t.Errorf("pause %d is %v, want %v to %v", i, pause, whole/2, whole)
		}
		if pause == whole/2 {
			same++
		}
		total += pause
		whole = min(2*whole, 5*time.Second)
	}
	if same > 2 {
		t.Errorf("the pauses have no random part: %v", pauses)
	}
	if total < 30*time.Second {
		t.Errorf("all pauses are %v, which is less than a failover of 30 s", total)
	}
}

func TestRetriesAreCounted(t *testing.T) {
	for _, test := range []struct{ retries, want int }{{-1, 0}, {1, 1}, {5, 5}} {
		if pauses, err := attempts(t, client.Options{Retries: test.retries}); len(pauses) != test.want || err == nil {
			t.Errorf("%d retries were allowed, %d made, then %v", test.retries, len(pauses), err)
		}
	}
	pauses, _ := attempts(t, client.Options{Retries: 1000, RetryTimeout: time.Hour})
	if len(pauses) < 600 || len(pauses) > 1000 {
		t.Errorf("%d retries in an hour", len(pauses))
	}
}

func TestCallsSurviveAFailover(t *testing.T) {
	for _, op := range operations() {
		inBubble(t, func(t *testing.T, s *bubbleServer) {
			s.Fill(t, op.before...)
			start := time.Now()
			c := s.client(t, client.Options{}, nil)
			c.DialWith(func(ctx context.Context, network, addr string) (net.Conn, error) {
				if time.Since(start) < 30*time.Second {
					return nil, servertest.ErrRefused
				}
				return s.network.Dial(ctx, network, addr)
			})
			if err := op.call(t.Context(), c); err != nil {
				t.Errorf("%s: %v", op.name, err)
			}
		})
	}
}

// hang reads a request and never responds.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// An attempt against a server that hangs takes until its timeout.
func TestRetryTimeoutEndsSlowAttempts(t *testing.T) {
	withFake(t, hang, client.Options{}, func(t *testing.T, c *client.Client) {
		start := time.Now()
		err := c.Create(t.Context(), oak)
		if err == nil || !strings.Contains(err.Error(), "timeout awaiting response headers") {
			t.Errorf("%v does not mention a timeout", err)
		}
		if took := time.Since(start); took < time.Minute || took > 3*time.Minute {
			t.Errorf("gave up after %v", took)
		}
	})
}

func TestSlowResponseEndsAnAttempt(t *testing.T) {
	for _, op := range operations() {
		want := 45 * time.Second
		if strings.HasPrefix(op.name, "import") || strings.HasPrefix(op.name, "export") {
			want = 10 * time.Minute
		}
		withFake(t, hang, client.Options{Retries: -1}, func(t *testing.T, c *client.Client) {
			start := time.Now()
			err := op.call(t.Context(), c)
			if took := time.Since(start); err == nil || took != want {
				t.Errorf("%s ended after %v with %v, want %v", op.name, took, err, want)
			}
		})
	}
}

func TestPauseEndsWithTheContext(t *testing.T) {
	for _, op := range operations() {
		withFake(t, unavailable("30"), client.Options{}, func(t *testing.T, c *client.Client) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			start := time.Now()
			err := op.call(ctx, c)
			if took := time.Since(start); took != 20*time.Second {
				t.Errorf("%s ended after %v", op.name, took)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, plantstore.ErrUnavailable) {
				t.Errorf("%s: %v, want context.DeadlineExceeded and ErrUnavailable", op.name, err)
			}
		})
	}
}

func TestUnknownHostIsNotRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := servertest.NewPipes()
		c := dialingClient(t, network, "http://plants.test", secret, client.Options{}, nil)
		dials := 0
		c.DialWith(func(context.Context, string, string) (net.Conn, error) {
			dials++
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "plants.test", IsNotFound: true}}
		})
		err := c.Create(t.Context(), oak)
		if dials != 1 || err == nil || !strings.Contains(err.Error(), "create plant 1: ") || !strings.Contains(err.Error(), "no such host") {
			t.Errorf("%d attempts, then %v", dials, err)
		}
	})
}

// A reader may block, as a terminal does.
func TestCancelledImportDoesNotWaitForItsReader(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		ctx, cancel := context.WithCancel(t.Context())
		in, out := io.Pipe()
		ended := make(chan error)
		go func() {
			_, err := s.client(t, client.Options{}, nil).ImportLines(ctx, in)
			ended <- err
		}()
		if _, err := io.WriteString(out, "{\"id\":1,\"name\":\"Oak\"}\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the next Read to block
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the import ended with %v, want context.Canceled", err)
		}
		out.CloseWithError(errors.New("unblocked")) // lets the Read return and the bubble end
	})
}

// The server aborts an import that sends less than 1 KiB per second.
func TestSlowIteratorKeepsTheImportAlive(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		slowly := func(yield func(plantstore.Plant) bool) {
			for id := range plantstore.ID(20) {
				time.Sleep(20 * time.Second)
				if !yield(plantstore.Plant{ID: id, Name: strings.Repeat("Oak", 10<<10)}) {
					return
				}
			}
		}
		report, err := s.client(t, client.Options{}, nil).Import(t.Context(), slowly)
		if err != nil || report.Created != 20 {
			t.Errorf("%+v, %v, want 20 created", report, err)
		}
	})
}
