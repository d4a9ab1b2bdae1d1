package process

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithParent lets the kernel end the child when Segno is killed. The signal
// follows the thread that started the child, not the process: see pin. It is
// SIGTERM, so that a server can still end a write; one that ignores it and the
// end of its input is left to Sweep.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGTERM }

// pin keeps the calling goroutine on its thread, and so the thread alive, until
// the child has ended. It costs no thread: the wait for the child holds one in
// any case.
func pin() (unpin func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// waitExit returns when the process has exited and leaves it a zombie: until it
// is reaped its number and its group's can't be given to another process.
func waitExit(p *os.Process) {
	for {
		err := unix.Waitid(unix.P_PID, p.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// stdoutPipe is four times the default. More would eat the user's share of pipe
// memory (pipe-user-pages-soft) with a few dozen children.
const stdoutPipe = 256 << 10

func widen(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, stdoutPipe) })
}

// bootID tells the runs of a machine apart: process numbers and start times
// mean nothing in another.
func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return string(bytes.TrimSpace(b))
}

// startTime is when a process started, in ticks since boot, with its group;
// empty if there is no such process, or only its zombie.
func startTime(pid int) (start string, pgid int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	// The second field is the name in parentheses, and may hold any character.
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return "", 0
	}
	pgid, _ = strconv.Atoi(f[2])
	return f[19], pgid
}

// leftovers are the processes that surely are the recorded child's: the child
// itself by number and start time, its group while it leads it, and whatever
// carries its mark.
func leftovers(r *record) []int {
	start, pgid := startTime(r.PID)
	leads := r.PID > 0 && start == r.Start && pgid == r.PID
	names, _ := readNames("/proc")
	var out []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		at, group := startTime(pid)
		if at == "" {
			continue
		}
		if leads && group == pgid || carries(pid, r.Mark) {
			out = append(out, pid)
		}
	}
	return out
}

func carries(pid int, mark string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	want := markVar + "=" + mark
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if kv == want {
			return true
		}
	}
	return false
}

// signalLeftover holds the process by a descriptor while it makes sure once
// more that it is the right one, so that a number given anew is never hit.
func signalLeftover(pid int, r *record, sig syscall.Signal) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	start, pgid := startTime(pid)
	leader, _ := startTime(r.PID)
	inGroup := r.PID > 0 && pgid == r.PID && leader == r.Start
	if start != "" && (inGroup || carries(pid, r.Mark)) {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}
