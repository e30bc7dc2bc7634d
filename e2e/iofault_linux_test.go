package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"plantstore"
	"plantstore/client"
)

// TestIOFaults lets one operation on the disk after the other fail in a small run.
// What the clients were told must be so after a restart.
func TestIOFaults(t *testing.T) { bothBuilds(t, testIOFaults) }

func testIOFaults(t *testing.T, program string) {
	clean := runWithFault(t, program, nil, false)
	t.Logf("a run without faults: %v", clean)
	var faults []fault
	for _, op := range []operation{opWrite, opSync, opSyncDir, opTruncate, opCreate, opRename, opUnlink} {
		if clean[op] == 0 {
			t.Errorf("there was no %s in the whole run", op)
		}
		for n := range clean[op] {
			for _, status := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
				faults = append(faults, fault{op, n + 1, fuse.Status(status), false}, fault{op, n + 1, fuse.Status(status), true})
			}
		}
	}
	if !torture() {
		faults = sample(faults, 4)
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
		t.Error("too few met their fault: no run is like the first one")
	}
}

// sample returns at most n faults of each kind.
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
// stops, all with the fault, then starts it again without and looks for what was
// acknowledged. In between the power may fail. It returns how often each operation
// was done, or nil if the fault was not met.
func runWithFault(t *testing.T, program string, f *fault, cut bool) map[operation]int {
	d := newDrive(t)
	d.disk.fail(f)
	s := &server{t: t, program: program, db: d.path("plants.db"), addr: "127.0.0.1:0"}
	t.Cleanup(s.stop)
	seed := rand.Uint64()
	run := &faultyRun{server: s, disk: d.disk, backup: d.path("copy.db")}
	if err := s.try(); err != nil {
		run.ended(err)
	} else {
		run.work(seed)
	}
	counts := d.disk.counts // nobody uses the disk now
	if f != nil && d.disk.struck() == "" {
		counts = nil
	}
	if counts == nil && f != nil && run.complaint != nil {
		t.Errorf("no fault, and yet: %v", run.complaint)
	}
	files := d.disk.all()
	if cut {
		files = d.disk.survivors(rand.New(rand.NewPCG(seed, 0)))
	}
	d.insert(files)
	s.run()
	if run.crowd != nil {
		run.crowd.verify(s.client(client.Options{}))
	}
	s.stop()
	s.command("check")
	if _, there := files["copy.db"]; there {
		s.db = run.backup
		s.command("check")
	} else if run.backedUp {
		t.Error("the backup is gone")
	}
	return counts
}

// faultyRun is the part of a run that meets the fault.
type faultyRun struct {
	*server
	disk      *disk
	crowd     *crowd // nil if the server did not serve
	backup    string // the file
	backedUp  bool   // the backup was acknowledged
	complaint error  // the first
}

// work keeps the server busy and stops it. A server whose fsync failed must stop by
// itself.
func (r *faultyRun) work(seed uint64) {
	r.t.Helper()
	early := r.disk.struck() != "" // nothing was promised yet
	once := client.Options{Retries: -1}
	writing, importing := r.client(once), r.client(once)
	r.crowd = gather(r.t, 4, false, seed, writing)
	bulk := newCarrier(r.crowd, importing)
	bulk.start()
	enough := r.crowd.acknowledged.Load() + 24
	carried := make(chan struct{})
	go func() { bulk.stop(); close(carried) }()
	hasEnded := r.until(func() bool {
		select {
		case <-carried:
			return r.crowd.acknowledged.Load() >= enough
		default:
			return false
		}
	})
	r.crowd.stop()
	<-carried
	for _, err := range r.crowd.errors() {
		r.complain(err)
	}
	if !hasEnded {
		_, err := r.tryCommand("backup", r.backup)
		r.backedUp = err == nil
		r.complain(err)
	}
	if f := r.disk.fault; !hasEnded && !early && f != nil && f.op == opSync && strings.HasPrefix(r.disk.struck(), "plants.db") {
		hasEnded = r.until(func() bool { return false })
	}
	if hasEnded {
		return
	}
	// A connection that was never used would keep the server waiting.
	writing.CloseIdleConnections()
	importing.CloseIdleConnections()
	r.signal(syscall.SIGTERM)
	err := <-r.done
	r.cmd = nil
	r.complain(err)
}

// until waits until the condition holds, or the server ends by itself, which it
// reports.
func (r *faultyRun) until(holds func() bool) bool {
	r.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		select {
		case err := <-r.done:
			r.cmd = nil
			r.ended(fmt.Errorf("the server ended: %w\n%s", err, r.log))
			return true
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(deadline) {
			r.t.Fatal("nothing happens any more")
		}
	}
	return false
}

// ended looks at how the server ended before it was told to.
func (r *faultyRun) ended(err error) {
	r.t.Helper()
	r.complain(err)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 {
		r.t.Errorf("the server ended without exit code 1: %v", err)
	}
	if f := r.disk.fault; r.crowd != nil && (f.op != opSync || !strings.Contains(err.Error(), "can no longer be trusted")) {
		r.t.Errorf("%s failed: %v", f.op, err)
	}
}

func (r *faultyRun) complain(err error) {
	if r.complaint == nil {
		r.complaint = err
	}
}

// TestFullDisk fills the disk under load and makes room again. The server goes on
// reading, says why it does not write, and recovers by itself.
func TestFullDisk(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	d := newDrive(t)
	s := startOn(t, d.path("plants.db"))
	c := gather(t, 16, false, seed, s.client(client.Options{}))
	c.await(100)
	probe := newProbe(c, s)
	for range times(2, 20) {
		d.disk.limit(200_000)
		probe.until(http.StatusServiceUnavailable)
		for range 20 {
			probe.create()
			for _, path := range []string{"/plants?limit=10", fmt.Sprint("/plants/", probe.first)} {
				if status, body := s.call(bootstrap, "GET", path, ""); status != http.StatusOK {
					t.Errorf("GET %s with a full disk: %d %s", path, status, body)
				}
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				if status, body := s.call("", "GET", path, ""); status != http.StatusOK {
					t.Errorf("GET %s with a full disk: %d %s", path, status, body)
				}
			}
		}
		d.disk.unlimit()
		probe.until(http.StatusOK)
		c.await(200)
	}
	plants := c.verify(s.client(client.Options{}))
	for _, err := range c.errors() {
		t.Error(err)
	}
	s.stop()
	s.command("check")
	t.Logf("%d writes acknowledged, %d plants looked at, %d answers of 503, longest call %v", c.acknowledged.Load(), plants, probe.refused, c.longest())
}

// probe is a member of a crowd that looks at answers as they are on the wire.
type probe struct {
	*writer
	s       *server
	refused int
}

// newProbe adds a probe to a crowd that has not stopped.
func newProbe(c *crowd, s *server) *probe {
	w := &writer{crowd: c, first: plantstore.ID(len(c.writers)) << 32}
	c.writers = append(c.writers, w)
	p := &probe{writer: w, s: s}
	p.until(http.StatusOK)
	return p
}

// until creates plants until the server answers with that status.
func (p *probe) until(status int) {
	p.s.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for p.create() != status {
		if time.Now().After(deadline) {
			p.s.t.Fatalf("no create was answered with %d for a minute", status)
		}
	}
}

// create creates a plant of some length. It is a success, or a refusal that says
// when to come back and why.
func (p *probe) create() int {
	p.s.t.Helper()
	plant := plantstore.Plant{ID: p.first + plantstore.ID(len(p.fates)), Name: strings.Repeat("long ", 1000)}
	res, answer := p.send(plant)
	switch res.StatusCode {
	case http.StatusOK:
		p.fates = append(p.fates, fate{is: &plant})
	case http.StatusServiceUnavailable:
		p.refused++
		p.fates = append(p.fates, fate{unanswered: &plantstore.Write{Op: plantstore.Create, Plant: plant}})
		var problem struct {
			Error   int
			Message string
		}
		if err := json.Unmarshal(answer, &problem); err != nil || problem.Error != int(plantstore.ErrUnavailable) || problem.Message == "" {
			p.s.t.Errorf("the answer is no clear Error: %s", answer)
		}
		if res.Header.Get("Retry-After") == "" {
			p.s.t.Errorf("there is no Retry-After: %v", res.Header)
		}
	default:
		p.s.t.Fatalf("create: %d %s", res.StatusCode, answer)
	}
	return res.StatusCode
}

func (p *probe) send(plant plantstore.Plant) (*http.Response, []byte) {
	p.s.t.Helper()
	body := fmt.Sprintf(`{"id":%d,"name":%q}`, plant.ID, plant.Name)
	req, err := http.NewRequest("POST", p.s.api+"/plants", strings.NewReader(body))
	if err != nil {
		p.s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bootstrap)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		p.s.t.Fatal(err)
	}
	return res, answer
}
