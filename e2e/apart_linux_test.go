package e2e

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// setApart lets this process have the processor only when no other wants it, until
// the returned function is called. So abusers in it cost a server what they ask of
// it, and not also what they do themselves: elsewhere they have machines of their
// own. What the process starts meanwhile is set apart too.
func setApart(t *testing.T) (restore func()) {
	t.Helper()
	if err := mayReturn(); err != nil {
		t.Log("THE ABUSERS ARE NOT SET APART: ", err)
		return func() {}
	}
	if err := scheduleAll(unix.SCHED_IDLE); err != nil {
		t.Error("set the abusers apart: ", err)
	}
	return func() {
		if err := scheduleAll(unix.SCHED_NORMAL); err != nil {
			t.Error("the abusers stay set apart: ", err)
		}
	}
}

// mayReturn tries on one thread, which ends, whether it can be set apart and back.
func mayReturn() error {
	tried := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		_, err := schedule(unix.Gettid(), unix.SCHED_IDLE)
		if err == nil {
			_, err = schedule(unix.Gettid(), unix.SCHED_NORMAL)
		}
		tried <- err
	}()
	return <-tried
}

// scheduleAll gives all threads of the process the policy. A thread has it from the
// one that made it, so it looks again until there is none without.
func scheduleAll(policy uint32) error {
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
			changed, err := schedule(id, policy)
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

// schedule gives a thread the policy, and reports whether it had another.
func schedule(thread int, policy uint32) (changed bool, err error) {
	is, err := unix.SchedGetAttr(thread, 0)
	if err != nil || is.Policy == policy {
		return false, err
	}
	return true, unix.SchedSetAttr(thread, &unix.SchedAttr{Policy: policy, Nice: is.Nice}, 0)
}
