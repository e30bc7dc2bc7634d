package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore"
)

// TestStalledDisk has every fsync hang for a while. Nothing is acknowledged then: as
// many creates wait as the queue has room for, the others are refused, and reads go
// on. When the disk is back, so is the server.
func TestStalledDisk(t *testing.T) {
	const queue, callers = 100, 50
	d := newDrive(t)
	p := newPress(startOn(t, d.path("plants.db"), "--max-queue", strconv.Itoa(queue)), mostOverloaded)
	by := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: queue + callers}, Timeout: time.Minute}
	defer by.CloseIdleConnections()
	impatient := &http.Client{Transport: by.Transport, Timeout: honestBound}
	if err := p.createOne(by, 0, "before"); err != nil {
		t.Fatal(err)
	}
	p.openReaders(t, impatient, callers)

	resume := d.disk.stall()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		all(t, queue, func(i int) error { return p.createOne(by, plantstore.ID(i+1), "waits") })
	}()
	defer func() { resume(); <-answered }()
	p.awaitDepth(t, impatient, queue)
	rounds := times(20, 500)
	all(t, callers, func(caller int) error {
		for i := range rounds {
			if err := p.createOne(impatient, plantstore.ID(caller+1)<<32+plantstore.ID(i), "too many"); err != nil {
				return err
			}
			for path, want := range map[string]string{"/plants/0": `"name":"before"`, "/healthz": "ok"} {
				if answer, err := p.read(impatient, path); err != nil || !strings.Contains(answer, want) {
					return fmt.Errorf("%s while the disk hangs: %q, %v", path, answer, err)
				}
			}
		}
		return nil
	})
	p.awaitDepth(t, impatient, queue)
	if served, refused := p.answers(); served != 1 || refused != callers*rounds {
		t.Errorf("while the disk hung, %d creates were acknowledged, and %d of %d refused", served-1, refused, callers*rounds)
	}

	resume()
	<-answered
	p.reckon(t, fmt.Sprintf("stalled disk, %d waited", queue))
	if served, _ := p.answers(); served != 1+queue {
		t.Errorf("of %d creates that waited, %d were served", queue, served-1)
	}
	by.CloseIdleConnections()
	p.stop()
	p.command("check")
}

// openReaders has callers read until the server has opened all its connections to the
// store. As root, SQLite sets the owner of the log whenever it opens it, and that may
// have to wait for an fsync of the log.
func (p *press) openReaders(t *testing.T, by *http.Client, callers int) {
	t.Helper()
	const connections = 2 + 8 // what writes, what makes checkpoints, and what reads
	for deadline := time.Now().Add(30 * time.Second); ; {
		all(t, callers, func(int) error {
			_, err := p.read(by, "/plants/0")
			return err
		})
		logs := 0
		files := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
		entries, err := os.ReadDir(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if to, _ := os.Readlink(filepath.Join(files, e.Name())); to == p.db+"-wal" {
				logs++
			}
		}
		if logs >= connections {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server has opened its log %d times, want %d", logs, connections)
		}
	}
}

func (p *press) answers() (served, refused int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.served), len(p.refused)
}

// awaitDepth waits until so many creates wait.
func (p *press) awaitDepth(t *testing.T, by *http.Client, want int) {
	t.Helper()
	line := fmt.Sprintf("\nplantstore_queue_depth %d\n", want)
	for deadline := time.Now().Add(30 * time.Second); ; {
		metrics, err := p.read(by, "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(metrics, line) {
			return
		}
		if time.Now().After(deadline) {
			_, depth, _ := strings.Cut(metrics, "\nplantstore_queue_depth ")
			t.Fatalf("there are %.5q creates in the queue, want %d", depth, want)
		}
	}
}

// read makes a call that changes nothing, which must be answered 200.
func (p *press) read(by *http.Client, path string) (string, error) {
	req, err := http.NewRequest("GET", p.api+path, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+bootstrap)
	res, err := by.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != 200 {
		err = fmt.Errorf("GET %s: %d %s", path, res.StatusCode, answer)
	}
	return string(answer), err
}
