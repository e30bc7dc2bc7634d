package abuse

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// lowerPriority gives this process, and the processes it starts, the CPU only when no
// other process wants it, until restore is called. So the abusers cost the server only
// the work of serving them, as if they had machines of their own.
func lowerPriority(t *testing.T) (restore func()) {
	t.Helper()
	if err := canRestore(); err != nil {
		t.Log("THE ABUSERS HAVE THE SAME PRIORITY AS THE SERVER: ", err)
		return func() {}
	}
	if err := setPolicy(unix.SCHED_IDLE); err != nil {
		t.Error("lower the priority: ", err)
	}
	return func() {
		if err := setPolicy(unix.SCHED_NORMAL); err != nil {
			t.Error("restore the priority: ", err)
		}
	}
}

// canRestore tries on one thread, which then ends, whether the policy can be set and
// restored.
func canRestore() error {
	tried := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		_, err := setThreadPolicy(unix.Gettid(), unix.SCHED_IDLE)
		if err == nil {
			_, err = setThreadPolicy(unix.Gettid(), unix.SCHED_NORMAL)
		}
		tried <- err
	}()
	return <-tried
}

// setPolicy sets the scheduling policy of all threads. A new thread inherits that of its
// creator, so it repeats until all have it.
func setPolicy(policy uint32) error {
	for changes := 1; changes > 0; {
		changes = 0
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return err
			}
			changed, err := setThreadPolicy(id, policy)
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return err
			}
			if changed {
				changes++
			}
		}
	}
	return nil
}

// setThreadPolicy sets the policy of a thread, and reports whether that changed it.
func setThreadPolicy(thread int, policy uint32) (changed bool, err error) {
	old, err := unix.SchedGetAttr(thread, 0)
	if err != nil || old.Policy == policy {
		return false, err
	}
	return true, unix.SchedSetAttr(thread, &unix.SchedAttr{Policy: policy, Nice: old.Nice}, 0)
}
