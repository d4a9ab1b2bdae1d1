// Package peers tests the real command with real peers: the official and other
// clients, MCP servers that others wrote, the official conformance suite and
// nginx. Nothing here is simulated but the tools' work and the broken network.
//
// It needs Node.js packages, nginx and time, so it runs with "make peers", which
// sets PEERS=required: then whatever is missing is a failure.
package peers

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const module = "github.com/segno-mcp/segno"

// built are the binaries that the tests start, made once.
var built struct {
	segno      string
	everything string // the everything server of go-sdk
	err        error
}

func required() bool { return os.Getenv("PEERS") == "required" }

func TestMain(m *testing.M) {
	// The test binary is also the MCP server that the tests put behind Segno.
	if len(os.Args) > 1 && os.Args[1] == "scripted-server" {
		os.Exit(scriptedServer(os.Args[2:]))
	}
	if os.Getenv("GORACE") == "" {
		// A process with the race detector otherwise takes a second to end.
		os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if required() {
		dir, err := os.MkdirTemp("", "peers-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		built.segno, built.everything = filepath.Join(dir, "segno"), filepath.Join(dir, "everything")
		built.err = build(dir)
	}
	code := m.Run()
	if code == 0 {
		http.DefaultClient.CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// build makes the binaries. PEERS_SEGNO names one to test instead of the tree's,
// and PEERS_RACE asks for the race detector in what is built.
func build(dir string) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if os.Getenv("PEERS_RACE") != "" {
		args = append(args, "-race")
	}
	packages := []string{"github.com/modelcontextprotocol/go-sdk/conformance/everything-server"}
	if ready := os.Getenv("PEERS_SEGNO"); ready != "" {
		built.segno = ready
	} else {
		packages = append(packages, module+"/cmd/segno")
	}
	for _, pkg := range packages {
		if out, err := exec.Command("go", append(args, pkg)...).CombinedOutput(); err != nil {
			return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
		}
	}
	return os.Rename(filepath.Join(dir, "everything-server"), built.everything)
}

// need skips a test that nobody asked for, and fails one whose peers are missing.
func need(t *testing.T, what ...string) {
	t.Helper()
	if !required() {
		t.Skip("needs real peers: run it with `make peers`")
	}
	for _, w := range what {
		switch w {
		case "npm":
			if _, err := os.Stat("testdata/npm/node_modules/.package-lock.json"); err != nil {
				t.Fatal("the Node.js peers are missing: run `npm ci --ignore-scripts` in internal/peers/testdata/npm")
			}
		default:
			if _, err := exec.LookPath(w); err != nil {
				t.Fatalf("%s is missing: on Debian, apt-get install %s", w, w)
			}
		}
	}
}

// node finds a Node.js of version 22 or later, which the conformance suite needs:
// the one from npm, else the system's.
func node(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("testdata/npm/node_modules/node-*/bin/node")
	if err == nil && len(found) > 0 {
		abs, err := filepath.Abs(found[0])
		if err != nil {
			t.Fatal(err)
		}
		return abs
	}
	path, err := exec.LookPath("node")
	if err != nil {
		t.Fatal("node is missing: install Node.js 22 or later")
	}
	return path
}

// until waits for a condition that no signal tells about, such as a line in a
// file that another process writes.
func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	if !eventually(limit, ok) {
		t.Fatalf("not within %s: %s", limit, what)
	}
}

func eventually(limit time.Duration, ok func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(limit)
	for {
		if ok() {
			return true
		}
		select {
		case <-tick.C:
		case <-deadline:
			return ok()
		}
	}
}
