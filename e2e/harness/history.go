package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/rules"
	"plantstore/internal/testenv"
)

// groupSize is how many ids a group has. They are few, so that clients compete for
// them, and so that one page shows all of them.
const groupSize = 5

// group is the plants of one group. The zero Plant stands for none; the workers never
// write an empty name.
type group [groupSize]plantstore.StoredPlant

// state is the state of the model.
type state struct {
	plants  group
	events  int  // of the group that have happened
	logRead bool // what happens now is not in the log that was read
}

// change is an event of a plant, or the zero change if there is none.
type change struct {
	kind    plantstore.EventType
	plant   plantstore.Plant
	version plantstore.Version // that it makes
}

// History is what concurrent workers do to the same few plants, in independent groups,
// while a fault happens. It must be linearizable: one order of all operations, each
// between its call and its return, explains every response. The log of changes must
// show that order.
type History struct {
	Seed    uint64
	Number  int // no two histories of a store have the same
	Groups  int
	Workers int
	Clients []*client.Client // without retries; each worker uses one

	// Fault happens after FaultAfter operations.
	Fault      func()
	FaultAfter int
	// FaultKillsServers says that what the servers have not done by the end of the fault
	// they never do. Otherwise a write without a response may happen at any time.
	FaultKillsServers bool
	// CreatesMayRepeat says that a create whose outcome a server did not learn during the
	// fault may happen twice, if another client deletes the plant in between. See
	// docs/decisions/0005-unknown-outcomes.md.
	CreatesMayRepeat bool

	t     testing.TB
	begin time.Time
	log   []change // of the history's plants, once it has ended
	// fault is held during the fault. A worker without a response waits for its end.
	fault            sync.RWMutex
	running, writing atomic.Int64 // workers that run, and that are in a write

	mu          sync.Mutex // guards what follows
	operations  []porcupine.Operation
	noResponse  []porcupine.Operation // writes, without a Return
	clientIDs   int                   // used so far
	faultIsDue  chan struct{}         // closed at operation number FaultAfter
	faultBegins int64
	faultEnds   int64
}

// Tally sums up histories.
type Tally struct {
	histories, operations, noResponse int
	longest                           time.Duration // that a check took
}

func (t *Tally) String() string {
	return fmt.Sprintf("%d histories, %d operations, %d writes without a response, longest check %v",
		t.histories, t.operations, t.noResponse, t.longest)
}

// Run has every worker do a number of operations, checks the history, and adds it to the
// tally.
func (h *History) Run(t testing.TB, operations int, tally *Tally) {
	t.Helper()
	h.t, h.begin, h.faultIsDue = t, time.Now(), make(chan struct{})
	start, err := h.Clients[0].EventPage(context.Background(), plantstore.EventQuery{After: plantstore.LatestCursor})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range h.Workers {
		w := &worker{
			history: h, client: h.Clients[i%len(h.Clients)], id: h.clientID(),
			rand: rand.New(rand.NewPCG(h.Seed+uint64(h.Number), uint64(i))), seen: make(map[plantstore.ID]plantstore.StoredPlant),
		}
		h.running.Add(1)
		wg.Go(func() {
			defer h.running.Add(-1)
			for n := range operations {
				w.do(w.choose(n))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-h.faultIsDue:
	case <-done:
		t.Errorf("the fault was due after %d operations, there were %d", h.FaultAfter, len(h.operations))
	}
	h.fault.Lock()
	h.faultBegins = h.now()
	h.Fault()
	h.faultEnds = h.now()
	h.fault.Unlock()
	<-done
	last := &worker{history: h, client: h.Clients[0], id: h.clientID()}
	for i := range h.Groups {
		first := h.firstOf(i)
		if !last.do(input{group: i, first: first, after: first - 1, limit: groupSize}) {
			t.Errorf("the last read of group %d got no response", i)
		}
	}
	h.readLog(start.Next)
	h.check(tally)
	h.checkLog()
}

// readLog reads the log from that position on, which is an operation on every group.
func (h *History) readLog(after plantstore.Cursor) {
	h.t.Helper()
	called := h.now()
	for more := true; more; {
		page, err := h.Clients[0].EventPage(context.Background(), plantstore.EventQuery{After: after, Limit: 1000, Details: true})
		if err != nil {
			h.t.Fatal(err)
		}
		for _, e := range page.Events {
			if first := h.firstOf(0); e.Plant.ID >= first && e.Plant.ID < h.firstOf(h.Groups) {
				h.log = append(h.log, change{e.Type, e.Plant, e.Version})
			}
		}
		after, more = page.Next, page.More
	}
	for i := range h.Groups {
		in := input{group: i, first: h.firstOf(i), log: true}
		h.add(porcupine.Operation{ClientId: h.clientID(), Input: in, Call: called, Output: output{}, Return: h.now()})
	}
}

// AwaitAllWriting waits until every worker is in a write.
func (h *History) AwaitAllWriting() {
	h.t.Helper()
	testenv.Eventually(h.t, func() error {
		if writing, running := h.writing.Load(), h.running.Load(); writing < running {
			return fmt.Errorf("%d of %d workers are in a write", writing, running)
		}
		return nil
	})
}

// now returns the time since the beginning, for Porcupine.
func (h *History) now() int64 { return int64(time.Since(h.begin)) }

// firstOf returns the first id of a group.
func (h *History) firstOf(group int) plantstore.ID {
	return plantstore.ID(h.Number)<<20 + plantstore.ID(group)<<8
}

// clientID returns a new id for Porcupine, whose clients do one operation at a time.
func (h *History) clientID() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clientIDs++
	return h.clientIDs - 1
}

func (h *History) add(op porcupine.Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if op.Output.(output).unknown {
		h.noResponse = append(h.noResponse, op)
		return
	}
	h.operations = append(h.operations, op)
	if len(h.operations) == h.FaultAfter {
		close(h.faultIsDue)
	}
}

// input is an operation on a group: a write, a get, a list, or a read of the log.
type input struct {
	group int
	first plantstore.ID // of the group
	write *plantstore.Write
	// A list requests limit plants after an id. A get has the limit 0, and requests
	// the id that follows.
	after plantstore.ID
	limit int
	log   bool
}

// output is the response to it.
type output struct {
	refused plantstore.Code // why, or 0
	plants  []plantstore.StoredPlant
	unknown bool // there was no response
}

// worker is one client of a history. Its fields belong to its goroutine.
type worker struct {
	history *History
	client  *client.Client
	rand    *rand.Rand
	id      int                                      // for Porcupine
	seen    map[plantstore.ID]plantstore.StoredPlant // as last read
}

// choose returns the next operation.
func (w *worker) choose(n int) input {
	group := w.rand.IntN(w.history.Groups)
	first := w.history.firstOf(group)
	in := input{group: group, first: first, after: first - 1 + plantstore.ID(w.rand.IntN(groupSize))}
	id := in.after + 1
	plant := plantstore.Plant{ID: id, Name: fmt.Sprintf("%d.%d", w.id, n)}
	if w.rand.IntN(5) == 0 {
		plant.Name = "fern" // which others create too
	}
	if w.rand.IntN(2) == 0 {
		plant.Tag = plantstore.NewTag("")
	}
	switch n := w.rand.IntN(100); {
	case n < 25:
		in.write = &plantstore.Write{Op: plantstore.Create, Plant: plant}
	case n < 40:
		in.write = &plantstore.Write{Op: plantstore.Replace, Plant: plant}
	case n < 55:
		in.write = &plantstore.Write{Op: plantstore.Replace, Plant: plant, If: w.condition(id)}
	case n < 65:
		in.write = &plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}
	case n < 70:
		in.write = &plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}, If: w.condition(id)}
	case n < 77:
		in.write = &plantstore.Write{Op: plantstore.Patch, KeepTag: true, Plant: plantstore.Plant{ID: id, Name: plant.Name}}
	case n < 80:
		in.write = &plantstore.Write{Op: plantstore.Patch, KeepTag: true, Plant: plantstore.Plant{ID: id, Name: plant.Name}, If: w.condition(id)}
	case n < 88: // a get
	case n < 95:
		in.after, in.limit = first-1, groupSize
	default:
		in.limit = 1 + w.rand.IntN(groupSize)
	}
	return in
}

func (w *worker) condition(id plantstore.ID) *plantstore.Condition {
	tag := w.seen[id].Version.ETag() // that of no plant if none was seen
	switch w.rand.IntN(6) {
	case 0:
		return &plantstore.Condition{Match: []plantstore.ETag{plantstore.AnyETag}}
	case 1:
		return &plantstore.Condition{NoneMatch: []plantstore.ETag{plantstore.AnyETag}}
	case 2:
		return &plantstore.Condition{NoneMatch: []plantstore.ETag{tag}}
	}
	return &plantstore.Condition{Match: []plantstore.ETag{tag}}
}

// do performs an operation, adds it to the history, and reports whether it got a response.
func (w *worker) do(in input) bool {
	op := porcupine.Operation{ClientId: w.id, Input: in, Call: w.history.now()}
	if in.write != nil {
		w.history.writing.Add(1)
	}
	out, err := w.call(in)
	if in.write != nil {
		w.history.writing.Add(-1)
	}
	op.Return = w.history.now()
	switch outcomeOf(err) {
	case responded:
		op.Output = out
		w.history.add(op)
		if w.seen != nil {
			w.remember(out)
		}
		return true
	case ambiguous:
		if in.write != nil {
			op.Output = output{unknown: true}
			w.history.add(op)
			w.id = w.history.clientID() // the operation of the old one never returns
		}
	case notSent:
	default:
		w.history.t.Errorf("%s: %v", describe(in, output{unknown: true}), err)
	}
	w.history.fault.RLock() // waits for the end of the fault
	defer w.history.fault.RUnlock()
	return false
}

func (w *worker) remember(out output) {
	for _, p := range out.plants {
		w.seen[p.ID] = p
	}
}

// searchTimeout ends the search for an order of the operations of one history.
const searchTimeout = 3 * time.Minute

// call calls the server. Refusals that the model knows are not errors.
func (w *worker) call(in input) (out output, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch {
	case in.write == nil && in.limit == 0:
		var p plantstore.StoredPlant
		if p, err = w.client.GetDetails(ctx, in.after+1); err == nil {
			out.plants = []plantstore.StoredPlant{p}
		}
	case in.write == nil:
		var page plantstore.Page
		page, err = w.client.Page(ctx, plantstore.Query{After: &in.after, Limit: in.limit, Details: true})
		for _, p := range page.Plants { // those of the next group may follow
			if p.ID < in.first+groupSize {
				out.plants = append(out.plants, p)
			}
		}
	case in.write.Op == plantstore.Create:
		err = w.client.Create(ctx, in.write.Plant)
	case in.write.Op == plantstore.Replace:
		err = w.client.Replace(ctx, in.write.Plant, in.write.If)
	case in.write.Op == plantstore.Patch:
		var p plantstore.StoredPlant
		if p, err = w.client.Patch(ctx, in.write.Plant.ID, plantstore.PlantPatch{Name: &in.write.Plant.Name}, in.write.If); err == nil {
			out.plants = []plantstore.StoredPlant{p}
		}
	default:
		err = w.client.Delete(ctx, in.write.Plant.ID, in.write.If)
	}
	for _, refused := range []plantstore.Code{plantstore.ErrIDTaken, plantstore.ErrNoPlant, plantstore.ErrPrecondition} {
		if errors.Is(err, refused) {
			return output{refused: refused}, nil
		}
	}
	return out, err
}

// The outcomes of a call.
const (
	responded  = iota
	notSent    // nothing can have happened
	ambiguous  // it may have happened or not
	unexpected // a response that must not occur
)

func outcomeOf(err error) int {
	dial, isNet := errors.AsType[*net.OpError](err)
	_, isHTTP := errors.AsType[*url.Error](err)
	switch {
	case err == nil:
		return responded
	case isNet && dial.Op == "dial":
		return notSent
	case isNet, isHTTP, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, plantstore.ErrUnavailable):
		return ambiguous
	}
	return unexpected
}

// model returns the model of a group: plantstore.Write decides what a write does, a page
// is a consistent snapshot, and what has changed when the log is read is what the log has, in its
// order.
func (h *History) model() porcupine.Model {
	logs := make([][]change, h.Groups)
	for _, c := range h.log {
		n := int(c.plant.ID-h.firstOf(0)) >> 8
		logs[n] = append(logs[n], c)
	}
	return (&porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			groups := make([][]porcupine.Operation, h.Groups)
			for _, op := range history {
				n := op.Input.(input).group
				groups[n] = append(groups[n], op)
			}
			return groups
		},
		Init: func() []any { return []any{state{}} },
		Step: func(now, in, out any) []any {
			n := in.(input).group
			return now.(state).step(in.(input), out.(output), logs[n])
		},
		DescribeOperation: func(in, out any) string { return describe(in.(input), out.(output)) },
		DescribeState: func(now any) string {
			s := now.(state)
			return fmt.Sprint(s.plants.from(0), " after ", s.events, " events")
		},
	}).ToModel()
}

// step returns the states that an operation with that response can lead to, in a group
// with that log.
func (s state) step(in input, got output, log []change) []any {
	if in.log {
		if s.events != len(log) {
			return nil
		}
		s.logRead = true
		return []any{s}
	}
	var states []any
	var version plantstore.Version // that a change makes
	if s.events < len(log) {
		version = log[s.events].version
	}
	plants, event, want := s.plants.after(in, version)
	next := state{plants, s.events, s.logRead}
	logged := true
	if event != (change{}) && !s.logRead {
		logged = s.events < len(log) && log[s.events] == event
		next.events++
	}
	if logged && (got.unknown || got.refused == want.refused && slices.Equal(got.plants, want.plants)) {
		states = append(states, next)
	}
	if got.unknown {
		states = append(states, s)
	}
	return states
}

// after returns the plants after an operation other than a read of the log, the event of
// it, which makes that version, and its response.
func (g group) after(in input, version plantstore.Version) (group, change, output) {
	if in.write == nil && in.limit > 0 {
		plants := g.from(int(in.after + 1 - in.first))
		return g, change{}, output{plants: plants[:min(len(plants), in.limit)]}
	}
	at := in.after + 1 - in.first
	was := g[at]
	var current *plantstore.StoredPlant
	if was != (plantstore.StoredPlant{}) {
		current = &was
	}
	if in.write == nil {
		if current == nil {
			return g, change{}, output{refused: plantstore.ErrNoPlant}
		}
		return g, change{}, output{plants: []plantstore.StoredPlant{was}}
	}
	result := rules.Decide(in.write, current, plantstore.Version{}).Result
	if result.Err != nil {
		return g, change{}, output{refused: result.Err.(plantstore.Code)}
	}
	after := plantstore.StoredPlant{Plant: *cmp.Or(result.Patched, &in.write.Plant), Version: version, Created: version.Time}
	var out output
	switch result.Outcome {
	case plantstore.Created:
		g[at] = after
	case plantstore.Replaced:
		after.Created = was.Created
		g[at] = after
	case plantstore.Deleted:
		g[at] = plantstore.StoredPlant{}
		return g, change{plantstore.PlantDeleted, was.Plant, version}, out
	}
	if result.Patched != nil {
		out.plants = []plantstore.StoredPlant{{Plant: g[at].Plant, Version: g[at].Version}}
	}
	if kind := result.EventType(); kind != "" {
		return g, change{kind, g[at].Plant, version}, out
	}
	return g, change{}, out
}

// from returns the plants from that index on.
func (g group) from(at int) []plantstore.StoredPlant {
	return slices.DeleteFunc(slices.Clone(g[at:]), func(p plantstore.StoredPlant) bool { return p == plantstore.StoredPlant{} })
}

func describe(in input, out output) string {
	var text string
	switch {
	case in.log:
		text = "read the log"
	case in.write == nil && in.limit == 0:
		text = fmt.Sprintf("get %d: %v", in.after+1, out.plants)
	case in.write == nil:
		text = fmt.Sprintf("list %d after %d: %v", in.limit, in.after, out.plants)
	default:
		ops := map[plantstore.Op]string{plantstore.Create: "create", plantstore.Replace: "replace", plantstore.Delete: "delete", plantstore.Patch: "patch"}
		text = fmt.Sprintf("%s %v", ops[in.write.Op], in.write.Plant)
		if in.write.If != nil {
			text += fmt.Sprintf(" if %+v", *in.write.If)
		}
	}
	if out.unknown {
		return text + ": no response"
	}
	if out.refused != 0 {
		return text + ": " + out.refused.Error()
	}
	return text + ": done"
}

// complete returns all operations, those without a response too.
func (h *History) complete() []porcupine.Operation {
	all := slices.Clone(h.operations)
	for _, op := range h.noResponse {
		op.Return = h.now()
		if h.FaultKillsServers && op.Call < h.faultEnds {
			op.Return = h.faultEnds
		}
		all = append(all, op)
	}
	if !h.CreatesMayRepeat {
		return all
	}
	for _, op := range slices.Clone(all) {
		in := op.Input.(input)
		if in.write != nil && in.write.Op == plantstore.Create && op.Call <= h.faultEnds && op.Return >= h.faultBegins {
			op.Output, op.ClientId = output{unknown: true}, h.clientID()
			all = append(all, op)
		}
	}
	return all
}

// check asks Porcupine for an order that explains the history. One that has none is
// saved to the artifacts.
func (h *History) check(tally *Tally) {
	h.t.Helper()
	// Each worker can be in one call when the fault happens. If more get no
	// response, it is the server that does not respond.
	if len(h.noResponse) > h.Workers {
		h.t.Errorf("%d writes got no response, with %d workers and one fault", len(h.noResponse), h.Workers)
	}
	all, model := h.complete(), h.model()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(model, all, searchTimeout)
	if result != porcupine.Ok {
		h.t.Errorf("%s: no order of %d operations explains their responses and the log; see %s", result, len(all), h.saveArtifacts(all, model, info))
	}
	tally.histories++
	tally.operations += len(all)
	tally.noResponse += len(h.noResponse)
	tally.longest = max(tally.longest, time.Since(began))
}

// checkLog compares the order of the log, all groups together, with the clock: a write
// that was called after another had returned must have its event after the other's. So
// each event gets a moment at which it can have happened, in order.
func (h *History) checkLog() {
	h.t.Helper()
	type times struct{ calls, returns []int64 }
	writes := make(map[plantstore.Plant]times) // by what they write, without a name if they delete, and without a tag
	for _, op := range h.complete() {
		in, out := op.Input.(input), op.Output.(output)
		if in.write == nil || out.refused != 0 {
			continue
		}
		key := plantstore.Plant{ID: in.write.Plant.ID, Name: in.write.Plant.Name}
		w := writes[key]
		writes[key] = times{append(w.calls, op.Call), append(w.returns, op.Return)}
	}
	for _, w := range writes {
		slices.Sort(w.calls)
		slices.Sort(w.returns)
	}
	written := func(c change) plantstore.Plant {
		if c.kind == plantstore.PlantDeleted {
			return plantstore.Plant{ID: c.plant.ID}
		}
		return plantstore.Plant{ID: c.plant.ID, Name: c.plant.Name} // a patch keeps the tag
	}
	events := make(map[plantstore.Plant]int)
	for _, c := range h.log {
		events[written(c)]++
	}
	seen := make(map[plantstore.Plant]int)
	moment := int64(0)
	for i, c := range h.log {
		// Equal writes cannot be told apart by their events. The n-th event comes
		// after n of them were called, and before one returned that all but n precede.
		w, n := writes[written(c)], seen[written(c)]
		seen[written(c)]++
		spare := len(w.calls) - events[written(c)] // of these nothing is in the log
		if spare < 0 {
			h.t.Errorf("event %d, %+v, is one of %d, after %d such writes", i, c, events[written(c)], len(w.calls))
			return
		}
		if moment = max(moment, w.calls[n]); moment > w.returns[n+spare] {
			h.t.Errorf("event %d, %+v, comes after one of a write that was called when its own had returned", i, c)
			return
		}
	}
}

// saveArtifacts writes the history as text and as a drawing, and returns the path of the drawing.
func (h *History) saveArtifacts(operations []porcupine.Operation, model porcupine.Model, info porcupine.LinearizationInfo) string {
	h.t.Helper()
	dir := Artifacts()
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "plantstore-history-"); err != nil {
			h.t.Fatal(err)
		}
	}
	var text strings.Builder
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range operations {
		in := op.Input.(input)
		fmt.Fprintf(&text, "%12d %12d client %2d group %d %s\n", op.Call, op.Return, op.ClientId, in.group, describe(in, op.Output.(output)))
	}
	for i, c := range h.log {
		fmt.Fprintf(&text, "event %d: %s %+v\n", i, c.kind, c.plant)
	}
	path := filepath.Join(dir, fmt.Sprintf("history-%x-%d", h.Seed, h.Number))
	if err := os.WriteFile(path+".txt", []byte(text.String()), 0o644); err != nil {
		h.t.Fatal(err)
	}
	if err := porcupine.VisualizePath(model, info, path+".html"); err != nil {
		h.t.Fatal(err)
	}
	return path + ".html"
}
