package streamable

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

func TestOwnStreamLeavesTheServerAndGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		res := r.resume(id, "")
		if !res.Close {
			t.Error("the client was not told that the connection ends with the answer")
		}
		s := r.stream(res)
		s.next()
		synctest.Wait()
		big := strings.Repeat("x", 3*piece)
		for n, data := range []string{`"small"`, `"` + big + `"`, `"after"`} {
			child.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`, data)
			if e := s.next(); !strings.Contains(string(e.Data), data) || e.ID == "" {
				t.Fatalf("event %d is of %d bytes with id %q", n, len(e.Data), e.ID)
			}
		}
		r.man.Drain()
		s.rest() // ends with the last chunk, not with a broken connection
		synctest.Wait()
		if err := r.front.Empty(t.Context()); err != nil {
			t.Error(err)
		}
		if got := r.logs.lines("connection ended", "why=drained", "events=3"); len(got) != 1 {
			t.Errorf("%d log lines tell of its end", len(got))
		}
	})
}

func TestDetachedStreamNoticesThatTheClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		s := r.stream(r.resume(id, ""))
		s.next()
		synctest.Wait()
		began := time.Now()
		s.res.Body.Close()
		if err := r.front.Empty(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("noticed after %v (%v)", time.Since(began), err)
		}
		if got := r.logs.lines("connection ended", "why=client_gone"); len(got) != 1 {
			t.Errorf("%d log lines tell of its end", len(got))
		}
	})
}

func TestDetachedStreamThatIsNotReadEndsByTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		r.stream(r.resume(id, "")).next()
		synctest.Wait()
		link := r.net.Last()
		link.Freeze()
		child.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, strings.Repeat("x", 1<<20))
		time.Sleep(31 * time.Second)
		if err := r.front.Empty(t.Context()); err != nil {
			t.Error(err)
		}
		if got := r.logs.lines("connection ended", "why=write_timeout"); len(got) != 1 {
			t.Errorf("%d log lines tell of its end", len(got))
		}
		link.Cut()
	})
}

func TestPanicOfADetachedStreamStaysWithinIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := false
		r := newRig(t, setup{front: Options{Meter: bomb{&boom}}})
		id, child := r.open("2025-11-25")
		s := r.stream(r.resume(id, ""))
		s.next()
		synctest.Wait()
		boom = true
		child.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		if _, err := io.ReadAll(s.res.Body); err == nil {
			t.Error("half an answer looks like a whole one")
		}
		if got := r.logs.lines("level=ERROR", "a stream panicked"); len(got) != 1 {
			t.Errorf("%d log lines tell of the panic", len(got))
		}
		boom = false
		r.stream(r.resume(id, "")).next()
	})
}

// bomb is a meter that panics when messages go out, while it is armed.
type bomb struct{ armed *bool }

func (b bomb) Add(m metric.Name, _ string, _ float64) {
	if m == metric.MessagesOut && *b.armed {
		panic("as the test wants it")
	}
}
func (bomb) Observe(metric.Name, string, float64) {}

func TestHTTP10StreamStaysWithTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		conn, err := r.net.Dial(t.Context(), "tcp", "segno")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /mcp HTTP/1.0\r\nHost: segno\r\nAccept: text/event-stream\r\nMcp-Session-Id: "+id+"\r\n\r\n")
		synctest.Wait()
		child.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		time.Sleep(16 * time.Second)
		r.man.Drain()
		all, err := io.ReadAll(conn)
		_, body, _ := strings.Cut(string(all), "\r\n\r\n")
		if err != nil || strings.Contains(body, "\r\n") || !strings.Contains(body, "list_changed") || !strings.Contains(body, "\n:\n") {
			t.Errorf("the answer is %q (%v)", all, err)
		}
	})
}
