//go:build linux

package process

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Fifty servers behind a wrapper that forwards nothing, each with a grandchild
// that ignores the end of its input; then nothing is left of any, no process,
// no zombie, no file.
func TestField61_NothingIsLeftOfAWrappersChildren(t *testing.T) {
	o, run := options(t, "")
	self := o.Argv[0]
	o.Env[0] = "GRANDCHILD=" + self
	o.Argv = []string{"sh", "-c", roleVar + `="stubborn eof" "$GRANDCHILD" & echo '{"jsonrpc":"2.0","id":"up","result":{}}'; wait`}
	o.CloseWait, o.TermWait = 30*time.Millisecond, 2*time.Second
	cmd := New(o)
	before := files(t)
	for range 50 {
		c, err := cmd.Connect(t.Context(), "s1")
		if err != nil {
			t.Fatal(err)
		}
		one(t, c, "ready")
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left := processes(run); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if n := zombies(t); n != 0 {
		t.Errorf("%d zombies", n)
	}
	if now := files(t); now > before {
		t.Errorf("%d files are open, %d were before", now, before)
	}
}

// The leader is gone, by itself or killed from outside, its child goes on.
func TestField61_TheGroupEndsWithItsLeader(t *testing.T) {
	for _, how := range []string{"leave", "killed"} {
		t.Run(how, func(t *testing.T) {
			role := "tree leave stubborn term"
			if how == "killed" {
				role = "tree wait stubborn term"
			}
			o, run := options(t, role)
			c := connect(t, o)
			one(t, c, "ready")
			if how == "killed" {
				syscall.Kill(c.cmd.Process.Pid, syscall.SIGKILL)
			}
			if _, gone := all(t, c); how == "killed" && gone.Reason != "signal: killed" {
				t.Errorf("told %+v", gone)
			}
			if left := processes(run); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A process that leaves the group can't leave the cgroup.
func TestField61_ACgroupHoldsWhatLeavesTheGroup(t *testing.T) {
	needCgroup(t)
	o, run := options(t, "tree setsid stubborn term")
	o.NoCgroup = false
	c := connect(t, o)
	one(t, c, "tree")
	eventually(t, 5*time.Second, "the grandchild runs", func() bool { return len(processes(run)) == 2 })
	dir := c.note.Cgroup
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "all are gone", func() bool { return len(processes(run)) == 0 })
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the cgroup is left: %v", err)
	}
}

func needCgroup(t *testing.T) {
	t.Helper()
	cg := newCgroup(newMark())
	if cg == nil {
		t.Skip("no version 2 cgroup can be made here")
	}
	cg.remove()
}

func TestField71_AStubbornServerIsStoppedInBoundedTime(t *testing.T) {
	for _, tc := range []struct {
		role string
		how  Exit
		min  time.Duration
	}{
		{"echo", ExitInput, 0},
		{"stubborn eof", ExitTerm, 100 * time.Millisecond},
		{"stubborn term", ExitKill, 200 * time.Millisecond},
		{"tree wait stubborn term", ExitTerm, 100 * time.Millisecond},
	} {
		t.Run(tc.role, func(t *testing.T) {
			o, run := options(t, tc.role)
			o.CloseWait, o.TermWait = 100*time.Millisecond, 100*time.Millisecond
			if tc.how == ExitInput {
				o.CloseWait = 10 * time.Second
			}
			var how Exit
			o.Hooks.Exited = func(h Exit, _ time.Duration) { how = h }
			c := connect(t, o)
			if tc.how != ExitInput {
				one(t, c, "ready")
			}
			at := time.Now()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(at); took < tc.min || took > tc.min+1500*time.Millisecond {
				t.Errorf("took %v", took)
			}
			if how != tc.how {
				t.Errorf("it ended by %q", how)
			}
			if left := processes(run); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// The server, and a server behind a wrapper that exits first, answer the last
// call after their input was closed.
func TestField71_ALateAnswerIsNotLost(t *testing.T) {
	for _, role := range []string{"late 600ms", "tree leave late 600ms"} {
		t.Run(role, func(t *testing.T) {
			c := start(t, role)
			closed := make(chan error)
			go func() { closed <- c.Close() }()
			one(t, c, "late")
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
		})
		t.Run(role+", received after the end", func(t *testing.T) {
			c := start(t, role)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			ids, _ := all(t, c)
			if len(ids) == 0 || ids[len(ids)-1] != "late" {
				t.Errorf("got %v", ids)
			}
		})
	}
}

// killHost starts a Segno with one child and kills it once that child is up.
func killHost(t *testing.T, state, id, role string, env ...string) (run string) {
	t.Helper()
	o, run := options(t, "host "+state+" "+id+" "+role)
	cmd := exec.Command(o.Argv[0])
	cmd.Env = append(append(os.Environ(), o.Env...), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return run
}

// Nobody sweeps here: the kernel's signal and the end of input must do.
func TestField61_AKilledSegnoTakesItsChildWithIt(t *testing.T) {
	for role, id := range map[string]string{"stubborn eof": "ready", "tree wait echo": "tree"} {
		run := killHost(t, t.TempDir(), id, role)
		eventually(t, 5*time.Second, role+" is gone", func() bool { return len(processes(run)) == 0 })
	}
}

func TestField61_LeftoversOfAKilledSegnoAreSwept(t *testing.T) {
	for _, tc := range []struct{ name, id, role string }{
		{"a child that ignores everything", "ready", "stubborn term"},
		{"a grandchild without its wrapper", "ready", "tree wait stubborn term"},
		{"a process that left the group", "tree", "tree setsid stubborn term"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			state := t.TempDir()
			run := killHost(t, state, tc.id, tc.role)
			// The kernel ends the wrapper, which takes it a moment.
			eventually(t, 5*time.Second, "one is left", func() bool { return len(processes(run)) == 1 })
			n, err := Sweep(state)
			if err != nil || n != 1 {
				t.Errorf("swept %d, %v", n, err)
			}
			eventually(t, 2*time.Second, "all are gone", func() bool { return len(processes(run)) == 0 })
			if files, _ := os.ReadDir(state); len(files) != 0 {
				t.Errorf("records left: %v", files)
			}
		})
	}
}

func TestField61_ASweepEndsTheCgroupToo(t *testing.T) {
	needCgroup(t)
	state := t.TempDir()
	run := killHost(t, state, "tree", "tree setsid stubborn term", "PROCESS_TEST_CGROUP=1")
	r := records(t, state)[0]
	if r.Cgroup == "" {
		t.Fatal("no cgroup is written down")
	}
	if _, err := Sweep(state); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Second, "all are gone", func() bool { return len(processes(run)) == 0 })
	if _, err := os.Stat(r.Cgroup); !os.IsNotExist(err) {
		t.Errorf("the cgroup is left: %v", err)
	}
}

func records(t *testing.T, state string) (out []*record) {
	t.Helper()
	names, _ := filepath.Glob(filepath.Join(state, "child-*.json"))
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		r := &record{file: name}
		if err := json.Unmarshal(b, r); err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		t.Fatal("no child is written down")
	}
	return out
}

// Whatever does not fit in all of number, start time, boot and mark is spared.
func TestASweepNeverHitsWhatIsNotSurelyOurs(t *testing.T) {
	for name, bend := range map[string]func(*record){
		"the owner lives":             func(*record) {},
		"the number was given anew":   func(r *record) { r.Owner, r.Start, r.Mark = 1<<30, "1", newMark() },
		"only about to be started":    func(r *record) { r.Owner, r.PID, r.Start, r.Mark = 1<<30, 0, "", newMark() },
		"the machine was restarted":   func(r *record) { r.Owner, r.Boot = 1<<30, "another" },
		"the cgroup is somebody's":    func(r *record) { r.Owner, r.Start, r.Mark = 1<<30, "1", newMark(); r.Cgroup = ownCgroup() },
		"the file holds another mark": nil,
	} {
		t.Run(name, func(t *testing.T) {
			o, run := options(t, "stubborn eof")
			o.StateDir = filepath.Join(t.TempDir(), "state")
			o.CloseWait = 10 * time.Millisecond
			c := connect(t, o)
			one(t, c, "ready")
			r := records(t, o.StateDir)[0]
			if st, _ := os.Stat(r.file); st.Mode().Perm() != 0o600 {
				t.Errorf("the record may be read by others: %v", st.Mode())
			}
			if r.PID != c.cmd.Process.Pid || r.Start == "" {
				t.Errorf("written down as %+v", r)
			}
			os.Remove(r.file)
			if bend == nil {
				r.Owner = 1 << 30
				r.file = filepath.Join(o.StateDir, "child-x.json")
			} else {
				bend(r)
				r.file = filepath.Join(o.StateDir, "child-"+r.Mark+".json")
			}
			if err := r.save(); err != nil {
				t.Fatal(err)
			}
			if n, err := Sweep(o.StateDir); n != 0 || err != nil {
				t.Errorf("swept %d, %v", n, err)
			}
			if left := processes(run); len(left) != 1 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestASweepPassesOverRubbish(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(filepath.Join(dir, "child-a.json"), []byte("{"), 0o600)
	os.WriteFile(filepath.Join(dir, "child-b.json.new"), nil, 0o600)
	os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600)
	if n, err := Sweep(dir); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if strings.Join(left, " ") != "child-b.json.new notes.txt" {
		t.Errorf("left: %v", left)
	}
	if n, err := Sweep(filepath.Join(dir, "missing")); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
}
