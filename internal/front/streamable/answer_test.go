package streamable

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// ask posts a request and plays the server: it does something before it answers.
func (r *rig) ask(q *http.Request, c *child, before func(*wire.Message)) *http.Response {
	r.t.Helper()
	done := make(chan *http.Response, 1)
	go func() {
		res, err := r.client.Do(q)
		if err != nil {
			r.t.Error(err)
		}
		done <- res
	}()
	m := c.recv()
	before(&m)
	c.answer(&m, `{"ok":true}`)
	res := <-done
	r.t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestJSONOrStream(t *testing.T) {
	const both, onlyJSON, onlySSE = "application/json, text/event-stream", "application/json", "text/event-stream"
	const list, call = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":0}}}`
	nothing := func(*wire.Message) {}
	slow := func(*wire.Message) { time.Sleep(time.Second) }
	for _, c := range []struct {
		name, accept, request string
		within                time.Duration
		logs                  bool // the server says something before the outcome
		before                func(*wire.Message)
		json                  bool
	}{
		{"at once", both, list, 0, false, nothing, true},
		{"slow", both, list, 0, false, slow, false},
		{"slow, but within", both, list, 2 * time.Second, false, slow, true},
		{"never JSON", both, list, -1, false, nothing, false},
		{"something before", both, list, 0, true, nothing, false},
		{"wants progress", both, call, 0, false, nothing, false},
		{"JSON alone, at once", onlyJSON, list, 0, false, nothing, true},
		{"JSON alone, slow", onlyJSON, list, 0, false, slow, true},
		{"JSON alone, wants progress", onlyJSON, call, 0, false, nothing, true},
		{"JSON alone, something before", onlyJSON, list, 0, true, nothing, true},
		{"JSON alone, never JSON", onlyJSON, list, -1, false, nothing, true},
		{"SSE alone", onlySSE, list, 0, false, nothing, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, setup{front: Options{JSONWithin: c.within}})
				id, child := r.open("2025-11-25")
				q := r.request("POST", id, c.request)
				q.Header.Set("Accept", c.accept)
				res := r.ask(q, child, func(m *wire.Message) {
					c.before(m)
					if c.logs {
						child.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
						synctest.Wait()
					}
				})
				const want = `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}`
				if c.json {
					if got := text(t, res); got != want || res.Header.Get("Content-Type") != "application/json" {
						t.Fatalf("answered %q as %q", got, res.Header.Get("Content-Type"))
					}
					return
				}
				events := r.stream(res).rest()
				if last := events[len(events)-1]; string(last.Data) != want || last.ID == "" {
					t.Errorf("the stream ends with %+v", last)
				}
				if c.logs && (len(events) != 3 || !strings.Contains(string(events[1].Data), "notifications/message")) {
					t.Errorf("the stream is %q", events)
				}
			})
		})
	}
}

func TestSegnoAnswersPingItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		const want = `{"jsonrpc":"2.0","id":9,"result":{}}`
		if got := text(t, r.post(id, ping)); got != want {
			t.Errorf("as JSON: %s", got)
		}
		q := r.request("POST", id, ping)
		q.Header.Set("Accept", "text/event-stream")
		if events := r.stream(r.do(q)).rest(); len(events) != 1 || string(events[0].Data) != want || events[0].ID != "" {
			t.Errorf("as a stream: %q", events)
		}
	})
}

// streams counts the streams that the log holds of the only session.
func (r *rig) streams() int {
	r.t.Helper()
	sessions, err := r.log.Sessions(r.t.Context(), "", 10)
	if err != nil || len(sessions) != 1 {
		r.t.Fatalf("sessions %q (%v)", sessions, err)
	}
	streams, err := r.log.Streams(r.t.Context(), sessions[0], "", 100)
	if err != nil {
		r.t.Fatal(err)
	}
	return len(streams)
}

func TestJSONAnswerHandsOutNoIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		for n := range 5 {
			q := r.request("POST", id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, n))
			q.Header.Set("Accept", "application/json")
			text(t, r.ask(q, child, func(*wire.Message) {}))
		}
		time.Sleep(3 * time.Minute)
		// Nobody can ask for them again: only the session's own stream is left.
		if n := r.streams(); n != 1 {
			t.Errorf("the log holds %d streams, want 1", n)
		}
	})
}

func TestPrimingAloneKeepsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		priming := r.stream(r.post(id, callTool, `1`)).next()
		m := child.recv()
		r.net.Cut()
		child.answer(&m, `{}`)
		time.Sleep(4 * time.Minute)
		events := r.stream(r.resume(id, priming.ID)).rest()
		if len(events) != 2 || !strings.Contains(string(events[1].Data), `"result":{}`) {
			t.Errorf("after four minutes away: %q", events)
		}
	})
}

func TestCancelledCallEndsWithoutAResponse(t *testing.T) {
	for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
		t.Run(accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, setup{})
				id, child := r.open("2025-11-25")
				done := make(chan *http.Response, 1)
				go func() {
					q := r.request("POST", id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":0}}}`)
					q.Header.Set("Accept", accept)
					done <- r.do(q)
				}()
				child.recv()
				r.post(id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
				res := <-done
				if accept == "application/json" {
					if got := text(t, res); res.StatusCode != http.StatusAccepted || got != "" {
						t.Errorf("%s %q", res.Status, got)
					}
				} else if events := r.stream(res).rest(); len(events) != 1 {
					t.Errorf("the stream is %q", events)
				}
			})
		})
	}
}

func TestField33_SlowCallIsAStreamWithComments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		began := time.Now()
		res := r.post(id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the head of the answer took %v", waited)
		}
		m := child.recv()
		time.AfterFunc(130*time.Second, func() { child.answer(&m, `{}`) })
		if got := text(t, res); strings.Count(got, ":\n") != 8 || !strings.Contains(got, `"result":{}`) {
			t.Errorf("130 s look like %q", got)
		}
	})
}

func TestRefusedInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.front.Refuse()
		res := r.do(r.request("POST", "", initialize("2025-11-25")))
		if res.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		isError(t, res, http.StatusServiceUnavailable, wire.CodeRefused, `"init-1"`)
	})
}

func TestFailedInitializeHasNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		done := make(chan *http.Response, 1)
		go func() { done <- r.do(r.request("POST", "", initialize("2025-11-25"))) }()
		c := played(t, <-r.conns)
		m := c.recv()
		c.send(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, m.IDText())
		res := <-done
		if got := res.Header.Get("Mcp-Session-Id"); got != "" {
			t.Errorf("a failed initialize has the session %q", got)
		}
		isError(t, res, http.StatusOK, wire.CodeParams, `"init-1"`)
	})
}

// Four connections wait for one call as JSON: the oldest is sent away, and not
// told that nothing was executed, as the call goes on.
func TestReplacedJSONWaiterIsNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, c := r.open("2025-11-25")
		answers := make(chan string, 4)
		for range 4 {
			q := r.request("POST", id, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			q.Header.Set("Accept", "application/json")
			go func() {
				res, err := r.client.Do(q)
				if err != nil {
					answers <- err.Error()
					return
				}
				answers <- text(t, res)
			}()
			synctest.Wait()
		}
		m := c.recv()
		if got := <-answers; !strings.Contains(got, `"id":1`) || !strings.Contains(got, `"outcome":"unknown"`) || strings.Contains(got, "limit") {
			t.Errorf("the replaced connection got %s", got)
		}
		c.answer(&m, `{"ok":true}`)
		for range 3 {
			if got := <-answers; got != `{"jsonrpc":"2.0","id":1,"result":{"ok":true}}` {
				t.Errorf("one that waits got %s", got)
			}
		}
	})
}
