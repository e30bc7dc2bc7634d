package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/servertest"
)

// fault is what goes wrong with one request.
type fault struct {
	name string
	// applied says that the server applies the request, and only its response is
	// lost.
	applied bool
	trip    func(next http.RoundTripper, r *http.Request) (*http.Response, error)
}

func faults() []fault {
	return []fault{
		{"refused connection", false, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return nil, errors.Join(servertest.ErrRefused, closeBody(r))
		}},
		{"overloaded server", false, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return respond(r, 503, "application/json", `{"error":50301,"message":"later"}`), closeBody(r)
		}},
		{"rate limit", false, func(_ http.RoundTripper, r *http.Request) (*http.Response, error) {
			return respond(r, 429, "application/json", `{"error":42901,"message":"later"}`), closeBody(r)
		}},
		{"lost response", true, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, err := discard(next.RoundTrip(r))
			return nil, errors.Join(io.ErrUnexpectedEOF, err)
		}},
		{"truncated response", true, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(r)
			if err == nil && resp.StatusCode == http.StatusNoContent {
				_, err = discard(resp, nil)
				return nil, errors.Join(io.ErrUnexpectedEOF, err)
			}
			return cut(resp, err)
		}},
		{"unknown outcome", true, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, err := discard(next.RoundTrip(r))
			return respond(r, 503, "application/json", `{"error":50301,"message":"unknown"}`), err
		}},
		{"bad gateway", true, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, err := discard(next.RoundTrip(r))
			return respond(r, 502, "text/html", "<h1>Bad Gateway</h1>"), err
		}},
		{"gateway timeout", true, func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, err := discard(next.RoundTrip(r))
			return respond(r, 504, "text/html", "<h1>Gateway Timeout</h1>"), err
		}},
	}
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

func respond(r *http.Request, status int, media, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}
}

func discard(resp *http.Response, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		return 0, nil // it has no end
	}
	return io.Copy(io.Discard, resp.Body)
}

// cut removes the body of a response.
func cut(resp *http.Response, err error) (*http.Response, error) {
	if _, err := discard(resp, err); err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(errReader{io.ErrUnexpectedEOF})
	return resp, nil
}

// breaking wraps a transport so that its first requests meet the fault.
func (f *fault) breaking(first int64) func(http.RoundTripper) http.RoundTripper {
	var requests atomic.Int64
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if requests.Add(1) <= first {
				return f.trip(next, r)
			}
			return next.RoundTrip(r)
		})
	}
}

func TestEveryCallSurvivesEveryFault(t *testing.T) {
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bubbleServer) {
				for _, op := range operations() {
					s.Clear(t)
					s.Fill(t, op.before...)
					err := op.call(t.Context(), s.client(t, client.Options{}, fault.breaking(3)))
					// The plants of an iterator cannot be sent again.
					if op.name == "import" && fault.applied {
						if err == nil || !strings.Contains(err.Error(), "importing the same lines again is safe") {
							t.Errorf("%s ended with %v", op.name, err)
						}
						err = nil
					}
					if err != nil {
						t.Errorf("%s: %v", op.name, err)
					}
					if got := s.Plants(t); !slices.Equal(got, op.after) {
						t.Errorf("%s: the store has %#v, want %#v", op.name, got, op.after)
					}
				}
			})
		})
	}
}

func TestCallFailsIfEveryAttemptDoes(t *testing.T) {
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bubbleServer) {
				for _, op := range operations() {
					s.Clear(t)
					s.Fill(t, op.before...)
					err := op.call(t.Context(), s.client(t, client.Options{Retries: 2}, fault.breaking(1000)))
					if err == nil {
						t.Errorf("%s succeeds", op.name)
						continue
					}
					want := "3 attempts failed"
					if op.name == "import" && fault.applied {
						want = "importing the same lines again is safe"
					}
					verb, _, _ := strings.Cut(op.name, " ")
					if verb == "page" {
						verb = "list"
					}
					what := strings.HasPrefix(err.Error(), verb+" plant") || strings.HasPrefix(err.Error(), verb+" events") || strings.HasPrefix(err.Error(), "get the "+verb+":") || strings.HasPrefix(err.Error(), op.name+":")
					if !strings.Contains(err.Error(), want) || !what {
						t.Errorf("%s: %q does not say %q", op.name, err, want)
					}
				}
			})
		})
	}
}

// A delete that was not sent, or was refused, has deleted nothing.
func TestDeleteOfAMissingPlantSucceedsOnlyIfAnAttemptMayHaveBeenApplied(t *testing.T) {
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *bubbleServer) {
				err := s.client(t, client.Options{}, fault.breaking(1)).Delete(t.Context(), 1, nil)
				// A 503 does not say whether the request was applied. A 404 does,
				// even without a body.
				maybeApplied := fault.applied || fault.name == "overloaded server"
				maybeApplied = maybeApplied && fault.name != "truncated response"
				if maybeApplied && err != nil || !maybeApplied && !errors.Is(err, plantstore.ErrNoPlant) {
					t.Errorf("delete: %v", err)
				}
			})
		})
	}
}

// If an attempt to create a plant with a free id may have been applied, the existing
// plant decides.
func TestReplaceIfNoneMatchAfterALostResponse(t *testing.T) {
	absent := &plantstore.Condition{NoneMatch: []plantstore.ETag{plantstore.AnyETag}}
	lost := fault{trip: func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		_, err := discard(next.RoundTrip(r))
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}}
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		s.Fill(t, oak)
		if err := s.client(t, client.Options{}, lost.breaking(2)).Replace(t.Context(), elm, absent); !errors.Is(err, plantstore.ErrPrecondition) {
			t.Errorf("another plant has the id: %v, want ErrPrecondition", err)
		}
		if got := s.Plants(t); !slices.Equal(got, []plantstore.Plant{oak}) {
			t.Errorf("the store has %#v, want the oak", got)
		}
		if err := s.client(t, client.Options{}, nil).Replace(t.Context(), oak, absent); !errors.Is(err, plantstore.ErrPrecondition) {
			t.Errorf("no response was lost: %v, want ErrPrecondition", err)
		}
	})
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		s.Token = s.NewToken(plantstore.ScopeWrite)
		if err := s.client(t, client.Options{}, lost.breaking(1)).Replace(t.Context(), elm, absent); err != nil {
			t.Errorf("with the write scope only: %v", err)
		}
	})
}

// After a lost response nobody knows whether a write with a version as its condition was applied.
func TestOutcomeOfAConditionalWriteIsUnknownAfterALostResponse(t *testing.T) {
	lost := fault{trip: func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return next.RoundTrip(r)
		}
		_, err := discard(next.RoundTrip(r))
		return nil, errors.Join(io.ErrUnexpectedEOF, err)
	}}
	unsent := fault{trip: func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }}
	name := "Elm"
	for what, write := range map[string]func(*testing.T, *client.Client, *plantstore.Condition) error{
		"replace": func(t *testing.T, c *client.Client, cond *plantstore.Condition) error {
			return c.Replace(t.Context(), elm, cond)
		},
		"patch": func(t *testing.T, c *client.Client, cond *plantstore.Condition) error {
			_, err := c.Patch(t.Context(), 1, plantstore.PlantPatch{Name: &name}, cond)
			return err
		},
		"delete": func(t *testing.T, c *client.Client, cond *plantstore.Condition) error {
			return c.Delete(t.Context(), 1, cond)
		},
	} {
		inBubble(t, func(t *testing.T, s *bubbleServer) {
			s.Fill(t, oak)
			read, err := s.client(t, client.Options{}, nil).Get(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			asRead := &plantstore.Condition{Match: []plantstore.ETag{read.ETag()}}
			err = write(t, s.client(t, client.Options{}, lost.breaking(1)), asRead)
			unknown, ok := errors.AsType[*client.OutcomeError](err)
			switch {
			case !ok:
				t.Errorf("%s: %v, want an OutcomeError", what, err)
			case what == "delete" && !errors.Is(unknown.ReadErr, plantstore.ErrNoPlant),
				what != "delete" && (unknown.ReadErr != nil || unknown.Now.Name != name || unknown.Now.Version == read.Version):
				t.Errorf("%s: the plant is now %+v, %v", what, unknown.Now, unknown.ReadErr)
			}
		})
		inBubble(t, func(t *testing.T, s *bubbleServer) {
			s.Fill(t, oak)
			read, err := s.client(t, client.Options{}, nil).Get(t.Context(), 1)
			if err != nil {
				t.Fatal(err)
			}
			asRead := &plantstore.Condition{Match: []plantstore.ETag{read.ETag()}}
			if err := write(t, s.client(t, client.Options{}, unsent.breaking(2)), asRead); err != nil {
				t.Errorf("%s, whose first request did not arrive: %v", what, err)
			}
		})
	}
}

// The outcome is as unknown if the caller no longer waits for the response.
func TestOutcomeOfAConditionalWriteIsUnknownIfItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		s.Fill(t, oak)
		cond := &plantstore.Condition{Match: []plantstore.ETag{`"x"`}}
		ctx, cancel := context.WithCancel(t.Context())
		sent := fault{trip: func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			_, err := discard(next.RoundTrip(r))
			cancel()
			return nil, errors.Join(ctx.Err(), err)
		}}
		retrying := 0
		c := s.client(t, client.Options{Retrying: func(error, time.Duration) { retrying++ }}, sent.breaking(1))
		err := c.Replace(ctx, elm, cond)
		unknown, ok := errors.AsType[*client.OutcomeError](err)
		if !ok || !errors.Is(err, context.Canceled) || !errors.Is(unknown.ReadErr, context.Canceled) || retrying > 0 {
			t.Errorf("%v after %d retries, want an OutcomeError because of the context", err, retrying)
		}
		err = c.Replace(ctx, elm, cond)
		if _, ok := errors.AsType[*client.OutcomeError](err); ok || !errors.Is(err, context.Canceled) {
			t.Errorf("the context ended before the request was sent: %v", err)
		}
	})
}

// Neither the write nor the reading of the plant after it reaches the server again.
func TestUnknownOutcomeTakesNoLongerThanRetriesMay(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		broken := fault{trip: func(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }}
		start := time.Now()
		err := s.client(t, client.Options{RetryTimeout: 10 * time.Second}, broken.breaking(1000)).
			Replace(t.Context(), elm, &plantstore.Condition{Match: []plantstore.ETag{`"x"`}})
		if _, ok := errors.AsType[*client.OutcomeError](err); !ok || time.Since(start) > 10*time.Second {
			t.Errorf("%v after %s, want an OutcomeError after 10s at most", err, time.Since(start))
		}
	})
}

// The connection breaks after a part of the import was sent.
func TestImportIsRetriedIfItsReaderCanSeek(t *testing.T) {
	half := fault{trip: func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, 30), errReader{io.ErrUnexpectedEOF}))
		_, err := discard(next.RoundTrip(r))
		return nil, err
	}}
	const lines = "a line before\n" + `{"id":1,"name":"Oak"}` + "\n" + `{"id":2,"name":"Elm"}` + "\n"
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		seeker := strings.NewReader(lines)
		must(seekTo(seeker, int64(strings.Index(lines, "{"))))
		report, err := s.client(t, client.Options{}, half.breaking(2)).ImportLines(t.Context(), seeker)
		if err != nil || report.Created != 2 || report.Failed != 0 {
			t.Errorf("a reader that seeks: %+v, %v, want 2 created", report, err)
		}
		report, err = s.client(t, client.Options{}, half.breaking(1)).ImportLines(t.Context(), io.MultiReader(strings.NewReader(lines)))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a reader that does not seek: %+v, %v, want io.ErrUnexpectedEOF", report, err)
		}
	})
}

// A transport may read the body of an attempt after the next one has begun.
func TestBodyOfAnEarlierAttemptCannotBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, s *bubbleServer) {
		var earlier io.Reader
		c := s.client(t, client.Options{}, func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(r *http.Request) (*http.Response, error) {
				if earlier == nil {
					earlier = r.Body
					_, err := io.ReadFull(r.Body, make([]byte, 5))
					return nil, errors.Join(io.ErrUnexpectedEOF, err)
				}
				if n, err := earlier.Read(make([]byte, 5)); n != 0 || err == nil || err == io.EOF {
					t.Errorf("the earlier body returns %d bytes, %v", n, err)
				}
				return next.RoundTrip(r)
			})
		})
		report, err := c.ImportLines(t.Context(), strings.NewReader(twoLines))
		if err != nil || report.Created != 2 {
			t.Errorf("%+v, %v, want 2 created", report, err)
		}
	})
}

func seekTo(s io.Seeker, at int64) error {
	_, err := s.Seek(at, io.SeekStart)
	return err
}

// A proxy may refuse a retry with 412, although the call has no condition.
func TestReplaceWithoutAConditionMayGet412(t *testing.T) {
	attempt := 0
	c := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		attempt++
		w.WriteHeader([]int{http.StatusBadGateway, http.StatusPreconditionFailed}[min(attempt, 2)-1])
	}, client.Options{})
	if err := c.Replace(t.Context(), oak, nil); !errors.Is(err, plantstore.ErrPrecondition) {
		t.Errorf("got %v, want ErrPrecondition", err)
	}
}

// The first attempt sends all lines. The report of the second one comes too early.
func TestReportOfARetriedImportMayNotComeEarly(t *testing.T) {
	attempt := 0
	c := newFake(t, nil, client.Options{})
	c.Wrap(func(http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if attempt++; attempt == 1 {
				_, err := io.Copy(io.Discard, r.Body)
				return nil, errors.Join(io.ErrUnexpectedEOF, err)
			}
			return respond(r, 200, "application/json", `{"created":2,"unchanged":0,"failed":0,"errors":[]}`), nil
		})
	})
	if report, err := c.ImportLines(t.Context(), strings.NewReader(twoLines)); err == nil {
		t.Errorf("got %+v, want an error", report)
	}
}
