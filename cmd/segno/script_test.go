package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"segno": main})
}

// TestScripts runs the files in testdata/script: the real command in processes
// of its own. Besides testscript's commands there are
//
//	start NAME ARG…          runs segno ARG… until it says that it listens;
//	                         $NAME_url and $NAME_admin are what it listens on
//	signal NAME TERM|INT|KILL
//	await NAME CODE [TIME]   waits for its end, then stderr is what it said; it
//	                         may take TIME since the signal
//	logged NAME REGEXP       waits until it said that
//	http [-H 'K: V'] METHOD URL [BODY]   prints the answer; $session is the
//	                         session id of the last one that had any
//	stream NAME [-H 'K: V'] METHOD URL [BODY]   returns when the answer has begun
//	answer NAME              waits for the end of that answer and prints it
//	capture NAME REGEXP TEXT|stdout    $NAME is what the first group matched
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:   "testdata/script",
		Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": start, "signal": signalTo, "await": await, "logged": logged, "http": ask,
			"capture": capture, "stream": stream, "answer": answer,
		},
	})
}

// processes are the running ones of a script.
type processes map[string]*running

type running struct {
	cmd   *exec.Cmd
	ended chan struct{}
	mu    sync.Mutex
	said  bytes.Buffer
	more  chan struct{} // closed and made anew with each line
	told  time.Time     // when it got a signal
}

type processesKey struct{}

func setup(e *testscript.Env) error {
	e.Setenv("XDG_STATE_HOME", filepath.Join(e.WorkDir, "state"))
	e.Setenv("HOME", e.WorkDir)
	// The race detector holds every process back for a second at its end.
	e.Setenv("GORACE", "atexit_sleep_ms=0")
	all := processes{}
	e.Values[processesKey{}] = all
	e.Values[answersKey{}] = answers{}
	e.Defer(func() {
		for _, r := range all {
			r.cmd.Process.Kill()
			<-r.ended
		}
	})
	return nil
}

func environ(ts *testscript.TestScript) (env []string) {
	for _, name := range []string{"PATH", "HOME", "XDG_STATE_HOME", "TMPDIR", "GOCOVERDIR", "GORACE", "SystemRoot"} {
		if v := ts.Getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// lookPath finds a program in the script's PATH.
func lookPath(ts *testscript.TestScript, name string) string {
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if p, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return p
		}
	}
	ts.Fatalf("there is no %s in PATH", name)
	return ""
}

var listening = regexp.MustCompile(`msg=listening[^\n]*? url="?([^ "]+)[^\n]*?(?: admin=(\S+))? version=`)

func start(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME ARG…")
	}
	r := &running{cmd: exec.Command(lookPath(ts, "segno"), args[1:]...), ended: make(chan struct{}), more: make(chan struct{})}
	r.cmd.Dir, r.cmd.Env = ts.MkAbs("."), environ(ts)
	stderr, err := r.cmd.StderrPipe()
	ts.Check(err)
	ts.Check(r.cmd.Start())
	ts.Value(processesKey{}).(processes)[args[0]] = r
	go r.read(stderr)
	found := r.wait(ts, listening)
	ts.Setenv(args[0]+"_url", found[1])
	ts.Setenv(args[0]+"_admin", found[2])
}

func (r *running) read(stderr io.Reader) {
	defer close(r.ended)
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadString('\n')
		r.mu.Lock()
		r.said.WriteString(line)
		close(r.more)
		r.more = make(chan struct{})
		r.mu.Unlock()
		if err != nil {
			break
		}
	}
	r.cmd.Wait()
}

func (r *running) text() (string, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String(), r.more
}

// wait waits until the process said something.
func (r *running) wait(ts *testscript.TestScript, what *regexp.Regexp) []string {
	limit := time.After(30 * time.Second)
	for {
		text, more := r.text()
		if found := what.FindStringSubmatch(text); found != nil {
			return found
		}
		select {
		case <-more:
		case <-r.ended:
			if text, _ := r.text(); what.MatchString(text) {
				continue
			}
			ts.Fatalf("segno ended (%v) and did not say %v:\n%s", r.cmd.ProcessState, what, text)
		case <-limit:
			ts.Fatalf("segno did not say %v:\n%s", what, text)
		}
	}
}

func named(ts *testscript.TestScript, name string) *running {
	r := ts.Value(processesKey{}).(processes)[name]
	if r == nil {
		ts.Fatalf("there is no process %s", name)
	}
	return r
}

func signalTo(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: signal NAME TERM|INT|KILL")
	}
	s, ok := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": os.Interrupt, "KILL": os.Kill}[args[1]]
	if !ok {
		ts.Fatalf("unknown signal %s", args[1])
	}
	r := named(ts, args[0])
	r.told = time.Now()
	ts.Check(r.cmd.Process.Signal(s))
}

func await(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 && len(args) != 3 {
		ts.Fatalf("usage: await NAME CODE [TIME]")
	}
	r := named(ts, args[0])
	limit := 60 * time.Second
	if len(args) == 3 {
		var err error
		limit, err = time.ParseDuration(args[2])
		ts.Check(err)
		limit -= time.Since(r.told)
	}
	select {
	case <-r.ended:
	case <-time.After(limit):
		text, _ := r.text()
		ts.Fatalf("%s does not end:\n%s", args[0], text)
	}
	text, _ := r.text()
	io.WriteString(ts.Stderr(), text)
	if code := strconv.Itoa(r.cmd.ProcessState.ExitCode()); code != args[1] {
		ts.Fatalf("%s ended with %s, want %s:\n%s", args[0], r.cmd.ProcessState, args[1], text)
	}
}

func logged(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: logged NAME REGEXP")
	}
	named(ts, args[0]).wait(ts, regexp.MustCompile(args[1]))
}

func capture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: capture NAME REGEXP TEXT|stdout")
	}
	text := args[2]
	if text == "stdout" {
		text = ts.ReadFile("stdout")
	}
	found := regexp.MustCompile(args[1]).FindStringSubmatch(text)
	if len(found) < 2 {
		ts.Fatalf("%s does not match %q", args[1], text)
	}
	ts.Setenv(args[0], found[1])
}
