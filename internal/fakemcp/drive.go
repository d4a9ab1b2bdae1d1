package fakemcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// Send sends a message of the server's own, such as
// {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}.
func (s *Server) Send(msg []byte) error {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil {
		return errors.New("the server does not run yet")
	}
	return conn.Send(context.Background(), msg)
}

// Notify sends a notification. params may be empty.
func (s *Server) Notify(method, params string) error {
	var p []byte
	if params != "" {
		p = []byte(params)
	}
	return s.Send(wire.AppendNotification(nil, method, p))
}

// Changed sends a list_changed: what is tools, resources or prompts.
func (s *Server) Changed(what string) error {
	return s.Notify("notifications/"+what+"/list_changed", "")
}

// Raw writes text as it is, garbage too. The server must have been started with
// ServeLines or Start.
func (s *Server) Raw(text string) error {
	s.mu.Lock()
	raw := s.raw
	s.mu.Unlock()
	if raw == nil {
		return errors.New("not on a stream of lines")
	}
	_, err := io.WriteString(raw, text)
	return err
}

// Ask sends a request of the server's own and waits for its answer, which it
// returns whole.
func (s *Server) Ask(ctx context.Context, method, params string) (wire.Message, error) {
	answer := make(chan wire.Message, 1)
	s.mu.Lock()
	id := strconv.Itoa(s.next)
	if s.opt.StringIDs {
		id = `"s` + id + `"`
	}
	s.next++
	s.asked[id] = answer
	s.mu.Unlock()
	if err := s.Send(wire.AppendRequest(nil, []byte(id), method, []byte(params))); err != nil {
		return wire.Message{}, err
	}
	select {
	case m := <-answer:
		return m, nil
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

// Runs is how often a tool ran, by its name or by the argument "key".
func (s *Server) Runs(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[key]
}

// FileRuns is Runs for servers that ran as processes, from their RunsFile.
func FileRuns(file, key string) (int, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	n := 0
	for line := range bytes.Lines(b) {
		name, k, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if name == key || k == key {
			n++
		}
	}
	return n, err
}

// Received is every message the server got, as it came.
func (s *Server) Received() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.received...)
}

// Got is every message the server got with the given method.
func (s *Server) Got(method string) []string {
	var got []string
	for _, text := range s.Received() {
		if m, err := wire.Parse([]byte(text)); err == nil && m.Method == method {
			got = append(got, text)
		}
	}
	return got
}

// Level is what logging/setLevel set last.
func (s *Server) Level() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.level
}

// Subscribed tells whether there is a subscription to a resource.
func (s *Server) Subscribed(uri string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subs[uri]
}

// Running is how many calls have not ended.
func (s *Server) Running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls)
}

// Stall makes the server read nothing for a while, after what it reads next.
func (s *Server) Stall(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = d
}

// Hangup ends the server's connection, as a process that exits.
func (s *Server) Hangup() {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// Init is an initialize request. id is JSON text.
func Init(id, revision string) []byte {
	return wire.AppendRequest(nil, []byte(id), wire.Initialize, fmt.Appendf(nil,
		`{"protocolVersion":%q,"capabilities":{"elicitation":{},"sampling":{},"roots":{}},"clientInfo":{"name":"test","version":"1"}}`, revision))
}

// Ready is what a client sends after initialize.
func Ready() []byte { return wire.AppendNotification(nil, wire.Initialized, nil) }

// Call is a tools/call. id, args and token are JSON text; args and token may be
// empty.
func Call(id, tool, args, token string) []byte {
	if args == "" {
		args = "{}"
	}
	meta := ""
	if token != "" {
		meta = `,"_meta":{"progressToken":` + token + `}`
	}
	return wire.AppendRequest(nil, []byte(id), wire.ToolsCall, fmt.Appendf(nil, `{"name":%q,"arguments":%s%s}`, tool, args, meta))
}

// Cancel is what a client sends to give a call up.
func Cancel(id string) []byte {
	return wire.AppendNotification(nil, wire.Cancelled, []byte(`{"requestId":`+id+`,"reason":"test"}`))
}
