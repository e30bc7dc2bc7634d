package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/postgres/pgtest"
)

// TestLinearizable has a dozen clients create, get, replace, delete and list the
// same few plants while the server is killed and started again. There must be one
// order of all they did, each between its call and its answer, that explains every
// answer.
func TestLinearizable(t *testing.T) { bothBuilds(t, testLinearizable) }

func testLinearizable(t *testing.T, program string) {
	histories, seed := times(12, 600), rand.Uint64()
	t.Logf("%d histories, seed %#x", histories, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := startProgram(t, program, filepath.Join(t.TempDir(), "plants.db"))
	var sum tally
	for n := range histories {
		p := newPlot(t, seed, n, 2, 12, s.client(client.Options{Retries: -1}))
		p.kills = true
		p.cut(1+random.IntN(600), func() {
			s.kill()
			s.run()
		})
		p.work(60)
		sum.add(p.check())
	}
	s.stop()
	s.command("check")
	t.Log(sum)
}

// TestLinearizableFailover does the same with two servers that share a PostgreSQL
// database, whose primary is killed and whose synchronous standby takes over. In
// every other history the primary loses the standby first, so that what it commits
// then is lost, and nobody may have been told of it.
func TestLinearizableFailover(t *testing.T) {
	histories, seed := times(2, 30), rand.Uint64()
	t.Logf("%d histories, seed %#x", histories, seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var sum tally
	for n := range histories {
		t.Run(fmt.Sprint("history ", n+1), func(t *testing.T) {
			primary := pgtest.Start(t)
			standby := primary.Standby(t, "heir")
			primary.Exec(t, "ALTER SYSTEM SET synchronous_standby_names = 'heir'")
			primary.Exec(t, "SELECT pg_reload_conf()")
			primary.Exec(t, "CHECKPOINT") // by the process that puts the setting into effect
			db := strings.Replace(primary.URL(), primary.Addr(), standby.Addr()+","+primary.Addr(), 1)
			replicas := []*server{startOn(t, db), startOn(t, db)}
			var clients []*client.Client
			for _, s := range replicas {
				clients = append(clients, s.client(client.Options{Retries: -1}))
			}
			p := newPlot(t, seed, n, 6, 16, clients...)
			p.twice = true
			p.cut(1+random.IntN(1000), func() {
				if n%2 == 0 {
					p.sever(primary.URL())
				}
				primary.Kill(t)
				// What is left of it may serve for a moment, and must not any more
				// when there is another.
				for _, s := range replicas {
					s.awaitReady(503)
				}
				standby.Promote(t)
			})
			p.work(150)
			sum.add(p.check())
		})
	}
	t.Log(sum)
}

// sever keeps the primary from sending anything to its standby, and waits until
// every client is in a write, none of which can end now.
func (p *plot) sever(primary string) {
	p.t.Helper()
	sender, err := os.FindProcess(askNumber(p.t, primary, "SELECT pid FROM pg_stat_replication"))
	if err == nil {
		err = sender.Signal(syscall.SIGSTOP)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { sender.Kill() }) // it outlives its server, being stopped
	for deadline := time.Now().Add(time.Minute); p.writing.Load() < p.tended.Load(); {
		if time.Now().After(deadline) {
			p.t.Fatalf("%d of %d clients wait for a write after a minute", p.writing.Load(), p.tended.Load())
		}
		time.Sleep(time.Millisecond)
	}
}

// tally is what was checked.
type tally struct {
	histories, operations, unanswered int
	longest                           time.Duration // that a check took
}

func (t *tally) add(one tally) {
	t.histories += one.histories
	t.operations += one.operations
	t.unanswered += one.unanswered
	t.longest = max(t.longest, one.longest)
}

func (t tally) String() string {
	return fmt.Sprintf("%d histories, %d operations, %d writes without an answer, longest check %v",
		t.histories, t.operations, t.unanswered, t.longest)
}

// bedSize is how many plants one bed has room for. They are few, so that those who
// tend them are in each other's way, and so that one page can show all of them.
const bedSize = 5

// bed is what stands under the ids of a bed, and the state of the model. The zero
// Plant stands for none: nobody gives a plant of a bed an empty name.
type bed [bedSize]plantstore.Plant

// plot is a number of beds and of clients that tend them, and the history of
// what they asked and were told.
type plot struct {
	t       *testing.T
	seed    uint64
	first   plantstore.ID // of the first bed
	beds    int
	clients []*client.Client
	tending int // at once

	// The cut kills the servers: what they have not done by its end they never do.
	// Otherwise a write without an answer may happen at any time.
	kills bool
	// A create whose outcome a server did not learn at the cut may happen two times,
	// if somebody deletes the plant in between. See
	// docs/decisions/0005-unknown-outcomes.md.
	twice bool

	// cutAt is the number of operations after which the cut happens. The cut holds
	// uncut, and who was not answered waits for it.
	cutAt  int
	happen func()
	uncut  sync.RWMutex

	begin time.Time

	// How many clients are at work, and in a write.
	tended, writing atomic.Int64

	mu      sync.Mutex // guards what follows
	history []porcupine.Operation
	lost    []porcupine.Operation // writes without an answer, and without a Return
	names   int                   // of clients in the history, used so far
	reached chan struct{}         // closed at the cutAt-th operation

	// When the cut began and ended, once that is so.
	began, ended int64
}

// newPlot lays out beds that no plot with another number has.
func newPlot(t *testing.T, seed uint64, number, beds, tending int, clients ...*client.Client) *plot {
	return &plot{
		t: t, seed: seed + uint64(number), first: plantstore.ID(number) << 20, beds: beds, tending: tending,
		clients: clients, begin: time.Now(), reached: make(chan struct{}),
	}
}

// cut says what is to happen after so many operations.
func (p *plot) cut(after int, happen func()) { p.cutAt, p.happen = after, happen }

// now returns the time since the beginning, for Porcupine.
func (p *plot) now() int64 { return int64(time.Since(p.begin)) }

// ask is what a client asks of a bed: a write, or to see plants.
type ask struct {
	bed   int
	first plantstore.ID // of the bed
	write *plantstore.Write
	// A list asks for limit plants after an id. A get has the limit 0, and asks for
	// the one right after it.
	after plantstore.ID
	limit int
}

// told is what it was told.
type told struct {
	refused plantstore.Code // why, or 0
	saw     []plantstore.Plant
	nothing bool // the outcome is open
}

// work has all clients take so many turns, and looks at every bed at the end.
func (p *plot) work(turns int) {
	p.t.Helper()
	var wg sync.WaitGroup
	for i := range p.tending {
		tender := &tender{
			plot: p, client: p.clients[i%len(p.clients)], name: p.name(),
			rand: rand.New(rand.NewPCG(p.seed, uint64(i))), seen: make(map[plantstore.ID]plantstore.Plant),
		}
		p.tended.Add(1)
		wg.Go(func() {
			defer p.tended.Add(-1)
			for turn := range turns {
				tender.turn(tender.choose(turn))
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-p.reached:
	case <-done:
		p.t.Errorf("the cut was to come after %d operations, there were %d", p.cutAt, len(p.history))
	}
	p.uncut.Lock()
	p.began = p.now()
	p.happen()
	p.ended = p.now()
	p.uncut.Unlock()
	<-done
	last := &tender{plot: p, client: p.clients[0], name: p.name()}
	for b := range p.beds {
		first := p.bed(b)
		if !last.turn(ask{bed: b, first: first, after: first - 1, limit: bedSize}) {
			p.t.Errorf("the last look at bed %d was not answered", b)
		}
	}
}

func (p *plot) bed(n int) plantstore.ID { return p.first + plantstore.ID(n)<<8 }

// name returns a number for a client that has none or an operation open.
func (p *plot) name() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names++
	return p.names - 1
}

// note adds an operation to the history.
func (p *plot) note(op porcupine.Operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if op.Output.(told).nothing {
		p.lost = append(p.lost, op)
		return
	}
	p.history = append(p.history, op)
	if len(p.history) == p.cutAt {
		close(p.reached)
	}
}

// tender is one who tends the beds. Its fields belong to its goroutine.
type tender struct {
	plot   *plot
	client *client.Client
	rand   *rand.Rand
	name   int
	seen   map[plantstore.ID]plantstore.Plant // what was last known to be there
}

// choose returns what to ask next.
func (w *tender) choose(turn int) ask {
	b := w.rand.IntN(w.plot.beds)
	first := w.plot.bed(b)
	a := ask{bed: b, first: first, after: first - 1 + plantstore.ID(w.rand.IntN(bedSize))}
	id := a.after + 1
	plant := plantstore.Plant{ID: id, Name: fmt.Sprintf("%d.%d", w.name, turn)}
	if w.rand.IntN(5) == 0 {
		plant.Name = "fern" // which others plant too
	}
	if w.rand.IntN(2) == 0 {
		plant.Tag = plantstore.NewTag("")
	}
	switch n := w.rand.IntN(100); {
	case n < 25:
		a.write = &plantstore.Write{Op: plantstore.Create, Plant: plant}
	case n < 40:
		a.write = &plantstore.Write{Op: plantstore.Replace, Plant: plant}
	case n < 55:
		a.write = &plantstore.Write{Op: plantstore.Replace, Plant: plant, If: w.condition(id)}
	case n < 65:
		a.write = &plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}}
	case n < 70:
		a.write = &plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}, If: w.condition(id)}
	case n < 85: // a get
	case n < 95:
		a.after, a.limit = first-1, bedSize
	default:
		a.limit = 1 + w.rand.IntN(bedSize)
	}
	return a
}

func (w *tender) condition(id plantstore.ID) *plantstore.Condition {
	tag := w.seen[id].ETag() // of no plant, where none is known
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

// turn asks once, notes the answer, and reports whether there was one.
func (w *tender) turn(a ask) bool {
	op := porcupine.Operation{ClientId: w.name, Input: a, Call: w.plot.now()}
	if a.write != nil {
		w.plot.writing.Add(1)
	}
	answer, err := w.ask(a)
	if a.write != nil {
		w.plot.writing.Add(-1)
	}
	op.Return = w.plot.now()
	switch outcomeOf(err) {
	case callAnswered:
		op.Output = answer
		w.plot.note(op)
		if w.seen != nil {
			w.remember(a, answer)
		}
		return true
	case callOpen:
		if a.write != nil {
			op.Output = told{nothing: true}
			w.plot.note(op)
			w.name = w.plot.name() // the old one never gets its answer
		}
	case callUnsent:
	default:
		w.plot.t.Errorf("%s: %v", describe(a, told{nothing: true}), err)
	}
	w.plot.uncut.RLock() // waits for the end of the cut
	defer w.plot.uncut.RUnlock()
	return false
}

func (w *tender) remember(a ask, answer told) {
	if a.write != nil && answer.refused == 0 && a.write.Op != plantstore.Delete {
		w.seen[a.write.Plant.ID] = a.write.Plant
	}
	for _, p := range answer.saw {
		w.seen[p.ID] = p
	}
}

// ask makes the call. Refusals that the model knows are no errors.
func (w *tender) ask(a ask) (answer told, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch {
	case a.write == nil && a.limit == 0:
		var p plantstore.Plant
		if p, err = w.client.Get(ctx, a.after+1); err == nil {
			answer.saw = []plantstore.Plant{p}
		}
	case a.write == nil:
		var page plantstore.Page
		page, err = w.client.Page(ctx, plantstore.Query{After: &a.after, Limit: a.limit})
		// Those of the next bed may follow.
		for _, p := range page.Plants {
			if p.ID < a.first+bedSize {
				answer.saw = append(answer.saw, p)
			}
		}
	case a.write.Op == plantstore.Create:
		err = w.client.Create(ctx, a.write.Plant)
	case a.write.Op == plantstore.Replace:
		err = w.client.Replace(ctx, a.write.Plant, a.write.If)
	default:
		err = w.client.Delete(ctx, a.write.Plant.ID, a.write.If)
	}
	for _, refused := range []plantstore.Code{plantstore.ErrIDTaken, plantstore.ErrNoPlant, plantstore.ErrPrecondition} {
		if errors.Is(err, refused) {
			return told{refused: refused}, nil
		}
	}
	return answer, err
}

// The outcomes of a call.
const (
	callAnswered = iota
	callUnsent   // nothing can have happened
	callOpen     // nobody knows
	callWrong    // an answer that should not be
)

// outcomeOf says what an error leaves known.
func outcomeOf(err error) int {
	dial, isNet := errors.AsType[*net.OpError](err)
	_, isHTTP := errors.AsType[*url.Error](err)
	switch {
	case err == nil:
		return callAnswered
	case isNet && dial.Op == "dial":
		return callUnsent
	case isNet, isHTTP, errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, plantstore.ErrUnavailable):
		return callOpen
	}
	return callWrong
}

// bedModel is the model of one bed: plantstore.Write decides what a write does, and
// a page shows one moment.
var bedModel = (&porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		beds := make(map[int][]porcupine.Operation)
		for _, op := range history {
			b := op.Input.(ask).bed
			beds[b] = append(beds[b], op)
		}
		return slices.Collect(maps.Values(beds))
	},
	Init: func() []any { return []any{bed{}} },
	Step: func(state, input, output any) []any {
		now, a, answer := state.(bed), input.(ask), output.(told)
		then, expected := now.after(a)
		switch {
		case answer.nothing:
			return []any{then, now}
		case answer.refused == expected.refused && slices.Equal(answer.saw, expected.saw):
			return []any{then}
		}
		return nil
	},
	DescribeOperation: func(input, output any) string { return describe(input.(ask), output.(told)) },
	DescribeState:     func(state any) string { return fmt.Sprint(state.(bed).from(0)) },
}).ToModel()

// after returns what the bed is after it was asked, and what the asker is told.
func (b bed) after(a ask) (bed, told) {
	if a.write == nil && a.limit > 0 {
		plants := b.from(int(a.after + 1 - a.first))
		return b, told{saw: plants[:min(len(plants), a.limit)]}
	}
	at := a.after + 1 - a.first
	var current *plantstore.Plant
	if b[at] != (plantstore.Plant{}) {
		current = &b[at]
	}
	if a.write == nil {
		if current == nil {
			return b, told{refused: plantstore.ErrNoPlant}
		}
		return b, told{saw: []plantstore.Plant{b[at]}}
	}
	result := a.write.Decide(current)
	if result.Err != nil {
		return b, told{refused: result.Err.(plantstore.Code)}
	}
	b[at] = a.write.Plant
	if result.Outcome == plantstore.Deleted {
		b[at] = plantstore.Plant{}
	}
	return b, told{}
}

// from returns the plants from that place on.
func (b bed) from(at int) []plantstore.Plant {
	return slices.DeleteFunc(slices.Clone(b[at:]), func(p plantstore.Plant) bool { return p == plantstore.Plant{} })
}

func describe(a ask, answer told) string {
	var text string
	switch {
	case a.write == nil && a.limit == 0:
		text = fmt.Sprintf("get %d: %v", a.after+1, answer.saw)
	case a.write == nil:
		text = fmt.Sprintf("list %d after %d: %v", a.limit, a.after, answer.saw)
	default:
		ops := map[plantstore.Op]string{plantstore.Create: "create", plantstore.Replace: "replace", plantstore.Delete: "delete"}
		text = fmt.Sprintf("%s %v", ops[a.write.Op], a.write.Plant)
		if a.write.If != nil {
			text += fmt.Sprintf(" if %+v", *a.write.If)
		}
	}
	if answer.nothing {
		return text + ": no answer"
	}
	if answer.refused != 0 {
		return text + ": " + answer.refused.Error()
	}
	return text + ": done"
}

// whole returns the history with the writes that were not answered.
func (p *plot) whole() []porcupine.Operation {
	whole := slices.Clone(p.history)
	for _, op := range p.lost {
		op.Return = p.now()
		if p.kills && op.Call < p.ended {
			op.Return = p.ended
		}
		whole = append(whole, op)
	}
	if !p.twice {
		return whole
	}
	for _, op := range slices.Clone(whole) {
		a := op.Input.(ask)
		if a.write != nil && a.write.Op == plantstore.Create && op.Call <= p.ended && op.Return >= p.began {
			op.Output, op.ClientId = told{nothing: true}, p.name()
			whole = append(whole, op)
		}
	}
	return whole
}

// check asks Porcupine for an order that explains the history. It keeps and draws
// one that has none.
func (p *plot) check() tally {
	p.t.Helper()
	// Each client can be in one call when the cut comes. More would not be a cut but
	// a server that does not answer.
	if len(p.lost) > p.tending {
		p.t.Errorf("%d writes were not answered, with %d clients and one cut", len(p.lost), p.tending)
	}
	whole := p.whole()
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(bedModel, whole, 2*time.Minute)
	if result != porcupine.Ok {
		p.t.Errorf("%s: no order of %d operations explains their answers; see %s", result, len(whole), p.keep(whole, info))
	}
	return tally{1, len(whole), len(p.lost), time.Since(began)}
}

// keep writes the history, as text and as a drawing, into the folder
// PLANTSTORE_ARTIFACTS or a new one, and returns the path of the drawing.
func (p *plot) keep(history []porcupine.Operation, info porcupine.LinearizationInfo) string {
	p.t.Helper()
	dir := os.Getenv("PLANTSTORE_ARTIFACTS")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "plantstore-history-"); err != nil {
			p.t.Fatal(err)
		}
	}
	var text strings.Builder
	slices.SortFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, op := range history {
		fmt.Fprintf(&text, "%12d %12d client %2d bed %d %s\n",
			op.Call, op.Return, op.ClientId, op.Input.(ask).bed, describe(op.Input.(ask), op.Output.(told)))
	}
	path := filepath.Join(dir, fmt.Sprintf("history-%x", p.seed))
	if err := os.WriteFile(path+".txt", []byte(text.String()), 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := porcupine.VisualizePath(bedModel, info, path+".html"); err != nil {
		p.t.Fatal(err)
	}
	return path + ".html"
}
