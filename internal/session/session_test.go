package session

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// server is the other end of one child, driven by the test.
type server struct {
	t *testing.T
	c wire.Conn
}

type dialer struct{ conns chan wire.Conn }

func (d *dialer) Connect(context.Context, string) (wire.Conn, error) {
	ours, theirs := wire.Pair()
	d.conns <- theirs
	return ours, nil
}
func (d *dialer) Fingerprint() string { return "test" }

func (s *server) recv() wire.Message {
	s.t.Helper()
	msgs, err := s.c.Recv(s.t.Context())
	if err != nil {
		s.t.Fatalf("the server's end: %v", err)
	}
	m := msgs[0]
	m.Raw = append([]byte(nil), m.Raw...)
	return m
}

func (s *server) send(format string, a ...any) {
	s.t.Helper()
	if err := s.c.Send(s.t.Context(), fmt.Appendf(nil, format, a...)); err != nil {
		s.t.Fatal(err)
	}
}

func message(t *testing.T, format string, a ...any) *wire.Message {
	t.Helper()
	m, err := wire.Parse(fmt.Appendf(nil, format, a...))
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

type bench struct {
	t *testing.T
	m *Manager
	d *dialer
}

func newBench(t *testing.T, o Options) *bench {
	d := &dialer{conns: make(chan wire.Conn, 10)}
	o.Upstream = d
	if o.Log == nil {
		o.Log = memlog.New()
	}
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, m, d}
}

func (b *bench) open() (*Session, *server) {
	b.t.Helper()
	s, c, err := b.m.Create(b.t.Context(), "anon", message(b.t,
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`), ClientInfo{})
	if err != nil {
		b.t.Fatal(err)
	}
	srv := &server{b.t, <-b.d.conns}
	m := srv.recv()
	srv.send(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`, m.IDText())
	r := s.AttachCall(c, Oldest)
	defer r.Close()
	got := collect(b.t, r)
	if len(got) != 1 || !strings.Contains(got[0], `"logging":{}`) || !strings.Contains(got[0], `"id":0`) {
		b.t.Fatalf("initialize was answered with %q", got)
	}
	return s, srv
}

// collect reads a stream to its end.
func collect(t *testing.T, r *Reader) []string {
	t.Helper()
	var got []string
	for {
		d, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d.Notice != nil {
			got = append(got, string(d.Notice))
		}
		for _, e := range d.Events {
			got = append(got, string(e.Data))
			r.Sent(e.Seq, true)
		}
		if d.Ended {
			return got
		}
		if d.Wait {
			<-r.C()
		}
	}
}

func TestCallStreamsProgressAndOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s, srv := b.open()
		c, err := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"x","_meta":{"progressToken":"tok"}}}`), CallOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m := srv.recv()
		if strings.Contains(string(m.Raw), "tok") {
			t.Errorf("the client's token reached the server: %s", m.Raw)
		}
		for i := range 3 {
			srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.IDText(), i)
		}
		srv.send(`{"jsonrpc":"2.0","id":%s,"result":{"n":9007199254740993}}`, m.IDText())
		r := s.AttachCall(c, Oldest)
		got := collect(t, r)
		id, err := r.PrimingID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		if len(got) != 4 || got[3] != `{"jsonrpc":"2.0","id":"a","result":{"n":9007199254740993}}` || !strings.Contains(got[0], `"progressToken":"tok"`) {
			t.Fatalf("the client got %q", got)
		}
		res, err := s.Resume(t.Context(), id, Oldest)
		if err != nil || res.Result != Current || res.Reader != nil {
			t.Errorf("resuming at the end: %+v, %v", res, err)
		}
	})
}

func TestResumeAtEveryPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{RetainEvents: 5}})
		s, srv := b.open()
		c, _ := s.Call(t.Context(), message(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":1}}}`), CallOptions{})
		m := srv.recv()
		for i := range 12 {
			srv.send(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, m.IDText(), i)
			synctest.Wait()
		}
		info, err := s.m.log.Stat(t.Context(), eventlog.Key{Session: s.name, Stream: c.Stream})
		if err != nil {
			t.Fatal(err)
		}
		for place := uint64(1); place <= 13; place++ {
			res, err := s.Resume(t.Context(), idAt(info, c.Stream, place, ""), Oldest)
			if err != nil {
				t.Fatal(err)
			}
			want := Exact
			switch {
			case place < 8:
				want = Evicted
			case place == 13:
				want = Current
			}
			if res.Result != want {
				t.Errorf("place %d: %s, want %s", place, res.Result, want)
			}
			res.Reader.Close()
		}
	})
}
