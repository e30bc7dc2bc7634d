package harness

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/testenv"
	"plantstore/internal/wire"
)

// callTimeout ends a call that hangs. It covers the retries of a client.
const callTimeout = 3 * time.Minute

// Mix says what a workload writes.
type Mix int

const (
	// Creates only, each of a new plant.
	Creates Mix = iota
	// SingleWrites are creates, replaces and deletes.
	SingleWrites
	// AllWrites are these, and imports that replace or delete many plants. Release 0.2.0 has none.
	AllWrites
)

// Workload is a number of concurrent writers. Each writes plants of its own and
// records the responses, so the content of the store is known.
type Workload struct {
	Seed    uint64
	Writers []*Writer

	t      testing.TB
	acked  atomic.Int64
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Writer is one of a workload. Its fields belong to its goroutine until the workload has
// stopped.
type Writer struct {
	Client  *client.Client
	First   plantstore.ID
	Records []Record // of the plants First, First+1, …
	Errs    []error  // of calls that failed

	workload *Workload
	mix      Mix
	rand     *rand.Rand
	longest  time.Duration
	acked    atomic.Int64
}

// Record is what a writer knows about a plant.
type Record struct {
	// Acked is the plant after the last acknowledged write, nil if it does not exist.
	Acked *plantstore.Plant
	// Unacked, if set, was sent and not acknowledged: it may have happened or not. The
	// plant is not written again.
	Unacked *plantstore.Write
}

// StartWorkload starts n writers, which write until Stop. Each uses one of the clients.
func StartWorkload(t testing.TB, n int, mix Mix, seed uint64, clients ...*client.Client) *Workload {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Workload{t: t, Seed: seed, cancel: cancel}
	for i := range n {
		writer := w.AddWriter(clients[i%len(clients)])
		writer.mix, writer.rand = mix, rand.New(rand.NewPCG(seed, uint64(i)))
		w.wg.Go(func() { writer.run(ctx) })
	}
	t.Cleanup(w.Stop)
	return w
}

// AddWriter adds a writer that the caller drives. The workload must not have stopped.
func (w *Workload) AddWriter(c *client.Client) *Writer {
	writer := &Writer{workload: w, Client: c, First: plantstore.ID(len(w.Writers)) << 32}
	w.Writers = append(w.Writers, writer)
	return writer
}

// Ack counts n acknowledged writes.
func (w *Writer) Ack(n int) {
	w.acked.Add(int64(n))
	w.workload.acked.Add(int64(n))
}

// Acked returns how many writes were acknowledged so far. It may be called at any time.
func (w *Writer) Acked() int64 { return w.acked.Load() }

// Acked returns how many writes were acknowledged so far. It may be called at any time.
func (w *Workload) Acked() int64 { return w.acked.Load() }

// Stop ends the writers after the calls that they are in.
func (w *Workload) Stop() {
	w.cancel()
	w.wg.Wait()
}

// AwaitAcked waits until n more writes are acknowledged.
func (w *Workload) AwaitAcked(n int64) {
	w.t.Helper()
	want := w.acked.Load() + n
	testenv.Eventually(w.t, func() error {
		if missing := want - w.acked.Load(); missing > 0 {
			return fmt.Errorf("of %d writes, %d are not acknowledged", n, missing)
		}
		return nil
	})
}

func (w *Writer) run(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		// Every write is different, so that an old one cannot pass for a new one.
		writes := w.choose(fmt.Sprintf("%x written %d", w.workload.Seed, n))
		began := time.Now()
		err := w.write(writes)
		w.longest = max(w.longest, time.Since(began))
		if err != nil {
			w.Errs = append(w.Errs, fmt.Errorf("write %+v: %w", writes, err))
		}
		for i := range writes {
			record := &w.Records[writes[i].Plant.ID-w.First]
			switch {
			case err != nil:
				record.Unacked = &writes[i]
			case writes[i].Op == plantstore.Delete:
				record.Acked = nil
			default:
				record.Acked = &writes[i].Plant
			}
		}
		if err == nil {
			w.Ack(len(writes))
		}
	}
}

// choose returns the next write, or the writes of the next import, which are all alike. Their plants
// have records.
func (w *Writer) choose(name string) []plantstore.Write {
	plant := plantstore.Plant{Name: name, Tag: plantstore.NewTag(fmt.Sprint("tag ", w.rand.IntN(20)))}
	if w.mix != Creates && len(w.Records) > 0 && w.rand.IntN(2) == 0 {
		at := w.rand.IntN(len(w.Records))
		r := w.Records[at]
		op := plantstore.Replace
		if r.Acked != nil && w.rand.IntN(2) == 0 {
			op = plantstore.Delete
		}
		if r.Unacked == nil {
			if w.mix == AllWrites && w.rand.IntN(16) == 0 {
				return w.many(op, at, plant)
			}
			return []plantstore.Write{w.change(op, at, plant)}
		}
	}
	w.Records = append(w.Records, Record{})
	return []plantstore.Write{w.change(plantstore.Create, len(w.Records)-1, plant)}
}

// change returns a write of the plant with a record. To delete it, its id suffices.
func (w *Writer) change(op plantstore.Op, at int, plant plantstore.Plant) plantstore.Write {
	if op == plantstore.Delete {
		plant = plantstore.Plant{}
	}
	plant.ID = w.First + plantstore.ID(at)
	return plantstore.Write{Op: op, Plant: plant}
}

// many returns writes for up to 40 plants from one on. Each changes something: a plant that does not
// exist is not deleted.
func (w *Writer) many(op plantstore.Op, from int, plant plantstore.Plant) (writes []plantstore.Write) {
	for op == plantstore.Replace && len(w.Records) < from+20 {
		w.Records = append(w.Records, Record{})
	}
	for at := from; at < min(from+40, len(w.Records)); at++ {
		if r := w.Records[at]; r.Unacked == nil && (op == plantstore.Replace || r.Acked != nil) {
			writes = append(writes, w.change(op, at, plant))
		}
	}
	return writes
}

// write performs the writes. The end of the workload does not cancel it, because its
// outcome would be unknown.
func (w *Writer) write(writes []plantstore.Write) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if len(writes) != 1 {
		return w.importAll(ctx, writes)
	}
	write := writes[0]
	switch write.Op {
	case plantstore.Create:
		return w.Client.Create(ctx, write.Plant)
	case plantstore.Replace:
		return w.Client.Replace(ctx, write.Plant, nil)
	}
	return w.Client.Delete(ctx, write.Plant.ID, nil)
}

// importAll sends the writes as one import. It can be sent again.
func (w *Writer) importAll(ctx context.Context, writes []plantstore.Write) error {
	var lines []byte
	mode := plantstore.ImportReplace
	for _, write := range writes {
		if write.Op == plantstore.Delete {
			mode = plantstore.ImportDelete
		}
		lines, _ = wire.AppendImportLine(lines, write.Plant, write.Op == plantstore.Delete, "")
		lines = append(lines, '\n')
	}
	report, err := w.Client.ImportFile(ctx, bytes.NewReader(lines), client.ImportOptions{Mode: mode})
	if err == nil && report.Failed > 0 {
		err = fmt.Errorf("%d of %d lines failed, the first with %w", report.Failed, len(writes), report.Errors[0].Err)
	}
	return err
}

// Errors stops the workload and returns the errors of all calls.
func (w *Workload) Errors() []error {
	w.Stop()
	var all []error
	for _, writer := range w.Writers {
		all = append(all, writer.Errs...)
	}
	return all
}

// Finish stops the workload, none of whose calls may have failed, and verifies the
// store. It returns a summary.
func (w *Workload) Finish(from *client.Client) string {
	w.t.Helper()
	for _, err := range w.Errors() {
		w.t.Error(err)
	}
	return w.Verify(from)
}

// verifyTags compares how many plants the server counts for each tag with the plants.
func (w *Workload) verifyTags(from *client.Client, stored map[plantstore.ID]plantstore.Plant) {
	w.t.Helper()
	want, got := make(map[string]int), make(map[string]int)
	for _, p := range stored {
		if tag, ok := p.Tag.Text(); ok {
			want[tag] = min(want[tag]+1, plantstore.MaxTagPlants+1)
		}
	}
	for tag, err := range from.Tags(context.Background(), plantstore.TagQuery{}) {
		if err != nil {
			w.t.Fatalf("list tags: %v", err)
		}
		got[tag.Tag] = tag.Plants
		if tag.More {
			got[tag.Tag]++
		}
	}
	if !maps.Equal(got, want) {
		w.t.Errorf("the tags are %v, but the plants have %v", got, want)
	}
}

// Verify stops the workload and compares what the server has with what was
// acknowledged. It returns a summary.
func (w *Workload) Verify(from *client.Client) string {
	w.t.Helper()
	w.Stop()
	stored := make(map[plantstore.ID]plantstore.Plant)
	last := plantstore.ID(-1 << 63)
	for p, err := range from.Export(context.Background(), plantstore.Query{}) {
		if err != nil {
			w.t.Fatalf("export: %v", err)
		}
		if p.ID <= last {
			w.t.Errorf("plant %d comes after plant %d", p.ID, last)
		}
		stored[p.ID], last = p.Plant, p.ID
	}
	w.verifyTags(from, stored)
	known, wrong := 0, 0
	var longest time.Duration
	complain := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			w.t.Errorf(format, args...)
		}
	}
	for _, writer := range w.Writers {
		longest = max(longest, writer.longest)
		for i, r := range writer.Records {
			id := writer.First + plantstore.ID(i)
			got, found := stored[id]
			delete(stored, id)
			known++
			if !r.Allows(got, found) {
				complain("plant %d: the store has %+v (%t), acknowledged %+v, unacknowledged %+v", id, got, found, r.Acked, r.Unacked)
			}
		}
	}
	for id := range stored {
		complain("plant %d was never written", id)
	}
	if wrong > 0 {
		w.t.Errorf("%d of %d plants are wrong", wrong, known)
	}
	return fmt.Sprintf("%d writes acknowledged, %d plants verified, longest call %v", w.Acked(), known, longest)
}

// Allows reports whether the record agrees with what the store has: a plant, or none if
// it was not found.
func (r *Record) Allows(got plantstore.Plant, found bool) bool {
	if found == (r.Acked != nil) && (!found || got == *r.Acked) {
		return true
	}
	if r.Unacked == nil {
		return false
	}
	if r.Unacked.Op == plantstore.Delete {
		return !found
	}
	return found && got == r.Unacked.Plant
}

// RestartUnderLoad stops and starts the server again and again while clients write.
// check is called each time it has stopped. Every write must be acknowledged, and kept.
func RestartUnderLoad(t *testing.T, s *Server, check func()) {
	t.Helper()
	w := StartWorkload(t, 32, AllWrites, rand.Uint64(), s.Client(client.Options{}))
	var longest time.Duration
	for range Times(3, 100) {
		w.AwaitAcked(500)
		began := time.Now()
		s.Stop() // fails unless the exit code is 0
		longest = max(longest, time.Since(began))
		check()
		s.Run()
	}
	w.AwaitAcked(64)
	Report(t, "longest shutdown %v, %s", longest, w.Finish(s.Client(client.Options{})))
}
