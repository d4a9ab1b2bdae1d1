package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

const (
	separators = `/\:`
	hasEndings = true
)

func sameName(a, b string) bool { return strings.EqualFold(a, b) }

// group is a Job Object: what the child starts belongs to it as well, and the
// system ends them all when its last handle is closed, so also when Segno dies.
type group struct {
	pid int
	job windows.Handle
}

// prepare has the child wait for its job: what it started before would be
// outside. A batch file is given to cmd.exe with a command line of its own.
func prepare(cmd *exec.Cmd, file string, _ *cgroup) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		HideWindow:    true,
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
	}
	switch strings.ToLower(filepath.Ext(file)) {
	case ".bat", ".cmd":
	default:
		return nil
	}
	system, err := windows.GetSystemDirectory()
	if err != nil {
		return fmt.Errorf("finding cmd.exe: %w", err)
	}
	shell := filepath.Join(system, "cmd.exe")
	line, err := batchLine(shell, file, cmd.Args[1:])
	if err != nil {
		return err
	}
	cmd.Path = shell
	cmd.SysProcAttr.CmdLine = line
	return nil
}

var resumeProcess = windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")

// adopt puts the waiting child into a job and lets it run.
func adopt(cmd *exec.Cmd, _ *cgroup) (*group, error) {
	job, err := newJob()
	if err != nil {
		return nil, err
	}
	err = cmd.Process.WithHandle(func(h uintptr) {
		if err = windows.AssignProcessToJobObject(job, windows.Handle(h)); err != nil {
			return
		}
		if status, _, _ := resumeProcess.Call(h); status != 0 {
			err = windows.NTStatus(status)
		}
	})
	if err != nil {
		windows.CloseHandle(job)
		return nil, fmt.Errorf("putting the child into a job: %w", err)
	}
	return &group{pid: cmd.Process.Pid, job: job}, nil
}

func newJob() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("making a job: %w", err)
	}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{}
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err != nil {
		windows.CloseHandle(job)
		return 0, fmt.Errorf("making a job: %w", err)
	}
	return job, nil
}

// term is Ctrl-Break, which reaches only children that share a console.
func (g *group) term() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.pid))
}

func (g *group) kill() { _ = windows.TerminateJobObject(g.job, 1) }

func (g *group) release() { windows.CloseHandle(g.job) }

func pin() (unpin func()) { return func() {} }

// waitExit returns when the process has ended.
func waitExit(p *os.Process) {
	_ = p.WithHandle(func(h uintptr) {
		_, _ = windows.WaitForSingleObject(windows.Handle(h), windows.INFINITE)
	})
}

func widen(*os.File) {}

// readEnd gives reads of the pipe a deadline, which anonymous pipes here lack.
func readEnd(f *os.File) pipe { return pumped(f) }

// There are no leftovers: the job ends with Segno.
func bootID() string { return "" }

func startTime(int) (start string, pgid int) { return "", 0 }

func leftovers(*record) []int { return nil }

func signalLeftover(int, *record, syscall.Signal) {}

// There are no cgroups here.
type cgroup struct{}

func newCgroup(string) *cgroup  { return nil }
func openCgroup(string) *cgroup { return nil }
func (*cgroup) path() string    { return "" }
func (*cgroup) kill()           {}
func (*cgroup) remove()         {}
