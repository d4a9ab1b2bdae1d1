package streamable

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/session"
	"github.com/segno-mcp/segno/internal/wire"
)

type fixedIDs struct{ stream string }

func (f fixedIDs) AppendID(dst []byte, term string, seq uint64) []byte {
	return eventlog.Cursor{Stream: f.stream, Term: term, Seq: seq}.AppendTo(dst)
}

// note is a progress notification of about n bytes.
func note(n int) []byte {
	head, tail := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"message":"`, `"}}`
	return []byte(head + strings.Repeat("x", max(0, n-len(head)-len(tail))) + tail)
}

func BenchmarkEncode(b *testing.B) {
	var ids places = fixedIDs{"AAAAAAAAAAAAAAAAAAAAAA"}
	e := &eventlog.Event{Data: note(200)}
	p := &page{b: make([]byte, 0, keepPage)}
	b.ReportAllocs()
	for b.Loop() {
		e.Seq++
		if len(p.b) > 128<<10 {
			p.b = p.b[:0]
		}
		p.event(ids, "abcdef", e)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

func TestEncodingCostsNoMemory(t *testing.T) {
	var ids places = fixedIDs{"AAAAAAAAAAAAAAAAAAAAAA"}
	e := &eventlog.Event{Data: note(200)}
	p := &page{b: make([]byte, 0, 1<<10)}
	if n := testing.AllocsPerRun(100, func() {
		e.Seq++
		p.b = p.b[:0]
		p.event(ids, "abcdef", e)
	}); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
}

// real is a front on a socket, and the log behind it.
type real struct {
	log    eventlog.Log
	man    *session.Manager
	addr   string
	server *http.Server
	conns  chan wire.Conn
	buffer int // of a client, in bytes
}

func (r *real) Connect(context.Context, string) (wire.Conn, error) {
	ours, theirs := wire.Pair()
	r.conns <- theirs
	return ours, nil
}
func (r *real) Fingerprint() string { return "bench" }

func newReal(t testing.TB, lim session.Limits) *real {
	r := &real{log: memlog.New(), conns: make(chan wire.Conn, 4), buffer: 256 << 10}
	var err error
	if r.man, err = session.New(session.Options{Log: r.log, Upstream: r, Limits: lim}); err != nil {
		t.Fatal(err)
	}
	front, err := New(Options{Sessions: r.man, Who: func(*http.Request) Who { return Who{Principal: "ann"} }, ConnectionsPerPrincipal: 20000, Connections: 20000})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr, r.server = l.Addr().String(), &http.Server{Handler: front}
	done := make(chan error, 1)
	go func() { done <- r.server.Serve(l) }()
	t.Cleanup(func() {
		r.server.Close()
		<-done
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.man.Close(ctx)
		r.log.Close()
	})
	return r
}

// raw sends a request on a connection of its own and returns it behind the
// head of the answer.
func (r *real) raw(t testing.TB, method, session, headers, body string) (net.Conn, *bufio.Reader, string) {
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	if session != "" {
		headers += "Mcp-Session-Id: " + session + "\r\n"
	}
	if body != "" {
		headers += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	fmt.Fprintf(conn, "%s /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\n%s\r\n%s", method, headers, body)
	read := bufio.NewReaderSize(conn, r.buffer)
	head := ""
	for {
		line, err := read.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if head += line; line == "\r\n" {
			return conn, read, head
		}
	}
}

func (r *real) open(t testing.TB) (string, wire.Conn) {
	type opened struct{ id string }
	done := make(chan opened, 1)
	go func() {
		conn, _, head := r.raw(t, "POST", "", "", initialize("2025-11-25"))
		conn.Close()
		_, after, _ := strings.Cut(head, "Mcp-Session-Id: ")
		id, _, _ := strings.Cut(after, "\r\n")
		done <- opened{id}
	}()
	c := <-r.conns
	msgs, err := c.Recv(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	answer := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, msgs[0].IDText())
	if err := c.Send(context.Background(), answer); err != nil {
		t.Fatal(err)
	}
	return (<-done).id, c
}

// drain reads until n events have come.
func drain(t testing.TB, read io.Reader, n int) {
	buf := make([]byte, 256<<10)
	end, last := []byte("\n\n"), byte(0)
	for seen := 0; seen < n; {
		got, err := read.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		seen += bytes.Count(buf[:got], end)
		if last == '\n' && buf[0] == '\n' {
			seen++
		}
		last = buf[got-1]
	}
}

// firstEventID reads up to the first id of a stream.
func firstEventID(t testing.TB, read *bufio.Reader) string {
	for {
		line, err := read.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			return strings.TrimSpace(id)
		}
	}
}

// call starts a tool call and returns its connection, the first id, and the
// text of a progress notification for it.
func (r *real) call(t testing.TB, id string, c wire.Conn, rpcID int) (conn net.Conn, read *bufio.Reader, cursor string, text []byte) {
	conn, read, _ = r.raw(t, "POST", id, "", fmt.Sprintf(callTool, strconv.Itoa(rpcID)))
	cursor = firstEventID(t, read)
	msgs, err := c.Recv(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	token, err := msgs[0].Find("params", "_meta", "progressToken")
	if err != nil {
		t.Fatal(err)
	}
	mine := append([]byte(`"progressToken":`), msgs[0].Text(token)...)
	return conn, read, cursor, bytes.Replace(note(200), []byte(`"progressToken":1`), mine, 1)
}

// BenchmarkReplay reads 100,000 events of 200 bytes that are in the log, over a
// socket: the write loop, the log and a client that only counts, on the same
// processors.
func BenchmarkReplay(b *testing.B) {
	const held = 100000
	r := newReal(b, session.Limits{RetainEvents: held * 2, RetainBytes: 1 << 30, SessionMax: 1 << 30})
	id, c := r.open(b)
	conn, read, cursor, text := r.call(b, id, c, 1)
	go func() {
		for range held {
			if err := c.Send(context.Background(), text); err != nil {
				return
			}
		}
	}()
	drain(b, read, held)
	conn.Close()
	for b.Loop() {
		conn, read, _ := r.raw(b, "GET", id, "Last-Event-ID: "+cursor+"\r\n", "")
		drain(b, read, held)
		conn.Close()
	}
	b.ReportMetric(float64(b.N)*held/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkLive is the whole way of a message: from the server's connection
// through the log to a client on a socket.
func BenchmarkLive(b *testing.B) {
	r := newReal(b, session.Limits{})
	id, c := r.open(b)
	conn, read, _, text := r.call(b, id, c, 1)
	defer conn.Close()
	go func() {
		for range b.N {
			if err := c.Send(context.Background(), text); err != nil {
				return
			}
		}
	}()
	b.ResetTimer()
	drain(b, read, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// TestIdleConnectionsAreSmall measures what a connection costs that waits. It
// is the whole process that is looked at, so it does not run beside others.
func TestIdleConnectionsAreSmall(t *testing.T) {
	count, err := strconv.Atoi(os.Getenv("SEGNO_IDLE"))
	if err != nil {
		t.Skip("measured when SEGNO_IDLE says how many connections")
	}
	r := newReal(t, session.Limits{Sessions: 2 * count, SessionsPerPrincipal: 2 * count, Children: 2 * count, ChildrenPerPrincipal: 2 * count})
	r.buffer = 16
	calls := os.Getenv("SEGNO_IDLE_OF") == "calls"
	id, c := r.open(t)
	ids := []string{id}
	for range count {
		if !calls {
			id, _ := r.open(t)
			ids = append(ids, id)
		}
	}
	var m runtime.MemStats
	before := resident(t)
	runtime.ReadMemStats(&m)
	heap, stacks := m.HeapInuse, m.StackInuse
	for n := range count {
		if calls {
			conn, _, _, _ := r.call(t, id, c, n)
			defer conn.Close()
			continue
		}
		conn, read, _ := r.raw(t, "GET", ids[n], "", "")
		firstEventID(t, read)
		defer conn.Close()
	}
	time.Sleep(time.Second) // the last of them have still to settle
	resident(t)
	t.Logf("%d connections: %d bytes resident each", count, (resident(t)-before)/count)
	runtime.ReadMemStats(&m)
	t.Logf("heap %d, stacks %d each", int(m.HeapInuse-heap)/count, int(m.StackInuse-stacks)/count)
}

func resident(t *testing.T) int {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("there is no /proc/self/statm here")
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// BenchmarkCall is a call that is answered at once, as JSON, on one connection.
func BenchmarkCall(b *testing.B) {
	r := newReal(b, session.Limits{})
	id, c := r.open(b)
	go func() {
		for {
			msgs, err := c.Recv(context.Background())
			if err != nil {
				return
			}
			for _, m := range msgs {
				if m.Kind == wire.Request {
					c.Send(context.Background(), wire.AppendResponse(nil, m.IDText(), []byte(`{"content":[]}`)))
				}
			}
		}
	}()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	read := bufio.NewReader(conn)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{}}}`, n)
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nMcp-Session-Id: %s\r\nMcp-Protocol-Version: 2025-11-25\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)
		res, err := http.ReadResponse(read, nil)
		if err != nil || res.StatusCode != 200 {
			b.Fatal(res, err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
	}
}
