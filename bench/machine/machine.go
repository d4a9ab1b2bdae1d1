// Package machine reads what processes cost and what else runs on the machine,
// from /proc. On a system without it everything is zero and Known is false.
package machine

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc, fixed at 1/100 s for user space.
const tick = 10 * time.Millisecond

// Known tells whether this system says what processes cost.
func Known() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

// CPU is the time a process has computed so far, without its children.
func CPU(pid int) time.Duration { return times(strconv.Itoa(pid), 13, 14) }

// tree is the time this process and all it has waited for have computed.
func tree() time.Duration { return times("self", 13, 14, 15, 16) }

// times adds fields of /proc/PID/stat, counted from 0 (proc_pid_stat(5)).
func times(pid string, fields ...int) time.Duration {
	text, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0
	}
	// The name in field 1 may hold spaces; what follows its bracket may not.
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	sum := time.Duration(0)
	for _, i := range fields {
		if i -= 2; i < len(f) {
			n, _ := strconv.ParseInt(f[i], 10, 64)
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// Memory is the resident memory of a process in bytes, and its highest so far.
func Memory(pid int) (now, peak int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(f[1], 10, 64)
		switch f[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}

// ResetPeak makes the highest memory start again from now (proc_pid_clear_refs(5)).
func ResetPeak(pid int) error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
}

// Watch measures what others compute meanwhile.
type Watch struct {
	at         time.Time
	busy, mine time.Duration
}

// Begin starts a watch.
func Begin() Watch { return Watch{at: time.Now(), busy: busy(), mine: tree()} }

// Foreign is the share of the machine that went to others since Begin, from 0
// to 1: to processes not started from here, and to other guests of the host.
// Children count as own only after they were waited for.
func (w Watch) Foreign() float64 {
	all := float64(time.Since(w.at)) * float64(runtime.NumCPU())
	return max(0, float64(busy()-w.busy-(tree()-w.mine))/all)
}

// busy is the time all processors have computed, stolen time with it.
func busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	sum := time.Duration(0)
	for i, f := range strings.Fields(line) {
		const idle, iowait, steal = 4, 5, 8
		if i == 0 || i == idle || i == iowait || i > steal {
			continue // beyond steal: guest time, which user time holds already
		}
		n, _ := strconv.ParseInt(f, 10, 64)
		sum += time.Duration(n) * tick
	}
	return sum
}

// Quiet waits until others leave the machine alone for a moment, at most limit.
func Quiet(limit time.Duration) {
	const moment = 250 * time.Millisecond
	for end := time.Now().Add(limit); time.Now().Before(end); {
		w := Begin()
		time.Sleep(moment)
		if w.Foreign() < Noisy {
			return
		}
	}
}

// Noisy is the share of foreign load from which a figure is suspect.
const Noisy = 0.10
