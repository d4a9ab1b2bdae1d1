package fakemcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/wire"
)

// Start runs a server in the test until its end and returns the client's end of
// the connection. The two speak in lines, as over stdio, so garbage and broken
// lines are possible.
func Start(t testing.TB, opt Options) (wire.Conn, *Server) {
	return StartLines(t, opt, wire.LineOptions{})
}

// StartLines is Start with options for the client's end.
func StartLines(t testing.TB, opt Options, lines wire.LineOptions) (wire.Conn, *Server) {
	near, far := pipe(t)
	s := New(opt)
	conn := s.onLines(far, far)
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(context.Background(), conn); err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	client := wire.NewLineConn(near, near, lines)
	t.Cleanup(func() {
		client.Close()
		conn.Close()
		served.Wait()
	})
	return client, s
}

func pipe(t testing.TB) (near, far net.Conn) {
	n := memnet.Listen()
	near, err := n.Dial(context.Background(), "tcp", "fakemcp")
	if err == nil {
		far, err = n.Accept()
	}
	if err != nil {
		t.Fatalf("connecting to the server: %v", err)
	}
	return near, far
}

// envOptions is the environment variable that turns a test's binary into a
// server; it holds the options in JSON.
const envOptions = "FAKEMCP_OPTIONS"

// Main serves on stdin and stdout and exits if the process was started by
// Command; else it returns. TestMain calls it first.
func Main() {
	text, ok := os.LookupEnv(envOptions)
	if !ok {
		return
	}
	opt := Options{}
	if err := json.Unmarshal([]byte(text), &opt); err != nil {
		fmt.Fprintln(os.Stderr, "fakemcp: error: reading its options:", err)
		os.Exit(2)
	}
	opt.Exit, opt.Stderr = os.Exit, os.Stderr
	if opt.Stubborn {
		signal.Ignore(os.Interrupt, syscall.SIGTERM)
	}
	if err := New(opt).ServeLines(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fakemcp: error: serving:", err)
		os.Exit(1)
	}
	for opt.Stubborn {
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// Command is how to start the running test's binary as a server: the command
// and what the environment must hold besides. Exit and Stderr of the options
// are the process's own.
func Command(opt Options) (argv, env []string) {
	exe, err := os.Executable()
	if err != nil {
		panic(err) // a test cannot go on without its own binary
	}
	text, err := json.Marshal(opt)
	if err != nil {
		panic(err) // options are strings and bools
	}
	return []string{exe}, []string{envOptions + "=" + string(text)}
}
