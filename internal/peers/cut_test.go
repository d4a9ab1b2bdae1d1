package peers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// cut is how a connection of a call is broken.
type cut int

const (
	abort cut = iota // the TCP connection is reset
	clean            // the body ends with its terminator, as a server would end it
	down             // nothing answers on the port for a while
)

// plan says which connections of a call are broken: the first cuts ones, each
// after so many progress events, or if that is 0 as soon as it has an event id.
type plan struct {
	how   cut
	cuts  int
	after int
	gap   time.Duration // how long the port is down
	strip string        // a header to take out of each answer
	// unprimed, if not 0, is after how long a connection without an event id is
	// broken too; without it such a connection is left alone.
	unprimed time.Duration
}

// cutter is a proxy that knows which connections belong to a tool call: the
// answer to its POST, and each GET that resumes from an event id seen on one.
type cutter struct {
	t        *testing.T
	target   string
	plan     plan
	address  string
	listener *resetListener
	server   *http.Server
	serving  sync.WaitGroup
	client   *http.Transport
	broken   chan struct{} // closed after the last planned cut

	mu      sync.Mutex
	ids     map[string]bool
	firstID string
	session string
	conns   int // connections of the call so far
	resumes int // of them, by GET with a cursor
}

// cutBefore starts a cutter before a server's URL.
func cutBefore(t *testing.T, url string, p plan) *cutter {
	t.Helper()
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	c := &cutter{
		t: t, target: "http://" + host, plan: p, ids: map[string]bool{},
		client: &http.Transport{DisableCompression: true}, broken: make(chan struct{}),
	}
	c.server = &http.Server{Handler: c}
	c.listen(freeAddress(t))
	t.Cleanup(func() {
		c.server.Close()
		c.client.CloseIdleConnections()
		c.serving.Wait()
	})
	return c
}

func (c *cutter) url() string { return "http://" + c.address + "/mcp" }

func (c *cutter) listen(address string) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		c.t.Error(err)
		return
	}
	c.address = l.Addr().String()
	c.listener = &resetListener{Listener: l, conns: map[net.Conn]bool{}}
	serve := c.listener
	c.serving.Go(func() { c.server.Serve(serve) })
}

// fall makes the port unreachable for the planned time.
func (c *cutter) fall() {
	c.listener.reset()
	c.serving.Go(func() {
		back := time.NewTimer(c.plan.gap)
		defer back.Stop()
		<-back.C
		c.listen(c.address)
	})
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	n := c.belongs(r, body)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var late atomic.Bool
	if c.plan.unprimed > 0 && c.doomed(n) {
		// Not even a head may come: the time runs from the request on.
		unprimed := time.AfterFunc(c.plan.unprimed, func() { late.Store(true); cancel() })
		defer unprimed.Stop()
	}
	answer, err := c.forward(ctx, r, body)
	switch {
	case late.Load():
		c.breakOff(w, n)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	default:
		defer answer.Body.Close()
		c.pass(w, answer, n, &late)
	}
}

// doomed tells whether the call's n-th connection is to be broken.
func (c *cutter) doomed(n int) bool { return n > 0 && n <= c.plan.cuts }

func (c *cutter) forward(ctx context.Context, r *http.Request, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, r.Method, c.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	out.Header = r.Header.Clone()
	return c.client.RoundTrip(out)
}

// belongs tells whether a request is a connection of the call, and if so which.
func (c *cutter) belongs(r *http.Request, body []byte) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var m struct {
		Method string `json:"method"`
	}
	if r.Method == http.MethodPost && json.Unmarshal(body, &m) == nil && m.Method == "tools/call" {
		c.conns++
		c.session = r.Header.Get("Mcp-Session-Id")
		return c.conns
	}
	if id := r.Header.Get("Last-Event-ID"); id != "" && c.ids[id] {
		c.conns++
		c.resumes++
		return c.conns
	}
	return 0
}

// pass hands over event by event and breaks the connection where planned.
func (c *cutter) pass(w http.ResponseWriter, answer *http.Response, n int, late *atomic.Bool) {
	for k, v := range answer.Header {
		w.Header()[k] = v
	}
	w.Header().Del(c.plan.strip)
	w.WriteHeader(answer.StatusCode)
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		io.Copy(w, answer.Body)
		return
	}
	http.NewResponseController(w).Flush()
	in := bufio.NewReader(answer.Body)
	for seen := 0; ; {
		event, id, err := readEvent(in)
		if n > 0 && id != "" {
			c.remember(id)
		}
		w.Write(event)
		http.NewResponseController(w).Flush()
		if bytes.Contains(event, []byte(`"notifications/progress"`)) {
			seen++
		}
		reached := seen == c.plan.after && (seen > 0 || id != "")
		if late.Load() || c.doomed(n) && reached {
			c.breakOff(w, n)
			return
		}
		if err != nil {
			return // the end of the server's body ends ours
		}
	}
}

func (c *cutter) remember(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.firstID == "" {
		c.firstID = id
	}
	c.ids[id] = true
}

func (c *cutter) breakOff(w http.ResponseWriter, n int) {
	if n == c.plan.cuts {
		defer close(c.broken)
	}
	switch c.plan.how {
	case abort:
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			c.t.Errorf("cutting: %v", err)
			return
		}
		reset(conn)
	case down:
		c.fall()
		panic(http.ErrAbortHandler)
	}
}

// seen is how often the call was connected, and resumed, so far.
func (c *cutter) seen() (conns, resumes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns, c.resumes
}

func (c *cutter) story() string {
	conns, resumes := c.seen()
	return fmt.Sprintf("%d connections of the call, %d of them resumed", conns, resumes)
}

// sessionID is the session that the call was made in.
func (c *cutter) sessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// first is the first event id of the call.
func (c *cutter) first() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.firstID
}

// readEvent reads one event of a text/event-stream with its empty line.
func readEvent(in *bufio.Reader) (event []byte, id string, err error) {
	for {
		line, err := in.ReadBytes('\n')
		event = append(event, line...)
		if err != nil {
			return event, id, err
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			return event, id, nil
		}
		if value, ok := strings.CutPrefix(text, "id:"); ok {
			id = strings.TrimPrefix(value, " ")
		}
	}
}

// resetListener can reset all its connections at once.
type resetListener struct {
	net.Listener
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (l *resetListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns[conn] = true
	}
	return conn, err
}

func (l *resetListener) reset() {
	l.Listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for conn := range l.conns {
		reset(conn)
	}
}

func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}
