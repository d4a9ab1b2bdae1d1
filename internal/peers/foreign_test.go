package peers

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestConnectBeforeEverything is segno connect before servers of others: the
// TypeScript reference server in both of its transports, and the Go one.
func TestConnectBeforeEverything(t *testing.T) {
	need(t, "npm")
	through := kind{name: "connect", open: func(t *testing.T, url string) peer { return openConnect(t, url) }}
	for mode, path := range map[string]string{"streamableHttp": "/mcp", "sse": "/sse"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			everything(t, through, "http://"+reference(t, mode)+path)
		})
	}
}

// reference starts the TypeScript reference server and returns its address.
func reference(t *testing.T, mode string) string {
	t.Helper()
	index, err := filepath.Abs("testdata/npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	running(t, address, []string{"PORT=" + port}, node(t), index, mode)
	return address
}

// running starts a server that says nothing of when it listens.
func running(t *testing.T, address string, env []string, argv ...string) {
	t.Helper()
	said := &heard{}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", argv[0], said)
		}
	})
	until(t, argv[0]+" listens at "+address, 30*time.Second, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestConformanceBehindURL runs the official suite against segno serve URL
// before go-sdk's everything server over HTTP.
func TestConformanceBehindURL(t *testing.T) {
	need(t, "npm")
	address := freeAddress(t)
	running(t, address, nil, built.everything, "-http="+address, "-stateless=false")
	s := serveURL(t, "http://"+address)
	found := conformance(t, s.url, "--suite", "all")
	if len(found) < 30 {
		t.Errorf("only %d scenarios ran", len(found))
	}
	// This server ends the stream of that scenario itself, without an event id to
	// resume from: the call's outcome is unknown, here as without Segno.
	spotless(t, slices.DeleteFunc(found, func(s scenario) bool { return s.name == "server-sse-polling" }))
}

// serveURL is serve before a server that runs already.
func serveURL(t *testing.T, url string) *segno {
	t.Helper()
	s := &segno{t: t, store: t.TempDir()}
	s.args = []string{"--admin", "off", "--store", "pebble:" + s.store, url}
	s.start("127.0.0.1:0")
	t.Cleanup(s.close)
	return s
}
