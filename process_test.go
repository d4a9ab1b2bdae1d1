package segno_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/sse"
)

// TestCommandSurvivesCuts is the whole of it on real sockets: a child process
// that reports 300 times, a client whose connection is broken after every 20
// events, and each report once and in order.
func TestCommandSurvivesCuts(t *testing.T) {
	argv, env := fakemcp.Command(fakemcp.Options{})
	program := segno.Command(argv...)
	program.Env = env
	web := httptest.NewServer(newServer(t, program, segno.Options{}))
	defer web.Close()
	session := post(t, web.Client(), web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id")
	res := post(t, web.Client(), web.URL+"/mcp", session,
		`{"jsonrpc":"2.0","id":"it","method":"tools/call","params":{"name":"count","arguments":{"n":300,"interval_ms":1},"_meta":{"progressToken":"p"}}}`)
	seen, last, done := 0, "", false
	for cuts := 0; !done; cuts++ {
		if cuts > 100 {
			t.Fatal("it does not come to an end")
		}
		read := sse.NewReader(res.Body)
		for n := 0; n < 20 && !done; n++ {
			e, err := read.Next()
			if err != nil {
				break
			}
			last = e.ID
			seen, done = counted(t, e.Data, seen)
		}
		web.CloseClientConnections()
		if !done {
			res = resume(t, web, session, last)
		}
	}
	if seen != 300 {
		t.Errorf("%d reports came, want 300", seen)
	}
}

// counted takes the next event of the call: a report, or its result.
func counted(t *testing.T, data []byte, seen int) (int, bool) {
	t.Helper()
	if len(data) == 0 {
		return seen, false
	}
	var m struct {
		Method string
		ID     string
		Result *struct{}
		Params struct{ Progress int }
	}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if m.Result != nil && m.ID == "it" {
		return seen, true
	}
	if m.Method != "notifications/progress" || m.Params.Progress != seen+1 {
		t.Fatalf("after report %d comes %s", seen, data)
	}
	return seen + 1, false
}

func resume(t *testing.T, web *httptest.Server, session, cursor string) *http.Response {
	t.Helper()
	for range 50 {
		q, err := http.NewRequestWithContext(t.Context(), "GET", web.URL+"/mcp", nil)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Accept", "text/event-stream")
		q.Header.Set("Mcp-Session-Id", session)
		q.Header.Set("Last-Event-ID", cursor)
		res, err := web.Client().Do(q)
		if err != nil {
			continue // it took a connection that was just cut
		}
		if res.StatusCode != http.StatusOK {
			t.Fatalf("resuming: %s", res.Status)
		}
		t.Cleanup(func() { res.Body.Close() })
		return res
	}
	t.Fatal("no connection any more")
	return nil
}

func TestField107_OneWriterAtATime(t *testing.T) {
	argv, env := fakemcp.Command(fakemcp.Options{})
	program := segno.Command(argv...)
	program.Env = env
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			web := httptest.NewUnstartedServer(newServer(t, program, segno.Options{Heartbeat: time.Millisecond}))
			web.EnableHTTP2 = h2
			web.StartTLS()
			defer web.Close()
			session := post(t, web.Client(), web.URL+"/mcp", "", initialize).Header.Get("Mcp-Session-Id")
			res := post(t, web.Client(), web.URL+"/mcp", session,
				`{"jsonrpc":"2.0","id":"it","method":"tools/call","params":{"name":"count","arguments":{"n":400,"interval_ms":1},"_meta":{"progressToken":"p"}}}`)
			all := body(t, res)
			if beats := strings.Count(all, "\n:\n"); beats < 50 {
				t.Errorf("%d heartbeats", beats)
			}
			read := sse.NewReader(strings.NewReader(all))
			seen, done := 0, false
			for !done {
				e, err := read.Next()
				if err != nil {
					t.Fatal(err)
				}
				seen, done = counted(t, e.Data, seen)
			}
			if seen != 400 {
				t.Errorf("%d reports came, want 400", seen)
			}
		})
	}
}

func TestUnstartableCommandIsSaid(t *testing.T) {
	web := httptest.NewServer(newServer(t, segno.Command("/nowhere/at-all"), segno.Options{StartTimeout: time.Second}))
	defer web.Close()
	res := post(t, web.Client(), web.URL+"/mcp", "", initialize)
	var got struct {
		ID    int
		Error struct{ Message string }
	}
	if err := json.Unmarshal([]byte(body(t, res)), &got); err != nil || got.Error.Message == "" {
		t.Errorf("%s: %+v (%v)", res.Status, got, err)
	}
	if s := res.Header.Get("Mcp-Session-Id"); s != "" {
		t.Errorf("a session without a server: %s", fmt.Sprint(s))
	}
}

// A server that exits at once is described to each client, whoever notices first.
func TestField69_AServerThatExitsAtOnceSaysWhy(t *testing.T) {
	web := httptest.NewServer(newServer(t, segno.Command("sh", "-c", "echo no licence >&2; exit 3"), segno.Options{JSONWithin: time.Minute}))
	defer web.Close()
	for range 20 {
		res := post(t, web.Client(), web.URL+"/mcp", "", initialize)
		var got struct{ Error struct{ Message string } }
		if err := json.Unmarshal([]byte(body(t, res)), &got); err != nil || !strings.HasSuffix(got.Error.Message, "exit status 3: no licence") {
			t.Errorf("%s: %q (%v)", res.Status, got.Error.Message, err)
		}
	}
}
