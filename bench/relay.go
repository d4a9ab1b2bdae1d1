package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/segno-mcp/segno/bench/client"
)

// relay is the bare relay: a child per session, its lines copied to whoever
// asked, nothing stored, nothing checked. It knows how its one tool spells
// messages, so it finds an id where it must stand. That is the least a gateway
// before a stdio server can do, and so the limit of what one can reach.
type relay struct {
	tool     []string
	mu       sync.Mutex
	sessions map[string]*relayed
}

// serveRelay is the role "relay".
func serveRelay() error {
	r := &relay{tool: self("tool"), sessions: map[string]*relayed{}}
	err := serve(http.HandlerFunc(r.post))
	r.end()
	return err
}

// end ends the children and waits, so that the harness knows their load as its own.
func (r *relay) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sessions {
		s.in.Close()
		s.cmd.Process.Kill()
	}
	for _, s := range r.sessions {
		s.cmd.Wait()
	}
}

// serve listens on any port, says so as every subject does, and serves until SIGTERM.
func serve(h http.Handler) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "listening http://%s%s\n", l.Addr(), client.Path)
	mux := http.NewServeMux()
	mux.Handle(client.Path, h)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// relayed is one child and who waits for it.
type relayed struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	mu      sync.Mutex
	waiting map[string]*waiter // by request id
	only    *waiter            // the one that waits, if it is one
}

// waiter is a request whose answer is written by the child's reader.
type waiter struct {
	w      http.ResponseWriter
	stream bool
	frames []byte
	done   chan struct{}
}

func (r *relay) post(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil || q.Method != http.MethodPost {
		http.Error(w, "POST only", http.StatusMethodNotAllowed)
		return
	}
	s, err := r.session(w, q.Header.Get("Mcp-Session-Id"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	id := idOf(body)
	if id == nil {
		s.in.Write(append(body, '\n'))
		w.WriteHeader(http.StatusAccepted)
		return
	}
	s.ask(w, string(id), body)
}

func (r *relay) session(w http.ResponseWriter, id string) (*relayed, error) {
	if id == "" {
		id = rand.Text()
		w.Header().Set("Mcp-Session-Id", id)
		return r.begin(id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sessions[id]; s != nil {
		return s, nil
	}
	return nil, errors.New("no such session")
}

func (r *relay) begin(id string) (*relayed, error) {
	cmd := exec.Command(r.tool[0], r.tool[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &relayed{cmd: cmd, in: in, waiting: map[string]*waiter{}}
	go s.copy(out)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[id] = s
	return s, nil
}

func (s *relayed) ask(w http.ResponseWriter, id string, body []byte) {
	a := &waiter{w: w, stream: bytes.Contains(body, []byte(`"progressToken"`)), done: make(chan struct{})}
	w.Header().Set("Content-Type", "application/json")
	if a.stream {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
	}
	s.mu.Lock()
	s.waiting[id] = a
	s.pick()
	s.mu.Unlock()
	s.in.Write(append(body, '\n'))
	<-a.done
}

func (s *relayed) pick() {
	s.only = nil
	if len(s.waiting) == 1 {
		for _, a := range s.waiting {
			s.only = a
		}
	}
}

// copy hands the child's lines on, a read at a time: one write and one flush
// for all that a read brought.
func (s *relayed) copy(out io.Reader) {
	buf := make([]byte, 0, 128<<10)
	for {
		n, err := out.Read(buf[len(buf):cap(buf)])
		if err != nil {
			return
		}
		buf = buf[:len(buf)+n]
		last := bytes.LastIndexByte(buf, '\n') + 1
		s.burst(buf[:last])
		buf = append(buf[:0], buf[last:]...)
	}
}

func (s *relayed) burst(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		s.line(b[:i])
		b = b[i+1:]
	}
	for _, a := range s.waiting {
		a.flush()
	}
}

func (s *relayed) line(b []byte) {
	id := idOf(b)
	a := s.only
	if a == nil {
		if a = s.waiting[string(id)]; id == nil {
			a = s.waiting[string(tokenOf(b))]
		}
	}
	if a == nil {
		return
	}
	a.add(b)
	if id == nil {
		return
	}
	a.flush()
	delete(s.waiting, string(id))
	s.pick()
	close(a.done)
}

func (a *waiter) add(b []byte) {
	if !a.stream {
		a.frames = append(a.frames, b...)
		return
	}
	a.frames = append(a.frames, "data: "...)
	a.frames = append(a.frames, b...)
	a.frames = append(a.frames, "\n\n"...)
}

func (a *waiter) flush() {
	if len(a.frames) == 0 {
		return
	}
	a.w.Write(a.frames)
	a.frames = a.frames[:0]
	if a.stream {
		a.w.(http.Flusher).Flush()
	}
}

var (
	idPrefix    = []byte(`{"jsonrpc":"2.0","id":`)
	tokenPrefix = []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":`)
)

func idOf(b []byte) []byte    { return number(b, idPrefix) }
func tokenOf(b []byte) []byte { return number(b, tokenPrefix) }

// number is the JSON number that stands right after the prefix.
func number(b, prefix []byte) []byte {
	if !bytes.HasPrefix(b, prefix) {
		return nil
	}
	b = b[len(prefix):]
	return b[:max(0, bytes.IndexAny(b, ",}"))]
}
