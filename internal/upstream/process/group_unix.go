//go:build unix

package process

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	separators = "/"
	hasEndings = false
)

func sameName(a, b string) bool { return a == b }

// group is a child and everything it started that did not leave the process
// group, or that could not leave the cgroup.
type group struct {
	pid    int
	cgroup *cgroup // nil: none
}

// prepare sets the command up to become the leader of a group of its own.
func prepare(cmd *exec.Cmd, _ string, cg *cgroup) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	cg.enter(cmd.SysProcAttr)
	return nil
}

func adopt(cmd *exec.Cmd, cg *cgroup) (*group, error) {
	return &group{pid: cmd.Process.Pid, cgroup: cg}, nil
}

func (g *group) term() { _ = unix.Kill(-g.pid, unix.SIGTERM) }

func (g *group) kill() {
	_ = unix.Kill(-g.pid, unix.SIGKILL)
	g.cgroup.kill()
}

func (g *group) release() { g.cgroup.remove() }

// readEnd is the parent's end of an output of the child.
func readEnd(f *os.File) pipe { return f }
