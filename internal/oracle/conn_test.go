package oracle

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
)

// conn is one request of a client and all that came back, byte for byte as the
// client took it. Its fields are guarded by the world's lock.
type conn struct {
	w       *world
	n       int
	c       *client
	o       opening
	link    *memnet.Link
	raw     net.Conn
	opened  moment
	head    moment // its status was read
	closed  moment
	status  int
	form    string // Content-Type
	body    string
	session string // Mcp-Session-Id of the answer
	events  []seen
	beats   int
	err     error
	why     string        // why it may break, empty: it may not
	frozen  bool          // it was, for a time
	quit    chan struct{} // closed when the client gives it up
	giveUp  sync.Once
	done    chan struct{}
}

// seen is an event as the client read it.
type seen struct {
	at   moment
	id   string
	data string
}

// opening says what a connection is for.
type opening struct {
	kind    string // for the story, and for what may come back
	method  string
	path    string
	session string
	who     string
	version string
	cursor  string
	policy  string
	body    string
	call    *call  // of a request: whose
	chain   *chain // whose place moves with what comes
	cut     cut
	expect  string // live, gone or any: what is known of the session
}

// cut is what happens to a connection at a byte of what comes down, or goes up.
type cut struct {
	down, up int64
	how      string        // reset, clean, stall or slow; empty: nothing
	pause    time.Duration // of stall and slow
}

func (k cut) String() string {
	switch {
	case k.how == "":
		return ""
	case k.up > 0:
		return fmt.Sprintf(", to be cut after %d bytes up", k.up)
	}
	return fmt.Sprintf(", %s after %d bytes", k.how, k.down)
}

func randomCut(r *rand.Rand) cut {
	at := 1 + r.Int64N(pick[int64](r, 200, 700, 3000))
	switch n := r.IntN(20); {
	case n < 4:
		return cut{how: "reset", down: at}
	case n < 7:
		return cut{how: "clean", down: at}
	case n < 8:
		return cut{how: "reset", up: at}
	case n < 9:
		return cut{how: "stall", down: at, pause: pick(r, time.Second, 20*time.Second, 2*time.Minute)}
	case n < 10:
		return cut{how: "slow", pause: 20 * time.Millisecond}
	}
	return cut{}
}

// tap is the client's end of a connection, which does what the cut says.
type tap struct {
	net.Conn
	x    *conn
	left int64
}

func (t *tap) Read(p []byte) (int, error) {
	k := t.x.o.cut
	switch {
	case k.how == "slow":
		t.x.pause(k.pause)
		p = p[:min(len(p), 100)]
	case t.left > 0:
		p = p[:min(int64(len(p)), t.left)]
	}
	n, err := t.Conn.Read(p)
	if t.left == 0 {
		return n, err
	}
	if t.left -= int64(n); t.left == 0 {
		if k.how == "clean" {
			t.x.link.CloseClean()
		} else {
			t.x.pause(k.pause)
		}
	}
	return n, err
}

// open dials and sends; what comes back is read by a goroutine of its own.
func (c *client) open(o opening) *conn {
	w := c.w
	x := &conn{w: w, c: c, o: o, done: make(chan struct{}), quit: make(chan struct{}), opened: w.now()}
	x.raw, x.link, x.err = w.dial()
	w.mu.Lock()
	x.n = len(w.conns)
	w.conns = append(w.conns, x)
	if o.chain != nil {
		o.chain.conn = x
	}
	w.mu.Unlock()
	w.tell(c.name, "#%d %s%s", x.n, x.o.kind, o.cut)
	if x.err != nil {
		x.why = "refused"
		x.end(x.err)
		return x
	}
	t := &tap{Conn: x.raw, x: x}
	switch {
	case o.cut.how == "reset" && o.cut.up > 0:
		x.link.CutAfterUp(o.cut.up)
	case o.cut.how == "reset":
		x.link.CutAfter(o.cut.down)
	case o.cut.how == "clean" || o.cut.how == "stall":
		t.left = o.cut.down
	}
	if o.cut.how != "" {
		x.why = o.cut.how
	}
	go func() { x.end(x.exchange(t)) }()
	return x
}

// dialSegno connects to the Segno that runs, in memory.
func (w *world) dialSegno() (net.Conn, *memnet.Link, error) {
	w.dialing.Lock()
	defer w.dialing.Unlock()
	if w.seg == nil {
		return nil, nil, net.ErrClosed
	}
	c, err := w.seg.net.Dial(context.Background(), "tcp", "segno")
	return c, w.seg.net.Last(), err
}

func (x *conn) end(err error) {
	if x.raw != nil {
		x.raw.Close()
	}
	m := x.w.now()
	x.w.mu.Lock()
	x.err, x.closed = err, m
	x.w.mu.Unlock()
	x.w.tell(x.c.name, "#%d ends: %v", x.n, err)
	close(x.done)
}

// drop closes the connection from the client's side, or breaks it.
func (x *conn) drop(why string, how func(*memnet.Link)) {
	x.w.mu.Lock()
	x.why = why
	x.w.mu.Unlock()
	x.w.tell(x.c.name, "#%d %s", x.n, why)
	if how != nil {
		how(x.link)
	} else {
		x.close()
	}
}

// close is the client leaving.
func (x *conn) close() {
	x.giveUp.Do(func() { close(x.quit) })
	x.raw.Close()
}

// pause reads nothing for a while.
func (x *conn) pause(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.quit:
	}
}

// wait waits for the connection's end, but not for ever.
func (x *conn) wait(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-x.done:
	case <-t.C:
	}
}

func (x *conn) over() bool {
	select {
	case <-x.done:
		return true
	default:
		return false
	}
}

func (x *conn) request() string {
	var b strings.Builder
	o := &x.o
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\n", o.method, o.path)
	header := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	header("Authorization", "Bearer "+o.who)
	header("Mcp-Session-Id", o.session)
	header("Mcp-Protocol-Version", o.version)
	header("Last-Event-ID", o.cursor)
	header("Segno-On-Gap", o.policy)
	switch o.method {
	case http.MethodGet:
		header("Accept", "text/event-stream")
	case http.MethodPost:
		header("Accept", "application/json, text/event-stream")
		header("Content-Type", "application/json")
		header("Content-Length", fmt.Sprint(len(o.body)))
	}
	b.WriteString("\r\n")
	b.WriteString(o.body)
	return b.String()
}

// exchange sends the request and reads the answer to its end.
func (x *conn) exchange(t net.Conn) error {
	if _, err := io.WriteString(t, x.request()); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(t, 512), &http.Request{Method: x.o.method})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	m := x.w.now()
	x.w.mu.Lock()
	x.head, x.status, x.form, x.session = m, res.StatusCode, res.Header.Get("Content-Type"), res.Header.Get("Mcp-Session-Id")
	x.w.mu.Unlock()
	x.w.tell(x.c.name, "#%d is answered %d %s", x.n, x.status, x.form)
	if x.form == "text/event-stream" {
		return x.read(res.Body)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if len(body) > 0 {
		x.w.tell(x.c.name, "#%d: %s", x.n, short(string(body)))
	}
	x.w.mu.Lock()
	x.body = string(body)
	x.w.mu.Unlock()
	x.c.take(x, seen{at: x.w.now(), data: string(body)})
	return nil
}

// read reads events as Segno writes them. A line that it has no reason to
// write is a broken promise, though a client would overlook it.
func (x *conn) read(body io.Reader) error {
	lines := bufio.NewReaderSize(body, 4096)
	e := seen{}
	var data []string
	for {
		text, err := lines.ReadString('\n')
		if err == io.EOF && text == "" && data == nil && e.id == "" {
			return nil
		}
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		text = strings.TrimSuffix(text, "\n")
		name, value, _ := strings.Cut(text, ": ")
		switch {
		case text == "" && data != nil:
			e.at, e.data = x.w.now(), strings.Join(data, "\n")
			x.took(e)
			e, data = seen{}, nil
		case text == "" && e.id != "":
			x.w.broken(x.c.name, "wire", "#%d: id %q without data", x.n, e.id)
		case text == ":" && data == nil && e.id == "":
			x.beats++
		case name == "id" && e.id == "" && data == nil:
			e.id = value
		case name == "data":
			data = append(data, value)
		case text != "" && name != "retry":
			x.w.broken(x.c.name, "wire", "#%d: line %q", x.n, text)
		}
	}
}

func (x *conn) took(e seen) {
	x.w.mu.Lock()
	x.events = append(x.events, e)
	x.w.mu.Unlock()
	x.w.tell(x.c.name, "#%d event %s %s", x.n, x.w.place(e.id), short(e.data))
	x.c.take(x, e)
}

func short(s string) string {
	if len(s) > 160 {
		return s[:100] + fmt.Sprintf(" …%d bytes… ", len(s)-140) + s[len(s)-40:]
	}
	return s
}
