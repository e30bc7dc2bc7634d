package clients

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
)

const token = harness.Token

//go:embed scenarios.json
var scenariosJSON string

// scenario is one test of a client.
type scenario struct {
	Name string
	// Server is the script. Without it, and without Events, the calls go to the real
	// binary, unless Nobody listens.
	Server []step
	Events []json.RawMessage
	Nobody bool
	// Cut repeats the scenario for every byte: at "response N" the first response is
	// cut off after N bytes, at "request N" the first request.
	Cut string
	// Retries and RetryTimeout, in seconds, are the options of the client.
	Retries      int
	RetryTimeout float64
	// Without names clients that lack the operation.
	Without []string

	Calls []call

	// Requests are all that the server must have seen in full, if given. Attempts is
	// how many connections it must have had, if not 0.
	Requests []wantRequest
	Attempts int
	// Seconds is how long the calls must take at least.
	Seconds float64
}

// call is one call and what must come out: a value, of which members may be left out,
// or an error. The argument {etag} is the ETag of the last plant that came out.
type call struct {
	Op    string
	Args  map[string]any
	Value any
	Error *wantError
}

type wantError struct {
	Code *int // of the server, 0 for none, any if it is absent
	Text string
	// Unknown, if set, makes the error one of an unknown outcome: with the plant "now", or
	// the code of the error with which it could not be read.
	Unknown map[string]any
}

// outcome is what a driver reports.
type outcome struct {
	Value any `json:"value"`
	Error *struct {
		Code    int            `json:"code"`
		Status  int            `json:"status"`
		Message string         `json:"message"`
		Unknown map[string]any `json:"unknown"`
	} `json:"error"`
}

// job is a call as a driver gets it. Calls with the same URL share a client.
type job struct {
	URL          string         `json:"url"`
	Token        string         `json:"token"`
	Retries      int            `json:"retries"`
	RetryTimeout float64        `json:"retryTimeout"`
	Op           string         `json:"op"`
	Args         map[string]any `json:"args"`
}

// driver makes calls with one of the clients. It may be used concurrently.
type driver interface {
	do(job) (outcome, error)
}

func loadScenarios(t *testing.T) []scenario {
	t.Helper()
	large := strings.Repeat("ü", 1<<19)
	text := strings.NewReplacer("{1MiB}", large, "{2MiB}", large+large).Replace(scenariosJSON)
	var all []scenario
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// runs returns the scenario once, or once for each byte at which something is cut.
func (s scenario) runs() []scenario {
	if s.Cut == "" {
		return []scenario{s}
	}
	var all []scenario
	add := func(at int) {
		one := s
		one.Cut = fmt.Sprintf("%s %d", s.Cut, at)
		all = append(all, one)
	}
	switch {
	case s.Cut == "request":
		for at := range 300 { // a request of any client is longer
			add(at)
		}
	case s.Events != nil:
		for at := range len((&script{events: s.Events}).renderEvents("")) {
			add(at)
		}
	default:
		for at := range len(s.Server[0].render()) {
			add(at)
		}
	}
	return all
}

func (s scenario) script() *script {
	if s.Cut == "" {
		return &script{steps: s.Server, events: s.Events}
	}
	var what string
	var at int
	if _, err := fmt.Sscanf(s.Cut, "%s %d", &what, &at); err != nil {
		panic(err)
	}
	if s.Events != nil {
		return &script{events: s.Events, cut: &at}
	}
	cut := s.Server[0]
	if what == "request" {
		cut.CutRequest = &at
	} else {
		cut.Cut = &at
	}
	return &script{steps: append([]step{cut}, s.Server...)}
}

// run runs the scenario with a client. The real server is at the URL.
func (s scenario) run(d driver, real string) (err error) {
	url, server, stop := real, (*script)(nil), func() {}
	switch {
	case s.Nobody:
		url, stop, err = reserve()
	case s.Server != nil || s.Events != nil:
		server = s.script()
		url, stop, err = server.serve()
	}
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	var etag any
	for i, c := range s.Calls {
		j := job{url, token, s.Retries, s.RetryTimeout, c.Op, map[string]any{}}
		maps.Copy(j.Args, c.Args)
		if j.Args["ifMatch"] == "{etag}" {
			j.Args["ifMatch"] = etag
		}
		if err := sign(j.Args); err != nil {
			return err
		}
		got, err := d.do(j)
		if err == nil {
			err = c.check(got)
		}
		if err != nil {
			return fmt.Errorf("call %d, %s: %w", i+1, c.Op, err)
		}
		if plant, ok := got.Value.(map[string]any); ok && plant["etag"] != nil {
			etag = plant["etag"]
		}
	}
	if took := time.Since(began).Seconds(); took < s.Seconds {
		return fmt.Errorf("it took %.2f s, want at least %g s", took, s.Seconds)
	}
	if url == real {
		return nil
	}
	if _, err := d.do(jobClose(url)); err != nil || server == nil {
		return err
	}
	if s.Requests != nil {
		if err := server.checkRequests(s.Requests); err != nil {
			return err
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if s.Attempts != 0 && server.attempts != s.Attempts {
		return fmt.Errorf("the server had %d connections, want %d", server.attempts, s.Attempts)
	}
	return nil
}

// sign adds the headers of a message that was signed some seconds from now, with
// another secret than the receiver's or of another body if that is given.
func sign(args map[string]any) error {
	at, ok := args["signAt"].(float64)
	if !ok {
		return nil
	}
	text := func(name, otherwise string) string {
		if v, ok := args[name].(string); ok {
			return v
		}
		return args[otherwise].(string)
	}
	sent := time.Now().Add(time.Duration(at) * time.Second)
	signature, err := plantstore.SignWebhook(text("signWith", "secret"), "msg_1", sent, []byte(text("signed", "body")))
	if args["rotated"] == true {
		signature = "v1,AAAA " + signature
	}
	args["headers"] = map[string]any{
		"Webhook-Id": "msg_1", "Webhook-Timestamp": strconv.FormatInt(sent.Unix(), 10), "Webhook-Signature": signature,
	}
	return err
}

func (c *call) check(got outcome) error {
	switch {
	case c.Error == nil && got.Error != nil:
		return fmt.Errorf("got the error %d %s", got.Error.Code, short(got.Error.Message))
	case c.Error == nil:
		return contains(got.Value, c.Value, "the value")
	case got.Error == nil:
		return fmt.Errorf("got %s, want an error", render(got.Value))
	case c.Error.Code != nil && got.Error.Code != *c.Error.Code:
		return fmt.Errorf("got the error %d %q, want %d", got.Error.Code, short(got.Error.Message), *c.Error.Code)
	case !strings.Contains(got.Error.Message, c.Error.Text):
		return fmt.Errorf("got the error %q, want %q", short(got.Error.Message), c.Error.Text)
	case strings.Contains(got.Error.Message, token):
		return errors.New("the error contains the token")
	case got.Error.Code != 0 && got.Error.Status != got.Error.Code/100:
		return fmt.Errorf("the error %d has the status %d", got.Error.Code, got.Error.Status)
	case c.Error.Unknown == nil && got.Error.Unknown != nil:
		return fmt.Errorf("got the unknown outcome %s, want another error", render(got.Error.Unknown))
	case c.Error.Unknown != nil:
		return contains(got.Error.Unknown, c.Error.Unknown, "the unknown outcome")
	}
	return nil
}

// contains reports how got differs from want. Objects may have more members; one
// that is null in want must be absent.
func contains(got, want any, where string) error {
	switch want := want.(type) {
	case nil:
		return nil
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: got %s, want %s", where, render(got), render(want))
		}
		for name, w := range want {
			if w == nil {
				if member, ok := g[name]; ok && member != nil {
					return fmt.Errorf("%s.%s: got %s, want none", where, name, render(member))
				}
			}
			if err := contains(g[name], w, where+"."+name); err != nil {
				return err
			}
		}
		return nil
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(want) {
			return fmt.Errorf("%s: got %s, want %s", where, render(got), render(want))
		}
		for i, w := range want {
			if err := contains(g[i], w, fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
		return nil
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: got %s, want %s", where, render(got), render(want))
	}
	return nil
}

func render(v any) string {
	text, _ := json.Marshal(v)
	return short(string(text))
}

var only = flag.String("scenario", "", "run only scenarios whose name contains this")

// maxRuns is how many runs are under way at once. Most of them pause before a retry.
const maxRuns = 64

// TestClientsBehaveAlike runs every scenario with every client and shows a table.
func TestClientsBehaveAlike(t *testing.T) {
	scenarios := slices.DeleteFunc(loadScenarios(t), func(s scenario) bool { return !strings.Contains(s.Name, *only) })
	clients := drivers(t)
	results := make([][]result, len(scenarios))
	slots := make(chan struct{}, maxRuns)
	var wg sync.WaitGroup
	for i := range results {
		results[i] = make([]result, len(clients))
	}
	for c, d := range clients {
		server := harness.Start(t, "--webhook-allow", "127.0.0.0/8", "--max-body", "2097152")
		for i, s := range scenarios {
			if slices.Contains(s.Without, d.name) {
				continue
			}
			for _, one := range s.runs() {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					err := one.run(d, server.API)
					if results[i][c].add(err) {
						t.Errorf("%s: %s: %s %v", d.name, s.Name, one.Cut, err)
					}
				})
			}
		}
	}
	wg.Wait()
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	for _, d := range clients {
		fmt.Fprintf(w, "\t%s", d.name)
	}
	fmt.Fprintln(w)
	for i, s := range scenarios {
		fmt.Fprint(w, s.Name)
		for c := range clients {
			fmt.Fprintf(w, "\t%s", &results[i][c])
		}
		fmt.Fprintln(w)
	}
	w.Flush()
	harness.Report(t, "scenarios and clients:\n%s", table.String())
}

// result counts the runs of one scenario with one client.
type result struct{ runs, failed atomic.Int64 }

// add adds a run. It reports whether its error is one of the first.
func (r *result) add(err error) bool {
	r.runs.Add(1)
	return err != nil && r.failed.Add(1) <= 3
}

func (r *result) String() string {
	switch runs, failed := r.runs.Load(), r.failed.Load(); {
	case runs == 0:
		return "-"
	case failed > 0:
		return fmt.Sprintf("%d of %d FAILED", failed, runs)
	case runs > 1:
		return fmt.Sprintf("ok ×%d", runs)
	}
	return "ok"
}
