package streamable

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestField9_HeartbeatsAreCommentsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		for _, kind := range []string{"get", "post"} {
			var res *http.Response
			if kind == "get" {
				res = r.resume(id, "")
			} else {
				res = r.post(id, callTool, `1`)
				child.recv()
			}
			var got bytes.Buffer
			done := make(chan struct{})
			go func() { defer close(done); io.Copy(&got, res.Body) }()
			time.Sleep(46 * time.Second)
			r.net.Cut()
			<-done
			_, after, _ := strings.Cut(got.String(), "\n\n")
			if after != ":\n:\n:\n" {
				t.Errorf("%s: three heartbeats look like %q", kind, after)
			}
		}
	})
}

func TestField30_StreamHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		q := r.request("POST", id, fmt.Sprintf(callTool, `1`))
		q.Header.Set("Accept-Encoding", "gzip, br")
		post := r.do(q)
		child.recv()
		for _, res := range []*http.Response{post, r.resume(id, ""), r.resume(id, "unknown")} {
			for name, want := range map[string]string{
				"Content-Type": "text/event-stream", "Cache-Control": "no-cache, no-transform",
				"X-Accel-Buffering": "no", "Content-Encoding": "",
			} {
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
		}
	})
}

func TestField92_GetIsAStreamOrRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		for accept, status := range map[string]int{
			"text/event-stream": 200, "*/*": 200, "": 200, "text/*": 200,
			"text/html": 406, "application/json": 406, "image/png, text/html": 406,
		} {
			q := r.request("GET", id, "")
			q.Header.Del("Accept")
			if accept != "" {
				q.Header.Set("Accept", accept)
			}
			res := r.do(q)
			if res.StatusCode != status {
				t.Errorf("%q: %s, want %d", accept, res.Status, status)
			}
			if status == 200 {
				r.stream(res).next() // it is open, and says something at once
			}
		}
	})
}

// bare hides what a ResponseWriter can do, as a careless handler does.
type bare struct{ http.ResponseWriter }

// half hides Flush alone.
type half struct{ http.ResponseWriter }

func (h half) SetWriteDeadline(t time.Time) error {
	return http.NewResponseController(h.ResponseWriter).SetWriteDeadline(t)
}

func (h half) SetReadDeadline(t time.Time) error {
	return http.NewResponseController(h.ResponseWriter).SetReadDeadline(t)
}

func TestField47_HiddenWriterIsSaidAtTheFirstRequest(t *testing.T) {
	for name, hide := range map[string]func(http.ResponseWriter) http.ResponseWriter{
		"all":   func(w http.ResponseWriter) http.ResponseWriter { return bare{w} },
		"flush": func(w http.ResponseWriter) http.ResponseWriter { return half{w} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, setup{wrap: func(h http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { h.ServeHTTP(hide(w), q) })
				}})
				isError(t, r.post("", "%s", initialize("2025-11-25")), http.StatusInternalServerError, wire.CodeInternal, "null")
				if got := r.logs.lines("level=ERROR", "Unwrap"); len(got) == 0 {
					t.Error("the log does not say what is wrong")
				}
			})
		})
	}
}

func TestField46_WriteTimeoutOfTheServerDoesNotHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		n := memnet.Listen()
		r.client = memnet.Run(t, n, &http.Server{Handler: r.front, WriteTimeout: 2 * time.Second})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		own := r.stream(r.resume(id, ""))
		m := child.recv()
		s.next()
		own.next()
		time.Sleep(5 * time.Second)
		child.progress(&m, 1)
		s.next()
		child.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		own.next()
		child.answer(&m, `{}`)
		if rest := s.rest(); len(rest) != 1 {
			t.Errorf("the rest is %q", rest)
		}
	})
}

func TestDeadReaderEndsByTheWriteDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		s.next()
		link := r.net.Last()
		link.Freeze()
		for n := range 2000 { // more than the network holds
			child.progress(&m, n)
			child.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}`, strings.Repeat("x", 200))
		}
		child.answer(&m, `{}`)
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if got := r.logs.lines("connection ended", "why=write_timeout"); len(got) != 1 {
			t.Errorf("%d connections ended by the write deadline", len(got))
		}
		link.Cut()
	})
}

func TestLargeEventsPassWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		s.next()
		big := `"` + strings.Repeat("x", 3*large) + `"`
		child.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":%s}}`, big)
		child.progress(&m, 1)
		child.answer(&m, big)
		rest := s.rest()
		if len(rest) != 3 || !strings.Contains(string(rest[0].Data), big) || rest[0].ID == "" ||
			!strings.Contains(string(rest[1].Data), `"progress":1`) || string(rest[2].Data) != `{"jsonrpc":"2.0","id":1,"result":`+big+`}` {
			t.Errorf("%d events", len(rest))
		}
	})
}

func TestRotationEndsCleanlyAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{Rotate: time.Minute}})
		id, child := r.open("2025-11-25")
		res := r.post(id, callTool, `1`)
		m := child.recv()
		child.progress(&m, 1)
		began := time.Now()
		all := text(t, res)
		if lived := time.Since(began); lived < time.Minute || lived > 67*time.Second {
			t.Errorf("it lived for %v", lived)
		}
		if !strings.HasSuffix(all, "\n\n") || strings.Count(all, "retry: ") != 2 {
			t.Errorf("it ended with %q", all)
		}
		child.answer(&m, `{}`)
		at := strings.LastIndex(all, "id: ")
		last, _, _ := strings.Cut(all[at+4:], "\n")
		if rest := r.stream(r.resume(id, last)).rest(); len(rest) != 2 {
			t.Errorf("the rest is %q", rest)
		}
		if got := r.logs.lines("connection ended", "why=rotated", "session=", "stream=", "principal=ann", "events=1"); len(got) != 1 {
			t.Errorf("%d log lines tell of the rotation", len(got))
		}
	})
}

func TestField108_DrainEndsIdleConnectionsAndSparesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		own := r.resume(id, "")
		call := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		call.next()
		r.front.Refuse()
		r.man.Drain()
		began := time.Now()
		if got := text(t, own); strings.Count(got, "retry: ") != 2 || time.Since(began) > time.Second {
			t.Errorf("the idle connection ended with %q after %v", got, time.Since(began))
		}
		settled := make(chan error, 1)
		go func() { settled <- r.front.Settled(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(settled) > 0 {
			t.Error("settled while a call runs")
		}
		child.answer(&m, `{}`)
		if rest := call.rest(); len(rest) != 1 {
			t.Errorf("the call ended with %q", rest)
		}
		if err := <-settled; err != nil {
			t.Error(err)
		}
		if err := r.front.Empty(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestField79_RevokedKeyEndsItsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		revoked := make(chan struct{})
		r := newRig(t, setup{front: Options{Who: func(*http.Request) Who { return Who{Principal: "ann", Revoked: revoked} }}})
		id, _ := r.open("2025-11-25")
		s := r.stream(r.resume(id, ""))
		s.next()
		close(revoked)
		s.rest()
		if got := r.logs.lines("connection ended", "why=revoked"); len(got) != 1 {
			t.Errorf("%d connections ended as revoked", len(got))
		}
	})
}

func TestTooManyConnectionsEndTheLongestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{ConnectionsPerPrincipal: 2}})
		first, _ := r.open("2025-11-25")
		second, _ := r.open("2025-11-25")
		a := r.stream(r.resume(first, ""))
		a.next()
		time.Sleep(time.Second)
		b := r.stream(r.resume(second, ""))
		b.next()
		time.Sleep(time.Second)
		c := r.stream(r.resume(second, ""))
		c.next()
		a.rest() // ends cleanly
		if got := r.logs.lines("connection ended", "why=limit"); len(got) != 1 {
			t.Errorf("%d connections ended for the limit", len(got))
		}
	})
}

func TestPanicStaysWithinItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(t, setup{front: Options{Meter: panicky{&calls}}})
		id, _ := r.open("2025-11-25")
		calls = 1
		isError(t, r.post(id, ping), http.StatusInternalServerError, wire.CodeInternal, "9")
		if got := r.logs.lines("level=ERROR", "panic"); len(got) != 1 {
			t.Errorf("%d log lines tell of the panic", len(got))
		}
		if res := r.post(id, ping); res.StatusCode != http.StatusOK {
			t.Errorf("the next request: %s", res.Status)
		}
	})
}

func TestAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		child.answer(&m, `{}`)
		rest := s.rest()
		ack := func(session, body string) *http.Response {
			q := r.request("POST", session, body)
			q.URL.Path = "/mcp/ack"
			return r.do(q)
		}
		good := fmt.Sprintf(`{"lastEventId":%q}`, rest[len(rest)-1].ID)
		if res := ack(id, good); res.StatusCode != http.StatusNoContent {
			t.Errorf("ack: %s", res.Status)
		}
		isError(t, ack("gone", good), http.StatusNotFound, wire.CodeInvalid, "null")
		isError(t, ack("", good), http.StatusBadRequest, wire.CodeInvalid, "null")
		for _, bad := range []string{`{}`, `[]`, `{"lastEventId":"x"}`, `{"lastEventId":4}`, `x`} {
			isError(t, ack(id, bad), http.StatusBadRequest, wire.CodeParams, "null")
		}
	})
}

func TestStreamThatWasSilentForLongEndsCleanly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{Heartbeat: time.Hour}})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		child.recv()
		s.next()
		time.Sleep(10 * time.Minute)
		r.post(id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		s.rest()
	})
}
