package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Lines are what slog would write.
func TestLinesOfTheAccessLog(t *testing.T) {
	at := time.Date(2026, 11, 16, 2, 7, 0, 612619812, time.UTC)
	for _, a := range []accessLine{
		{at: at, request: "2599b83715-4", token: "bb5b4d538c76", operation: "createPlant", status: 200, bytes: 37, took: 758380 * time.Nanosecond, from: "127.0.0.1:44454"},
		{at: at.Truncate(time.Second), request: "x", operation: "none", status: 404, from: "@"},
		{at: at.In(time.FixedZone("", 5400)), token: "https://login.example.com al=ice \"\\", status: 500, bytes: 1 << 40, took: 90 * time.Minute, from: "[2001:db8::1]:1"},
		{at: at, token: "line\nbreak\x00 \x7f", took: time.Nanosecond, from: ""},
	} {
		for _, text := range []bool{false, true} {
			var want, got bytes.Buffer
			handler := slog.Handler(slog.NewJSONHandler(&want, nil))
			if text {
				handler = slog.NewTextHandler(&want, nil)
			}
			record := slog.NewRecord(a.at, slog.LevelInfo, "access", 0)
			record.AddAttrs(slog.String("request", a.request), slog.String("token", a.token), slog.String("operation", a.operation),
				slog.Int("status", a.status), slog.Int64("bytes", a.bytes), slog.String("took", a.took.String()), slog.String("from", a.from))
			if err := handler.Handle(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			l := NewAccessLog(&got, text)
			l.log(a)
			l.flush(nil)
			if got.String() != want.String() && !(!text && sameJSON(t, got.Bytes(), want.Bytes())) {
				t.Errorf("got %swant %s", got.String(), want.String())
			}
		}
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var inA, inB map[string]any
	if err := errors.Join(json.Unmarshal(a, &inA), json.Unmarshal(b, &inB)); err != nil {
		t.Errorf("%s%s%v", a, b, err)
	}
	return reflect.DeepEqual(inA, inB)
}

func TestLineOfTheAccessLogAllocatesNothing(t *testing.T) {
	l := NewAccessLog(io.Discard, false)
	line := accessLine{
		at: time.Now(), request: "2599b83715-4", token: "bb5b4d538c76", operation: "createPlant", status: 200,
		bytes: 37, took: 758380, from: "127.0.0.1:44454",
	}
	l.lines = make([]byte, 0, 2<<20)
	if n := testing.AllocsPerRun(1000, func() { l.log(line) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// slowSink is written to once for each value that is received from it.
type slowSink struct {
	writes chan int // the size of each
	mu     sync.Mutex
	bytes.Buffer
}

func (s *slowSink) Write(b []byte) (int, error) {
	s.writes <- len(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Buffer.Write(b)
}

func TestAccessLogIsWrittenInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slowSink{writes: make(chan int, 100)}
		l := NewAccessLog(sink, true)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		add := func(n int) {
			for range n {
				l.add([]byte("12345678\n"))
			}
		}
		start := time.Now()
		add(1)
		time.Sleep(10 * time.Millisecond)
		add(2)
		if n := <-sink.writes; n != 27 || time.Since(start) != accessFlushInterval {
			t.Errorf("%d bytes were written after %v", n, time.Since(start))
		}
		start = time.Now()
		add(accessFlushSize / 9)
		synctest.Wait()
		add(2)
		if n := <-sink.writes; n < accessFlushSize || time.Since(start) != 0 {
			t.Errorf("%d bytes were written after %v", n, time.Since(start))
		}
		add(3)
		stop()
		running.Wait()
		if n := len(sink.String()); n != 9*(1+2+accessFlushSize/9+2+3) || l.dropped.Load() != 0 {
			t.Errorf("%d bytes were written, %d lines dropped", n, l.dropped.Load())
		}
		start = time.Now()
		l.Run(ctx) // it has ended already
		if time.Since(start) != 0 {
			t.Error("it waits")
		}
	})
}

// A sink that blocks, or fails, costs lines and neither time nor memory.
func TestAccessLogDropsWhatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := &slowSink{writes: make(chan int)}
		l := NewAccessLog(sink, true)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { l.Run(ctx) })
		const n = 300_000
		for i := range n {
			l.add(fmt.Appendf(nil, "%08d\n", i))
			if i == accessFlushSize {
				synctest.Wait() // it is being written
			}
		}
		if got := cap(l.lines); got > 2*maxAccessLines {
			t.Errorf("%d bytes are waiting", got)
		}
		stop()
		go func() {
			for range sink.writes {
			}
		}()
		running.Wait()
		close(sink.writes)
		lines := strings.SplitAfter(sink.String(), "\n")
		kept := len(lines) - 1
		if dropped := l.dropped.Load(); dropped == 0 || int64(kept)+dropped != n {
			t.Errorf("%d lines were written and %d dropped, of %d", kept, dropped, n)
		}
		if !slices.IsSorted(lines[:kept]) || slices.ContainsFunc(lines[:kept], func(line string) bool { return len(line) != 9 }) {
			t.Error("the lines are not whole and in order")
		}
	})
	l := NewAccessLog(brokenSink{}, true)
	for range 3 {
		l.add([]byte("12345678\n"))
	}
	l.flush(nil)
	if l.dropped.Load() != 2 {
		t.Errorf("%d lines were dropped, want 2", l.dropped.Load())
	}
}

// brokenSink is a disk that is full after ten bytes.
type brokenSink struct{}

func (brokenSink) Write([]byte) (int, error) { return 10, errors.New("no space left on device") }

func BenchmarkAccessLog(b *testing.B) {
	l := NewAccessLog(io.Discard, false)
	line := accessLine{
		at: time.Now(), request: "2599b83715-4", token: "bb5b4d538c76", operation: "createPlant", status: 200,
		bytes: 37, took: 758380, from: "127.0.0.1:44454",
	}
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx) })
	b.ReportAllocs()
	for b.Loop() {
		l.log(line)
	}
	stop()
	running.Wait()
	b.ReportMetric(float64(l.dropped.Load())/float64(b.N), "dropped/op")
}
