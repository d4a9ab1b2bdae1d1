package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/upstream/remote"
	"github.com/segno-mcp/segno/internal/wire"
)

// fakes is an upstream of scripted servers, which all count as one.
type fakes struct {
	t  *testing.T
	mu sync.Mutex
	s  []*fakemcp.Server
}

func (f *fakes) Fingerprint() string { return "fakes" }

func (f *fakes) Connect(context.Context, string) (wire.Conn, error) {
	conn, s := fakemcp.Start(f.t, fakemcp.Options{})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.s = append(f.s, s)
	return conn, nil
}

// runs is how often a tool ran, at any of the servers.
func (f *fakes) runs(key string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.s {
		n += s.Runs(key)
	}
	return n
}

// house is a Segno on a network in memory, which can be stopped and started.
type house struct {
	t     *testing.T
	net   *memnet.Net
	log   eventlog.Log
	fakes *fakes
	up    segno.Upstream // nil: the fakes
	o     segno.Options

	mu     sync.Mutex
	server *segno.Server
	seats  chan struct{} // of the handlers that run
	closed chan struct{}
}

func (h *house) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case <-h.closed:
		return
	case h.seats <- struct{}{}:
	}
	defer func() { <-h.seats }()
	h.mu.Lock()
	s := h.server
	h.mu.Unlock()
	s.ServeHTTP(w, r)
}

func newHouse(t *testing.T, o segno.Options) *house { return houseBefore(t, nil, o) }

// before is a house that stands before another one.
func (h *house) before() *house {
	up, err := segno.Remote(segno.RemoteOptions{URL: "http://segno.test/mcp", Dial: h.net.Dial})
	if err != nil {
		h.t.Fatal(err)
	}
	front := houseBefore(h.t, up, segno.Options{})
	front.fakes = h.fakes
	return front
}

func houseBefore(t *testing.T, up segno.Upstream, o segno.Options) *house {
	h := &house{up: up, t: t, net: memnet.Listen(), log: memlog.New(), fakes: &fakes{t: t}, o: o, seats: make(chan struct{}, 200), closed: make(chan struct{})}
	t.Cleanup(func() {
		h.net.Cut()
		h.close()
		close(h.closed)
		for range cap(h.seats) {
			h.seats <- struct{}{}
		}
		h.log.Close()
	})
	h.start()
	memnet.Run(t, h.net, &http.Server{Handler: h})
	return h
}

func (h *house) start() {
	h.o.Log, h.o.AllowHost = h.log, []string{"segno.test"}
	up := h.up
	if up == nil {
		up = h.fakes
	}
	s, err := segno.New(up, h.o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.server = s
}

func (h *house) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.server.Close(ctx); err != nil {
		h.t.Error(err)
	}
}

// restart stops Segno for a while. log is what it finds then.
func (h *house) restart(down time.Duration, log eventlog.Log) {
	h.net.Refuse(true)
	h.net.Cut()
	h.close()
	time.Sleep(down)
	if log != h.log {
		h.log.Close()
		h.log = log
	}
	h.start()
	h.net.Refuse(false)
}

// client is one that speaks through the remote.
type client struct {
	t    *testing.T
	conn wire.Conn
	rec  *remote.Record
	over chan struct{}
	wake chan struct{}

	mu  sync.Mutex
	log bytes.Buffer
	got []wire.Message
}

func (c *client) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func (h *house) client(o remote.Options) *client {
	h.t.Helper()
	c := &client{t: h.t, rec: remote.NewRecord(), over: make(chan struct{}), wake: make(chan struct{}, 1)}
	o.URL, o.Dial, o.Trace = "http://segno.test/mcp", h.net.Dial, c.rec
	o.Logger = slog.New(slog.NewTextHandler(c, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s, err := remote.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	if c.conn, err = s.Connect(h.t.Context(), ""); err != nil {
		h.t.Fatal(err)
	}
	go c.receive()
	h.t.Cleanup(c.close)
	return c
}

func (c *client) close() {
	c.conn.Close()
	<-c.over
	if c.t.Failed() {
		c.t.Logf("log:\n%s", c.log.String())
	}
}

func (c *client) receive() {
	defer close(c.over)
	for {
		msgs, err := c.conn.Recv(context.Background())
		if err != nil {
			return
		}
		c.mu.Lock()
		for _, m := range msgs {
			m.Raw = bytes.Clone(m.Raw)
			c.got = append(c.got, m)
		}
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

func (c *client) send(msg []byte) {
	c.t.Helper()
	if err := c.conn.Send(c.t.Context(), msg); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) init() {
	c.t.Helper()
	c.send(fakemcp.Init(`"init"`, wire.Rev2025))
	c.answer(`"init"`)
	c.send(fakemcp.Ready())
}

// answers are the responses to an id, and how much progress came with it as its
// token, each number once and in order or the test fails.
func (c *client) answers(id string) (list []string, steps int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.got {
		m := &c.got[i]
		token, _ := m.Find("params", "progressToken")
		switch {
		case m.Kind >= wire.Result && string(m.IDText()) == id:
			list = append(list, string(m.Raw))
		case m.Method == wire.ProgressNote && string(m.Text(token)) == id:
			steps++
			at, _ := m.Find("params", "progress")
			if string(m.Text(at)) != fmt.Sprint(steps) {
				c.t.Errorf("progress %s of %s came in place %d", m.Text(at), id, steps)
			}
		}
	}
	return list, steps
}

func (c *client) answer(id string) string {
	c.t.Helper()
	late := time.After(time.Hour)
	for {
		if list, _ := c.answers(id); len(list) > 0 {
			return list[0]
		}
		select {
		case <-c.wake:
		case <-late:
			c.t.Fatalf("no answer to %s\nlog:\n%s", id, c.log.String())
		}
	}
}

// once checks that a call has exactly one answer with a text in it, all of its
// progress, and that its tool ran so often.
func (c *client) once(h *house, id, text string, steps, runs int) {
	c.t.Helper()
	c.answer(id)
	synctest.Wait()
	list, n := c.answers(id)
	if len(list) != 1 || !strings.Contains(list[0], text) || n != steps || h.fakes.runs("k"+id) != runs {
		c.t.Errorf("call %s: %d answers %s, %d progress of %d, ran %d times", id, len(list), list, n, steps, h.fakes.runs("k"+id))
	}
}

func (c *client) count(id string, n, ms int) {
	c.t.Helper()
	c.send(fakemcp.Call(id, "count", fmt.Sprintf(`{"n":%d,"interval_ms":%d,"key":"k%s"}`, n, ms, id), id))
}

// quick is a call that is answered at once.
func (c *client) quick(id string) {
	c.t.Helper()
	c.send(fakemcp.Call(id, "echo", `{"key":"k`+id+`"}`, ""))
}

// TestCutAtEveryByte cuts a call at every byte that the server sends for it:
// there is one answer, the result, the tool ran once, and no progress is lost.
func TestCutAtEveryByte(t *testing.T) {
	for _, way := range []string{"long", "short"} {
		total := int64(2)
		for at := int64(1); at < total; at++ {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, segno.Options{})
				c := h.client(remote.Options{})
				c.init()
				time.Sleep(10 * time.Second) // the call gets a connection of its own
				first := len(h.net.Links())
				var link *memnet.Link
				h.net.OnDial = func(n int, l *memnet.Link) {
					if n == first {
						link = l
						l.CutAfter(at)
					}
				}
				if way == "short" {
					c.quick("7")
					c.once(h, "7", `"key":"k7"`, 0, 1)
				} else {
					c.count("7", 3, 20)
					c.once(h, "7", "counted to 3", 3, 1)
				}
				total = max(total, link.Down())
				if sums := c.rec.Sums(); sums.Gaps > 0 {
					t.Errorf("cut after %d: %+v", at, sums)
				}
			})
			if t.Failed() {
				t.Fatalf("%s, cut after %d of %d bytes", way, at, total)
			}
			if total == 2 || at == 1 {
				total = whole(t, way)
			}
		}
		t.Logf("%s: cut after each of %d bytes", way, total)
		if total < 100 {
			t.Errorf("%s: only %d bytes", way, total)
		}
	}
}

// whole is how many bytes the server sends for the call if nothing is cut.
func whole(t *testing.T, way string) (n int64) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, segno.Options{})
		c := h.client(remote.Options{})
		c.init()
		time.Sleep(10 * time.Second)
		if way == "short" {
			c.quick("7")
		} else {
			c.count("7", 3, 20)
		}
		c.answer("7")
		synctest.Wait()
		n = h.net.Last().Down()
	})
	return n
}

// TestOutages: as TestOutage of the scripted server, before a real Segno.
func TestOutages(t *testing.T) {
	for _, outage := range []time.Duration{200 * time.Millisecond, 6 * time.Second, time.Minute} {
		t.Run(outage.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, segno.Options{})
				c := h.client(remote.Options{})
				c.init()
				c.count("7", 16, 500)
				c.count("8", 200, 500)
				time.Sleep(time.Second)
				h.net.Refuse(true)
				h.net.Cut()
				c.quick("9")
				time.Sleep(outage)
				h.net.Refuse(false)
				c.once(h, "7", "counted to 16", 16, 1)
				c.once(h, "8", "counted to 200", 200, 1)
				c.once(h, "9", `"key"`, 0, 1)
				if sums := c.rec.Sums(); sums.Duplicates > 0 || sums.Gaps > 0 {
					t.Errorf("%+v", sums)
				}
			})
		})
	}
}

// TestRestart: Segno is stopped in the middle of a call. On the same log the
// session goes on; on another one a new session is opened.
func TestRestart(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprint("kept ", kept), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, segno.Options{})
				c := h.client(remote.Options{})
				c.init()
				c.count("7", 100, 500)
				time.Sleep(2 * time.Second)
				log := h.log
				if !kept {
					log = memlog.New()
				}
				go c.quick("8")
				h.restart(5*time.Second, log)
				c.quick("9")
				c.answer("7")
				list, _ := c.answers("7")
				if len(list) != 1 || !strings.Contains(list[0], `"outcome":"unknown"`) || h.fakes.runs("k7") != 1 {
					t.Errorf("answers %s, ran %d times", list, h.fakes.runs("k7"))
				}
				c.answer("8")
				c.once(h, "9", `"key"`, 0, 1)
				if n := h.fakes.runs("k8"); n > 1 {
					t.Errorf("a call at the moment of the stop ran %d times", n)
				}
			})
		})
	}
}

// TestField58_HalfOpenSegno: the network goes silent with a call running, and
// with one just being made.
func TestField58_HalfOpenSegno(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, segno.Options{})
		c := h.client(remote.Options{})
		c.init()
		c.count("7", 20, 1000)
		time.Sleep(5 * time.Second)
		for _, l := range h.net.Links() {
			l.Freeze()
		}
		c.count("8", 3, 10)
		began := time.Now()
		c.once(h, "7", "counted to 20", 20, 1)
		c.once(h, "8", "counted to 3", 3, 1)
		if d := time.Since(began); d > 50*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// TestEvictedWhileAway: the notice reaches the client, and is recorded.
func TestEvictedWhileAway(t *testing.T) {
	for _, onGap := range []string{remote.Continue, remote.Fail} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, segno.Options{RetainEvents: 5})
			c := h.client(remote.Options{OnGap: onGap})
			c.init()
			c.send(fakemcp.Call("7", "count", `{"n":100,"interval_ms":100,"key":"k7"}`, `"t"`))
			time.Sleep(time.Second)
			h.net.Refuse(true)
			h.net.Cut()
			time.Sleep(5 * time.Second)
			h.net.Refuse(false)
			got := c.answer("7")
			synctest.Wait()
			gaps := c.rec.Gaps()
			if len(gaps) != 1 || gaps[0].Lost == 0 || gaps[0].Reason != "retention" || gaps[0].Stream != "7" {
				t.Errorf("gaps %+v", gaps)
			}
			if want := map[string]string{remote.Continue: "counted to 100", remote.Fail: `"gap":{"reason":"retention"`}[onGap]; !strings.Contains(got, want) {
				t.Errorf("%s: %s", onGap, got)
			}
			sums := c.rec.Sums()
			if onGap == remote.Continue && sums.Events+int(sums.Lost) != 102 {
				t.Errorf("%+v: there were 100 reports, the notice and the answer", sums)
			}
		})
	}
}

// TestServerAsksWhileAway: a request of the server that came in an outage is
// answered after it.
func TestServerAsksWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, segno.Options{})
		c := h.client(remote.Options{})
		c.init()
		c.send(fakemcp.Call("7", "ask", `{"key":"k7"}`, `"t"`))
		for asked := false; !asked; {
			<-c.wake
			c.mu.Lock()
			for i := range c.got {
				if m := &c.got[i]; m.Method == wire.Elicitation {
					asked = true
					h.net.Refuse(true)
					h.net.Cut()
					c.send(wire.AppendResponse(nil, m.IDText(), []byte(`{"action":"accept"}`)))
				}
			}
			c.mu.Unlock()
		}
		time.Sleep(20 * time.Second)
		h.net.Refuse(false)
		if got := c.answer("7"); !strings.Contains(got, "accept") {
			t.Errorf("got %s", got)
		}
	})
}

// TestChangesWhileAway: what the session's own stream carries survives too.
func TestChangesWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, segno.Options{})
		c := h.client(remote.Options{})
		c.init()
		time.Sleep(time.Minute)
		for n := range 5 {
			h.fakes.s[0].Notify(wire.ResourceUpdated, fmt.Sprintf(`{"uri":"x:%d"}`, n))
			h.net.Cut()
			h.net.Refuse(n%2 == 0)
			time.Sleep(30 * time.Second)
		}
		h.net.Refuse(false)
		time.Sleep(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		n := 0
		for i := range c.got {
			if m := &c.got[i]; m.Method == wire.ResourceUpdated {
				if got := m.StringAt("params", "uri"); got != fmt.Sprint("x:", n) {
					t.Errorf("%s came in place %d", got, n)
				}
				n++
			}
		}
		if n != 5 {
			t.Errorf("%d of 5 came", n)
		}
	})
}

// TestReceivedOutcomesMakeRoom: what was received does not fill the session.
func TestReceivedOutcomesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, segno.Options{SessionMax: 300 << 10})
		c := h.client(remote.Options{})
		c.init()
		for n := range 100 {
			id := fmt.Sprint(n)
			c.send(fakemcp.Call(id, "big", `{"size":20000}`, ""))
			if got := c.answer(id); !strings.Contains(got, "xxx") {
				t.Fatalf("call %d: %.300s", n, got)
			}
		}
	})
}

// TestAnswerLostInALongOutage: an answer that was cut off at once, and minutes
// until the call can be sent again. Segno still knows that it ran.
func TestAnswerLostInALongOutage(t *testing.T) {
	for _, outage := range []time.Duration{time.Second, 90 * time.Second, 9 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, segno.Options{})
			c := h.client(remote.Options{})
			c.init()
			time.Sleep(10 * time.Second)
			first := len(h.net.Links())
			h.net.OnDial = func(n int, l *memnet.Link) {
				if n == first {
					l.CutAfter(40)
				}
			}
			c.quick("7")
			for h.fakes.runs("k7") == 0 {
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			h.net.Refuse(true)
			h.net.Cut()
			time.Sleep(outage)
			h.net.Refuse(false)
			c.once(h, "7", `"key":"k7"`, 0, 1)
		})
	}
}
