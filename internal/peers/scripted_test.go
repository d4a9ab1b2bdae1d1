package peers

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripted is an MCP server on stdio that speaks one revision and keeps a ledger
// of what it executed. Its tools:
//
//	count {tag, n, pace_ms}  n progress events, then a result
//	quiet {tag}              no event until the gate is opened, then a result
//	steps {tag, n}           n progress events, each when its gate is opened
//	test_reconnection        what the conformance suite calls: 1.5 s, then a result
type scripted struct {
	version string
	dir     string // of the ledger and the gates
	out     sync.Mutex
	calls   sync.WaitGroup
}

func scriptedServer(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: scripted-server VERSION DIR")
		return 2
	}
	s := &scripted{version: args[0], dir: args[1]}
	s.note("pid " + strconv.Itoa(os.Getpid()))
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		s.handle(line)
	}
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name string   `json:"name"`
		Args toolArgs `json:"arguments"`
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

type toolArgs struct {
	Tag    string `json:"tag"`
	N      int    `json:"n"`
	PaceMS int    `json:"pace_ms"`
}

func (s *scripted) handle(line []byte) {
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		s.note("unreadable " + strconv.Quote(string(line)))
		return
	}
	switch {
	case m.Method == "notifications/cancelled":
		s.note("cancelled")
	case m.ID == nil || m.Method == "":
	case m.Method == "initialize":
		s.result(m.ID, map[string]any{
			"protocolVersion": s.version,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "scripted", "version": "1"},
		})
	case m.Method == "ping":
		s.result(m.ID, map[string]any{})
	case m.Method == "tools/list":
		s.result(m.ID, map[string]any{"tools": []any{tool("count"), tool("quiet"), tool("steps"), tool("test_reconnection")}})
	case m.Method == "tools/call":
		s.calls.Go(func() { s.call(m) })
	default:
		s.write(map[string]any{"jsonrpc": "2.0", "id": m.ID,
			"error": map[string]any{"code": -32601, "message": "no such method"}})
	}
}

func tool(name string) map[string]any {
	return map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}}
}

func (s *scripted) call(m message) {
	a := m.Params.Args
	s.note("run " + a.Tag)
	switch m.Params.Name {
	case "count":
		pace := time.NewTicker(time.Duration(max(1, a.PaceMS)) * time.Millisecond)
		defer pace.Stop()
		for i := range a.N {
			<-pace.C
			s.progress(m, i+1)
		}
	case "quiet":
		s.pass(a.Tag)
	case "steps":
		for i := range a.N {
			s.pass(nth(a.Tag, i+1))
			s.progress(m, i+1)
		}
	case "test_reconnection":
		<-time.After(1500 * time.Millisecond)
	}
	s.result(m.ID, map[string]any{"content": []any{map[string]any{"type": "text", "text": "done " + a.Tag}}})
}

func (s *scripted) progress(m message, n int) {
	if m.Params.Meta.Token == nil {
		return
	}
	s.write(map[string]any{"jsonrpc": "2.0", "method": "notifications/progress", "params": map[string]any{
		"progressToken": m.Params.Meta.Token, "progress": n, "total": m.Params.Args.N,
	}})
}

func (s *scripted) result(id json.RawMessage, result any) {
	s.write(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func (s *scripted) write(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	s.out.Lock()
	defer s.out.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// note adds a line to the ledger in one write, so that lines of several
// processes stay whole.
func (s *scripted) note(line string) {
	f, err := os.OpenFile(filepath.Join(s.dir, "ledger"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	io.WriteString(f, line+"\n")
}

// pass waits until a gate is open.
func (s *scripted) pass(tag string) {
	eventually(time.Minute, func() bool { _, err := os.Stat(gate(s.dir, tag)); return err == nil })
}

// nth is the tag of a call's n-th gate.
func nth(tag string, n int) string { return tag + "-" + strconv.Itoa(n) }

func gate(dir, tag string) string { return filepath.Join(dir, "gate-"+tag) }

// ledger is what scripted servers of one folder did.
type ledger string

func (l ledger) lines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(string(l), "ledger"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// runs counts the executions of a tag.
func (l ledger) runs(t *testing.T, tag string) (n int) {
	t.Helper()
	for _, line := range l.lines(t) {
		if line == "run "+tag {
			n++
		}
	}
	return n
}

// pids are the processes that ran.
func (l ledger) pids(t *testing.T) (pids []int) {
	t.Helper()
	for _, line := range l.lines(t) {
		if text, ok := strings.CutPrefix(line, "pid "); ok {
			pid, err := strconv.Atoi(text)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// open opens the gate of a tag.
func (l ledger) open(t *testing.T, tag string) {
	t.Helper()
	if err := os.WriteFile(gate(string(l), tag), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// command is how Segno starts the server.
func (l ledger) command(t *testing.T, version string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "scripted-server", version, string(l)}
}
