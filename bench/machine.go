package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A measurement does not count if the machine was busy with something else. These are
// fractions of the time of all CPUs.
const (
	maxSteal = 0.05 // taken by the hypervisor
	maxOther = 0.08 // used by processes that are not part of the measurement
)

// clock is the CPU time since the machine was started.
type clock struct{ busy, steal, all time.Duration }

func readClock() (clock, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return clock{}, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var c clock
	// user nice system idle iowait irq softirq steal
	for i, f := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return clock{}, err
		}
		d := time.Duration(n) * tick
		c.all += d
		switch i {
		case 3, 4:
		case 7:
			c.steal += d
		default:
			c.busy += d
		}
	}
	return c, nil
}

// noise is what else the machine did during a measurement, as fractions of the time
// of all CPUs.
type noise struct{ Steal, Other float64 }

// noiseBetween returns the noise between two readings of the clock, given the CPU time
// that the measurement itself used. Kernel threads, such as those that write pages to
// the disk, count as other processes.
func noiseBetween(from, to clock, own time.Duration) noise {
	all := float64(to.all - from.all)
	return noise{
		Steal: float64(to.steal-from.steal) / all,
		Other: max(0, float64(to.busy-from.busy-own)/all),
	}
}

func (n noise) isTooHigh() bool { return n.Steal > maxSteal || n.Other > maxOther }

func (n noise) String() string {
	return fmt.Sprintf("%.1f %% stolen, %.1f %% used by others", 100*n.Steal, 100*n.Other)
}

// machine describes the machine that was measured on.
func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel, _ := exec.Command("uname", "-sr").Output()
	memory := int64(0)
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &memory)
	}
	return fmt.Sprintf("%d × %s, %d GiB of memory, %s, %s",
		runtime.NumCPU(), model, (memory+1<<19)>>20, strings.TrimSpace(string(kernel)), runtime.Version())
}

// diskWritten returns how many bytes all processes have written to the disk that has
// dir, or 0 if that is unknown. The kernel's figures per process are not usable: they
// may count a 4 KiB page as the whole large folio that it belongs to.
func diskWritten(dir string) int64 {
	info, err := os.Stat(dir)
	if err != nil {
		return 0
	}
	device := uint64(info.Sys().(*syscall.Stat_t).Dev)
	major, minor := device>>8&0xfff, device&0xff|device>>12&0xfff00
	text, _ := os.ReadFile("/proc/diskstats")
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if f[0] != strconv.FormatUint(major, 10) || f[1] != strconv.FormatUint(minor, 10) {
			continue
		}
		const sector = 512
		sectors, _ := strconv.ParseInt(f[9], 10, 64)
		return sectors * sector
	}
	return 0
}
