package peers

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestKilledInMidCall kills Segno while a tool runs and starts it again on the
// same store and port: the call ends with one response that says that nobody
// knows its outcome, the tool is not run again, and the session goes on.
func TestKilledInMidCall(t *testing.T) {
	need(t, "npm")
	for _, k := range kinds(t) {
		if k.cleanOnly {
			continue // a broken connection ends its calls: nothing of Segno to see
		}
		t.Run(k.name, func(t *testing.T) { t.Parallel(); killed(t, k) })
	}
	t.Run("raw", func(t *testing.T) { t.Parallel(); killedRaw(t) })
}

func killed(t *testing.T, k kind) {
	s, l := behind(t, "2025-11-25")
	client := k.open(t, s.url)
	defer client.close()
	ctx := within(t, 60*time.Second)
	ended := make(chan error, 1)
	go func() {
		text, err := client.call(ctx, "quiet", map[string]any{"tag": "lost"}, &progress{})
		if err == nil {
			err = fmt.Errorf("a result: %q", text)
		}
		ended <- err
	}()
	until(t, "the tool runs", 20*time.Second, func() bool { return l.runs(t, "lost") == 1 })
	s.kill()
	s.restart()
	if err := <-ended; !strings.Contains(err.Error(), "unknown") {
		t.Errorf("the call ended with %v, want an error that says unknown", err)
	}
	afterwards := &progress{}
	text, err := client.call(ctx, "count", map[string]any{"tag": "after", "n": 3, "pace_ms": 5}, afterwards)
	if err != nil || text != "done after" {
		t.Errorf("the session does not go on: %q, %v", text, err)
	}
	eventually(5*time.Second, func() bool { return len(afterwards.numbers()) >= 3 })
	if got := afterwards.numbers(); len(got) != 3 {
		t.Errorf("progress %v after the restart, want 3 steps", got)
	}
	ranOnce(t, l, "lost")
	ranOnce(t, l, "after")
}

// killedRaw sees the wire: the events before the kill come again on a resume,
// then the one outcome; the same from any cursor, and never a second one.
func killedRaw(t *testing.T) {
	s, l := behind(t, "2025-11-25")
	ctx := within(t, 60*time.Second)
	r := hello(t, ctx, s.url, "2025-11-25")
	answer := r.post(ctx, `{"jsonrpc":"2.0","id":"c-1","method":"tools/call","params":{"name":"count","arguments":{"tag":"lost","n":100000,"pace_ms":50},"_meta":{"progressToken":"p-1"}}}`)
	var ids []string
	for e, err := range events(answer.Body) {
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, e.id); len(ids) == 4 {
			break
		}
	}
	s.kill()
	answer.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	s.restart()
	for n, id := range ids {
		resumed := r.resume(ctx, id)
		last, steps := 0, 0
		var outcomes []rpc
		for e, err := range events(resumed.Body) {
			if err != nil {
				t.Fatal(err)
			}
			if e.data == "" {
				continue
			}
			m := e.rpc(t)
			switch {
			case m.Method == "":
				outcomes = append(outcomes, m)
			case m.Method == "notifications/progress":
				if steps++; last != 0 && m.Params.Progress != last+1 {
					t.Errorf("from cursor %d: step %d after %d", n, m.Params.Progress, last)
				}
				if last == 0 && m.Params.Progress != n+1 {
					t.Errorf("from cursor %d the first step is %d", n, m.Params.Progress)
				}
				last = m.Params.Progress
			}
		}
		resumed.Body.Close()
		honest(t, outcomes)
	}
	after := r.post(ctx, `{"jsonrpc":"2.0","id":"c-2","method":"tools/call","params":{"name":"count","arguments":{"tag":"after","n":1},"_meta":{"progressToken":"p-2"}}}`)
	if found := r.outcomes(after); len(found) != 1 || !strings.Contains(string(found[0].Result), "done after") {
		t.Errorf("the session does not go on: %+v", found)
	}
	ranOnce(t, l, "lost")
}

// honest checks that there is one outcome, for the call, and that it is the
// error that does not pretend to know.
func honest(t *testing.T, outcomes []rpc) {
	t.Helper()
	if len(outcomes) != 1 {
		t.Fatalf("%d outcomes, want one: %+v", len(outcomes), outcomes)
	}
	o := outcomes[0]
	if string(o.ID) != `"c-1"` || o.Error == nil || o.Error.Data.Outcome != "unknown" {
		t.Errorf("outcome %+v, error %+v: want an error for \"c-1\" with data.outcome unknown", o, o.Error)
	}
}
