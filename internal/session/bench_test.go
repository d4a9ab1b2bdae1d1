package session

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// echoConn answers every request at once, without a goroutine of its own.
type echoConn struct {
	in     chan []byte
	closed chan struct{}
	done   atomic.Bool
	msgs   []wire.Message
}

func (e *echoConn) Send(_ context.Context, msg []byte) error {
	m, err := wire.Parse(msg)
	if err != nil {
		return err
	}
	result := `{"content":[{"type":"text","text":"ok"}]}`
	if m.Method == wire.Initialize {
		result = `{"protocolVersion":"2025-11-25","capabilities":{}}`
	}
	if m.Kind == wire.Request {
		e.in <- wire.AppendResponse(nil, m.IDText(), []byte(result))
	}
	return nil
}

func (e *echoConn) Recv(context.Context) ([]wire.Message, error) {
	select {
	case raw := <-e.in:
		e.msgs = e.msgs[:0]
		for {
			m, err := wire.Parse(raw)
			if err != nil {
				return nil, err
			}
			e.msgs = append(e.msgs, m)
			select {
			case raw = <-e.in:
			default:
				return e.msgs, nil
			}
		}
	case <-e.closed:
		return nil, &wire.Gone{Reason: "closed"}
	}
}

func (e *echoConn) Close() error {
	if e.done.CompareAndSwap(false, true) {
		close(e.closed)
	}
	return nil
}

type echoUpstream struct{}

func (echoUpstream) Connect(context.Context, string) (wire.Conn, error) {
	return &echoConn{in: make(chan []byte, 1024), closed: make(chan struct{})}, nil
}

func (echoUpstream) Fingerprint() string { return "echo" }

func benchSession(b *testing.B, m *Manager) *Session {
	s, c, err := m.Create(b.Context(), "anon", message(b, initText), ClientInfo{})
	if err != nil {
		b.Fatal(err)
	}
	r := s.AttachCall(c, Oldest)
	defer r.Close()
	collect(b, r)
	return s
}

func benchManager(b *testing.B) *Manager {
	m, err := New(Options{Log: memlog.New(), Upstream: echoUpstream{}, Limits: Limits{SessionMax: 1 << 40, PrincipalMax: 1 << 40, StoreMax: 1 << 40}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// BenchmarkCall is a call from its request to its outcome, as a front sees it.
func BenchmarkCall(b *testing.B) {
	s := benchSession(b, benchManager(b))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		benchCall(b, s, i+1)
	}
}

// BenchmarkCalls is the same from many goroutines in eight sessions.
func BenchmarkCalls(b *testing.B) {
	m := benchManager(b)
	var sessions []*Session
	for range 8 {
		sessions = append(sessions, benchSession(b, m))
	}
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(32)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			benchCall(b, sessions[i%8], int(i))
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

func benchCall(b *testing.B, s *Session, id int) {
	msg, perr := wire.Parse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":{"a":1}}}`, id))
	if perr != nil {
		b.Fatal(perr)
	}
	c, err := s.Call(b.Context(), &msg, CallOptions{})
	if err != nil {
		b.Fatal(err)
	}
	r := s.AttachCall(c, Oldest)
	for {
		d, err := r.Next(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if d.Ended {
			break
		}
		if d.Wait {
			<-r.C()
		}
	}
	r.Close()
}

// BenchmarkRoute is what a batch of 300 lines of progress of four calls costs,
// from the server's connection into the streams' queues and the log.
func BenchmarkRoute(b *testing.B) {
	m := benchManager(b)
	s := benchSession(b, m)
	var lines []wire.Message
	ch := s.child
	var streams []*stream
	for i := range 4 {
		st := s.newStream(s.rememberBatch(nil), 1)
		c := &call{st: st, id: []byte("1"), token: []byte(`"token"`), traced: func(string) {}}
		if _, err := s.accept(b.Context(), st, message(b, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), ""); err != nil {
			b.Fatal(err)
		}
		inner, _ := s.enlist(ch, c)
		streams = append(streams, st)
		for n := range 75 {
			lines = append(lines, *message(b, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":%d,"total":75,"message":"working on part %d of call %d"}}`, inner, n, n, i))
		}
	}
	route := builder{ch: ch}
	b.ReportAllocs()
	for b.Loop() {
		route.route(lines)
		for _, st := range streams {
			st.flushed()
		}
	}
	b.ReportMetric(float64(b.N)*float64(len(lines))/b.Elapsed().Seconds(), "events/s")
}
