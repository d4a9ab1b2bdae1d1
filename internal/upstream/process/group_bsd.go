//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// These systems tell no child of its parent's death: it ends when its input
// does, or is found by Sweep.
func dieWithParent(*syscall.SysProcAttr) {}

func pin() (unpin func()) { return func() {} }

// waitExit returns when the process has exited and leaves it a zombie: until it
// is reaped its number and its group's can't be given to another process. An
// error means that it is one already.
func waitExit(p *os.Process) {
	kq, err := unix.Kqueue()
	if err != nil {
		return
	}
	defer unix.Close(kq)
	change := make([]unix.Kevent_t, 1)
	unix.SetKevent(&change[0], p.Pid, unix.EVFILT_PROC, unix.EV_ADD|unix.EV_ONESHOT)
	change[0].Fflags = unix.NOTE_EXIT
	got := make([]unix.Kevent_t, 1)
	for {
		_, err := unix.Kevent(kq, change, got, nil)
		if err != unix.EINTR {
			return
		}
	}
}

func widen(*os.File) {}

func bootID() string { return "" }

// startTime asks ps, to the second.
func startTime(pid int) (start string, pgid int) {
	out, err := exec.Command("ps", "-o", "pgid=,lstart=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		return "", 0
	}
	group, since, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	pgid, _ = strconv.Atoi(group)
	return strings.TrimSpace(since), pgid
}

// leftovers knows only the child itself, while it leads its group.
func leftovers(r *record) []int {
	start, pgid := startTime(r.PID)
	if r.PID > 0 && start == r.Start && pgid == r.PID {
		return []int{r.PID}
	}
	return nil
}

func signalLeftover(pid int, _ *record, sig syscall.Signal) { _ = syscall.Kill(-pid, sig) }

// There are no cgroups here.
type cgroup struct{}

func newCgroup(string) *cgroup             { return nil }
func openCgroup(string) *cgroup            { return nil }
func (*cgroup) enter(*syscall.SysProcAttr) {}
func (*cgroup) path() string               { return "" }
func (*cgroup) kill()                      {}
func (*cgroup) remove()                    {}
