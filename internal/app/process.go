package app

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"plantstore"
	"plantstore/internal/sqlite"
)

// tuneRuntime fits Go's runtime to a server, unless the environment says otherwise.
// A commit blocks a thread in fsync, and the scheduler takes its processor away only
// after a while: with one more, the others stay busy. With SQLite, the heap is small
// compared to SQLite's memory, so collecting it less often is cheap.
func tuneRuntime(store plantstore.Store) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	}
	if _, isFile := store.(*sqlite.Store); isFile && os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
}

// What Go's runtime may use before it collects garbage more often than GOGC says: at least
// minMemory, or half as much again as what is in use, but no more than maxGarbage in addition to
// it; and connectionMemory for each connection.
const (
	minMemory        = 72 << 20
	maxGarbage       = 48 << 20
	connectionMemory = 16 << 10
)

// A server that uses more than idleMemory, and had no reason to collect garbage for idleTime,
// does so and returns what is free to the operating system. By itself, Go waits for minutes.
const (
	idleMemory = 32 << 20
	idleTime   = 10 * time.Second
)

// limitMemory keeps garbage from filling the memory when requests are large, until ctx
// ends. Garbage always has room: a limit below what is in use, which imports, bodies, pages
// and queues together may reach, would have the collector run all the time.
// docs/operations/capacity.md sums up what they may hold. GOMEMLIMIT replaces the limit.
func limitMemory(ctx context.Context, connections func() int) error {
	figures := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/stacks:bytes"},
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/gc/cycles/total:gc-cycles"},
	}
	limit := os.Getenv("GOMEMLIMIT") == ""
	collections, lastCollection := uint64(0), time.Now()
	return every(ctx, time.Second, func() error {
		metrics.Read(figures)
		value := func(i int) int64 { return int64(figures[i].Value.Uint64()) }
		live, held := value(0)+value(1), value(2)-value(3)
		if limit {
			debug.SetMemoryLimit(max(minMemory, live+min(live/2, maxGarbage)) + int64(connections())*connectionMemory)
		}
		if now := figures[4].Value.Uint64(); now != collections {
			collections, lastCollection = now, time.Now()
		} else if held > idleMemory && time.Since(lastCollection) >= idleTime {
			debug.FreeOSMemory()
		}
		return nil
	})
}

// notify tells systemd about the state of the server, if systemd started the process.
func (a *App) notify(state string) {
	if !a.opts.OwnsProcess {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		a.opts.Log.Warn("systemd does not know the state of the server", "state", state, "err", err)
	}
}

// feedWatchdog tells systemd that the process is alive, if the unit has a WatchdogSec.
func feedWatchdog(ctx context.Context) error {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return nil
	}
	return every(ctx, interval/3, func() error {
		if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
			return fmt.Errorf("notify systemd: %w", err)
		}
		return nil
	})
}
