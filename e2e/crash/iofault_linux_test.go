package crash

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

// Every operation on the disk fails once, each in a small run of its own. The short form
// takes a sample.
func TestAcknowledgedWritesSurviveIOFaults(t *testing.T) { harness.EachBuild(t, testIOFaults) }

func testIOFaults(t *testing.T, program string) {
	clean := runWithFault(t, program, nil, false)
	for range 2 { // a run on a busy machine has more, smaller commits
		for op, n := range runWithFault(t, program, nil, false) {
			clean[op] = min(clean[op], n)
		}
	}
	t.Logf("runs without faults have at least: %v", clean)
	var faults []fault
	for _, op := range []operation{opWrite, opSync, opSyncDir, opTruncate, opCreate, opRename, opUnlink} {
		if clean[op] == 0 {
			t.Errorf("the run had no %s", op)
		}
		for n := range clean[op] {
			for _, status := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
				faults = append(faults, fault{op, n + 1, fuse.Status(status), false}, fault{op, n + 1, fuse.Status(status), true})
			}
		}
	}
	for n := range clean[opRead] {
		faults = append(faults, fault{opRead, n + 1, fuse.EIO, false})
	}
	if !harness.Torture() {
		faults = sample(faults, 2)
	}
	runs, met := 0, 0
	for _, f := range faults {
		for _, cut := range []bool{false, true} {
			name := fmt.Sprintf("%s %d %s persists=%v cut=%v", f.op, f.n, unix.ErrnoName(syscall.Errno(f.status)), f.persists, cut)
			t.Run(name, func(t *testing.T) {
				runs++
				if runWithFault(t, program, &f, cut) != nil {
					met++
				}
			})
		}
	}
	t.Logf("%d runs, %d met their fault", runs, met)
	if met < runs/2 {
		t.Error("too few runs met their fault: they do not repeat the first one")
	}
}

// sample returns at most n faults of each operation.
func sample(faults []fault, n int) []fault {
	rand.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	var chosen []fault
	count := make(map[operation]int)
	for _, f := range faults {
		if count[f.op]++; count[f.op] <= n {
			chosen = append(chosen, f)
		}
	}
	return chosen
}

// runWithFault starts a server on an empty disk, writes, imports, makes a backup and
// stops, all with the fault. It then starts the server again without the fault, after a
// power cut if cut is set, and verifies what was acknowledged. Every second power cut, if
// the fault has happened, finds the server running. It returns how often each operation
// happened, or nil if the fault did not.
func runWithFault(t *testing.T, program string, f *fault, cut bool) map[operation]int {
	d := newDrive(t)
	d.disk.fail(f)
	s := harness.New(t, d.path("plants.db"))
	s.Program = program
	seed := rand.Uint64()
	run := &faultyRun{Server: s, t: t, disk: d.disk, backup: d.path("copy.db"), mayKill: cut && seed%2 == 0}
	if err := s.TryRun(); err != nil {
		run.checkExit(err)
	} else {
		run.work(seed)
	}
	counts := d.disk.counts // no process uses the disk now
	if f != nil && d.disk.faulted() == "" {
		counts = nil
		if run.err != nil {
			t.Errorf("an error without a fault: %v", run.err)
		}
	}
	files := d.disk.all()
	if cut {
		files = d.disk.survivors(rand.New(rand.NewPCG(seed, 0)))
	}
	d.insert(files)
	s.Run()
	if run.workload != nil {
		run.workload.Verify(s.Client(client.Options{}))
	}
	s.Stop()
	s.Command("check")
	if _, found := files["copy.db"]; found {
		s.DB = run.backup
		s.Command("check")
	} else if run.backedUp {
		t.Error("the backup is missing")
	}
	return counts
}

// faultyRun is the part of a run that has the fault.
type faultyRun struct {
	*harness.Server
	t        *testing.T
	disk     *disk
	workload *harness.Workload // nil if the server did not serve
	backup   string            // the file
	backedUp bool              // the backup was acknowledged
	mayKill  bool              // the server need not be stopped gracefully
	err      error             // the first
}

// work keeps the server busy and stops it. A server whose fsync failed must stop by
// itself.
func (r *faultyRun) work(seed uint64) {
	r.t.Helper()
	early := r.disk.faulted() != "" // nothing has been acknowledged yet
	once := client.Options{Retries: -1}
	writing, importing := r.Client(once), r.Client(once)
	r.workload = harness.StartWorkload(r.t, 4, harness.AllWrites, seed, writing)
	imports := newImporter(r.workload, importing)
	imports.start()
	enough := r.workload.Acked() + 24
	imported := make(chan struct{})
	go func() { imports.wait(); close(imported) }()
	hasEnded := r.endsBefore("the import and 24 writes", func() bool {
		select {
		case <-imported:
			return r.workload.Acked() >= enough || r.readFailed()
		default:
			return false
		}
	})
	r.workload.Stop()
	<-imported
	for _, err := range r.workload.Errors() {
		r.keepFirst(err)
	}
	if !hasEnded {
		_, err := r.TryCommand("backup", r.backup)
		r.backedUp = err == nil
		r.keepFirst(err)
	}
	if f := r.disk.fault; !hasEnded && !early && f != nil && f.op == opSync && strings.HasPrefix(r.disk.faulted(), "plants.db") {
		hasEnded = r.endsBefore("the server to stop itself after a failed fsync", func() bool { return false })
	}
	if hasEnded {
		return
	}
	if r.mayKill && r.disk.faulted() != "" {
		r.Kill()
		return
	}
	// A connection that was never used would delay the shutdown.
	writing.CloseIdleConnections()
	importing.CloseIdleConnections()
	r.keepFirst(r.Signal(syscall.SIGTERM))
	r.keepFirst(r.Wait())
}

// readFailed reports whether a read has failed. The server may refuse writes from then
// on: SQLite does not tell such a failure from damage.
func (r *faultyRun) readFailed() bool {
	f := r.disk.fault
	return f != nil && f.op == opRead && r.disk.faulted() != ""
}

// endsBefore waits until the condition holds, or the server ends by itself, which it
// reports.
func (r *faultyRun) endsBefore(what string, holds func() bool) bool {
	r.t.Helper()
	timeout := time.After(testenv.Timeout)
	for !holds() {
		select {
		case <-r.Exited():
			r.checkExit(fmt.Errorf("the server ended: %w\n%s", r.Wait(), r.Log()))
			return true
		case <-time.After(time.Millisecond):
		case <-timeout:
			r.t.Fatalf("waited %v for %s; the server logged:\n%s", testenv.Timeout, what, r.Log())
		}
	}
	return false
}

// checkExit checks how the server ended by itself.
func (r *faultyRun) checkExit(err error) {
	r.t.Helper()
	r.keepFirst(err)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 {
		r.t.Errorf("the server ended without exit code 1: %v", err)
	}
	f := r.disk.fault
	if r.workload != nil && (f == nil || f.op != opSync || !strings.Contains(err.Error(), "can no longer be trusted")) {
		r.t.Errorf("the server must not end after the fault %+v: %v", f, err)
	}
}

func (r *faultyRun) keepFirst(err error) {
	if r.err == nil {
		r.err = err
	}
}

// An fsync of the log fails, so that the kernel has what the disk has lost, and no later
// fsync would write it. What is acknowledged after that, by a server or by a command, must
// survive a power cut, even if an export has the store open, so that nobody copies the log
// into the file and removes it.
func TestWritesAfterAFailedFsyncSurvive(t *testing.T) {
	for name, tt := range map[string]struct {
		write func(*testing.T, *harness.Server)
		check func(*testing.T, *harness.Server)
	}{
		"a plant": {
			write: func(t *testing.T, s *harness.Server) {
				s.Run()
				wantCreated(t, s, `{"id":3,"name":"elm"}`)
				s.Kill()
			},
			check: func(t *testing.T, s *harness.Server) {
				s.Run()
				for _, id := range []int{1, 3} {
					if status, body := s.Call(harness.Token, "GET", fmt.Sprint("/plants/", id), ""); status != http.StatusOK {
						t.Errorf("plant %d, which was acknowledged: %d %.200s", id, status, body)
					}
				}
				s.Stop()
			},
		},
		"a token": {
			write: func(t *testing.T, s *harness.Server) {
				s.Command("token", "list") // it reads a copy: the export keeps the index
				s.Command("token", "create", "--name", "acknowledged")
			},
			check: func(t *testing.T, s *harness.Server) {
				if list := s.Command("token", "list"); !strings.Contains(list, "acknowledged") {
					t.Errorf("the token is lost:\n%s", list)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDrive(t)
			s := harness.StartOn(t, d.path("plants.db"))
			wantCreated(t, s, fmt.Sprintf(`{"id":1,"name":%q}`, strings.Repeat("fern", 100_000)))
			stopExport := holdOpen(t, s)
			failFsync(t, s, d, `{"id":2,"name":"oak"}`)
			tt.write(t, s)
			d.disk.cut(0, false)
			stopExport()
			d.insert(d.disk.survivors(rand.New(rand.NewPCG(rand.Uint64(), 0))))
			tt.check(t, s)
			s.Command("check")
		})
	}
}

// The power is cut while a server that starts after a failed fsync copies the log into the
// file.
func TestPowerCutAfterAFailedFsync(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range harness.Times(10, 60) {
		cut := i
		if !harness.Torture() {
			cut = random.IntN(60)
		}
		d := newDrive(t)
		s := harness.StartOn(t, d.path("plants.db"))
		wantCreated(t, s, fmt.Sprintf(`{"id":1,"name":%q}`, strings.Repeat("fern", 40_000)))
		s.Stop()
		s.Run()
		failFsync(t, s, d, fmt.Sprintf(`{"id":2,"name":%q}`, strings.Repeat("oak", 20_000)))
		d.disk.cut(cut, false)
		if err := s.TryRun(); err == nil {
			s.Kill()
		}
		crashed := d.disk
		for range 3 {
			d.insert(crashed.survivors(random))
			s.Command("check")
		}
		s.Run()
		if status, body := s.Call(harness.Token, "GET", "/plants/1", ""); status != http.StatusOK {
			t.Errorf("after a cut at operation %d: %d %.200s", cut, status, body)
		}
		s.Stop()
		d.eject()
	}
}

func wantCreated(t *testing.T, s *harness.Server, plant string) {
	t.Helper()
	if status, body := s.Call(harness.Token, "POST", "/plants", plant); status != http.StatusOK {
		t.Fatalf("POST /plants: %d %.200s", status, body)
	}
}

// failFsync makes the fsync of a create fail, and waits until the server has ended.
func failFsync(t *testing.T, s *harness.Server, d *drive, plant string) {
	t.Helper()
	d.disk.fail(&fault{opSync, 1, fuse.EIO, false})
	if status, body := s.Call(harness.Token, "POST", "/plants", plant); status == http.StatusOK {
		t.Fatalf("POST /plants during the fault: %d %.200s", status, body)
	}
	<-s.Exited()
	_ = s.Wait() // with exit code 1
	if hit := d.disk.faulted(); hit != "plants.db-wal" {
		t.Fatalf("the fault was in %q, not in the log", hit)
	}
}

// holdOpen starts an export whose output nobody reads to its end, so that it keeps the store
// open until stop is called.
func holdOpen(t *testing.T, s *harness.Server) (stop func()) {
	t.Helper()
	cmd := exec.Command(harness.Binary(), "export", "--db", s.DB, "-")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(stop)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the export has ended: %v", err)
	}
	return stop
}

// The disk fills up under load and then has room again. Reads still work, even if the server is
// killed and started meanwhile.
func TestFullDiskRefusesWritesUntilThereIsRoom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	d := newDrive(t)
	s := harness.StartOn(t, d.path("plants.db"))
	w := harness.StartWorkload(t, 16, harness.AllWrites, seed, s.Client(client.Options{}))
	w.AwaitAcked(100)
	c := &rawCreator{Writer: w.AddWriter(nil), t: t, s: s}
	c.createUntil(http.StatusOK)
	for i := range harness.Times(2, 20) {
		d.disk.limit(200_000)
		c.createUntil(http.StatusServiceUnavailable)
		if i%2 == 1 {
			s.Kill()
			s.Run()
			c.createUntil(http.StatusServiceUnavailable) // the start may have made room
		}
		for range 20 {
			c.create()
			for _, path := range []string{"/plants?limit=10", fmt.Sprint("/plants/", c.First), "/healthz"} {
				if status, body := s.Call(harness.Token, "GET", path, ""); status != http.StatusOK {
					t.Errorf("GET %s with a full disk: %d %s", path, status, body)
				}
			}
			s.AwaitReady(http.StatusOK)
		}
		d.disk.unlimit()
		c.createUntil(http.StatusOK)
		w.AwaitAcked(200)
	}
	harness.Report(t, "%s, %d times 503", w.Finish(s.Client(client.Options{})), c.refused)
	s.Stop()
	s.Command("check")
}

// SQLite cannot read a killed server's log without an index. A server that has no room for one
// says so, and a command reads a copy.
func TestServerWithoutRoomForTheIndexSaysSo(t *testing.T) {
	files := make(map[string][]byte)
	killed := killedStore(t)
	for _, suffix := range []string{"", "-wal"} {
		text, err := os.ReadFile(killed + suffix)
		if err != nil {
			t.Fatal(err)
		}
		files["plants.db"+suffix] = text
	}
	d := newDrive(t)
	d.insert(files)
	d.disk.limit(4096)
	s := harness.New(t, d.path("plants.db"))
	for range 2 {
		if err := s.TryRun(); err == nil || !strings.Contains(err.Error(), "no room for the index") {
			t.Errorf("serve: %v", err)
		}
		if out := s.Command("export", "-"); !strings.Contains(out, killedPlant.Name) {
			t.Errorf("the export has %q", out)
		}
	}
	d.disk.unlimit()
	s.Run()
	wantFound(t, s, killedPlant.ID)
	s.Stop()
	s.Command("check")
}

// rawCreator is a writer of a workload that checks responses as they are sent.
type rawCreator struct {
	*harness.Writer
	t       *testing.T
	s       *harness.Server
	refused int
}

// createUntil creates plants until the server returns the status.
func (c *rawCreator) createUntil(want int) {
	c.t.Helper()
	testenv.Eventually(c.t, func() error {
		if status := c.create(); status != want {
			return fmt.Errorf("creates return %d, want %d", status, want)
		}
		return nil
	})
}

// create creates a plant with a long name and returns the status. A refusal must say why
// and when to retry.
func (c *rawCreator) create() int {
	c.t.Helper()
	plant := plantstore.Plant{ID: c.First + plantstore.ID(len(c.Records)), Name: strings.Repeat("long ", 1000)}
	body := fmt.Sprintf(`{"id":%d,"name":%q}`, plant.ID, plant.Name)
	res, err := harness.Send(http.DefaultClient, harness.Token, "POST", c.s.API+"/plants", body)
	if err != nil {
		c.t.Fatal(err)
	}
	switch res.Status {
	case http.StatusOK:
		c.Records = append(c.Records, harness.Record{Acked: &plant})
	case http.StatusServiceUnavailable:
		c.refused++
		c.Records = append(c.Records, harness.Record{Unacked: &plantstore.Write{Op: plantstore.Create, Plant: plant}})
		var problem struct {
			Error   int
			Message string
		}
		if err := json.Unmarshal([]byte(res.Body), &problem); err != nil || problem.Error != int(plantstore.ErrUnavailable) || problem.Message == "" {
			c.t.Errorf("503 without a clear Error: %s", res.Body)
		}
		if res.Header.Get("Retry-After") == "" {
			c.t.Errorf("503 without Retry-After: %v", res.Header)
		}
	default:
		c.t.Fatalf("create: %d %s", res.Status, res.Body)
	}
	return res.Status
}
