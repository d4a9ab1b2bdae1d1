package streamable

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// isError checks an answer's status and the JSON-RPC error in it. id is the
// JSON text of the error's id.
func isError(t *testing.T, res *http.Response, status, code int, id string) {
	t.Helper()
	body := text(t, res)
	if res.StatusCode != status || res.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s, %q, %s; want %d", res.Status, res.Header.Get("Content-Type"), body, status)
	}
	var got struct {
		JSONRPC string
		ID      json.RawMessage
		Error   struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.JSONRPC != "2.0" || got.Error.Message == "" {
		t.Fatalf("the body is %s (%v)", body, err)
	}
	if got.Error.Code != code || string(got.ID) != id {
		t.Errorf("the error is %s, want code %d and id %s", body, code, id)
	}
}

const ping = `{"jsonrpc":"2.0","id":9,"method":"ping"}`

func TestField73_SessionHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		near := id[:len(id)-1] + string(id[len(id)-1]^1) // another last character, always
		for _, method := range []string{"POST", "GET", "DELETE"} {
			body, rpcID := "", "null"
			if method == "POST" {
				body, rpcID = ping, "9"
			}
			isError(t, r.do(r.request(method, "", body)), http.StatusBadRequest, wire.CodeInvalid, rpcID)
			for _, unknown := range []string{"x", near, strings.Repeat("y", 5000), id + "&owner=ann"} {
				isError(t, r.do(r.request(method, unknown, body)), http.StatusNotFound, wire.CodeInvalid, rpcID)
			}
			q := r.request(method, id, body)
			q.Header["Mcp-Session-Id"] = []string{id, id}
			isError(t, r.do(q), http.StatusBadRequest, wire.CodeInvalid, rpcID)
		}
		if res := r.do(r.request("DELETE", id, "")); res.StatusCode != http.StatusNoContent {
			t.Fatalf("DELETE: %s", res.Status)
		}
		isError(t, r.do(r.request("DELETE", id, "")), http.StatusNotFound, wire.CodeInvalid, "null")
		isError(t, r.post(id, ping), http.StatusNotFound, wire.CodeInvalid, "9")
	})
}

func TestField76_ForeignSessionIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		mine := r.stream(r.resume(id, ""))
		cursor := mine.next().ID
		for _, method := range []string{"POST", "GET", "DELETE"} {
			body := ""
			if method == "POST" {
				body = ping
			}
			answers := [2]string{}
			for i, session := range []string{id, "unknown"} {
				q := r.request(method, session, body)
				q.Header.Set("X-Principal", "eve")
				if method == "GET" {
					q.Header.Set("Last-Event-ID", cursor)
				}
				res := r.do(q)
				answers[i] = fmt.Sprint(res.Status, res.Header.Get("Mcp-Session-Id"), text(t, res))
			}
			if answers[0] != answers[1] || !strings.HasPrefix(answers[0], "404") {
				t.Errorf("%s: foreign %q, unknown %q", method, answers[0], answers[1])
			}
		}
		if res := r.post(id, ping); res.StatusCode != http.StatusOK {
			t.Errorf("the owner's own ping: %s", res.Status)
		}
	})
}

func TestField74And75_InitializeWithASessionHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		call := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		isError(t, r.do(r.request("POST", id, initialize("2025-06-18"))), http.StatusBadRequest, wire.CodeInvalid, `"init-1"`)
		child.answer(&m, `{}`)
		if rest := call.rest(); len(rest) != 2 {
			t.Errorf("the running call ended with %q", rest)
		}
		for _, offered := range []struct{ session, principal string }{{"gone", "ann"}, {id, "eve"}} {
			q := r.request("POST", offered.session, initialize("2025-11-25"))
			q.Header.Set("X-Principal", offered.principal)
			done := make(chan *http.Response, 1)
			go func() {
				res, err := r.client.Do(q)
				if err != nil {
					t.Error(err)
				}
				done <- res
			}()
			other := played(t, <-r.conns)
			m := other.recv()
			other.answer(&m, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`)
			res := <-done
			if got := res.Header.Get("Mcp-Session-Id"); res.StatusCode != http.StatusOK || got == "" || got == offered.session {
				t.Errorf("%+v: %s, session %q", offered, res.Status, got)
			}
			res.Body.Close()
		}
	})
}

func TestField83And84_IdsComeBackAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		for _, rpcID := range []string{`"1"`, `1`, `"01"`, `"init-é"`, `"1e3"`, `0`, `-1`, `1774232524389`, `9007199254740993`, `1e3`, `1.0`, `"\u0041"`} {
			res := make(chan *http.Response, 1)
			go func() { res <- r.post(id, `{"jsonrpc":"2.0","id":%s,"method":"tools/list"}`, rpcID) }()
			m := child.recv()
			child.answer(&m, `{"n":9007199254740993,"f":1.10}`)
			want := `{"jsonrpc":"2.0","id":` + rpcID + `,"result":{"n":9007199254740993,"f":1.10}}`
			if got := text(t, <-res); got != want {
				t.Errorf("answered %s, want %s", got, want)
			}
		}
	})
}

func TestField85_ErrorsCarryTheIdThatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		for _, c := range []struct {
			body string
			code int
			id   string
		}{
			{`{`, wire.CodeParse, "null"},
			{`nonsense`, wire.CodeParse, "null"},
			{`"text"`, wire.CodeInvalid, "null"},
			{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, wire.CodeInvalid, "null"},
			{`{"jsonrpc":"2.0","id":{},"method":"ping"}`, wire.CodeInvalid, "null"},
			{`{"jsonrpc":"2.0","id":true,"method":"ping"}`, wire.CodeInvalid, "null"},
			{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, wire.CodeInvalid, "null"},
			{`{"id":4,"method":"ping"}`, wire.CodeInvalid, "4"},
			{`{"jsonrpc":"2.0","id":4,"method":"ping","params":"x"}`, wire.CodeInvalid, "4"},
			{`{"jsonrpc":"2.0","id":"four"}`, wire.CodeInvalid, `"four"`},
			{`{"jsonrpc":"2.0","id":4,"method":"ping","Method":"x"}`, wire.CodeInvalid, "4"},
			{`{"jsonrpc":"2.0","id":4,"id":5,"method":"ping"}`, wire.CodeInvalid, "null"},
			{strings.Repeat("[", 100000), wire.CodeInvalid, "null"},
		} {
			isError(t, r.post(id, "%s", c.body), http.StatusBadRequest, c.code, c.id)
		}
		res := make(chan *http.Response, 1)
		go func() { res <- r.post(id, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`) }()
		if m := child.recv(); m.Method != "tools/list" {
			t.Errorf("the server got %s", m.Raw)
		} else {
			child.answer(&m, `{}`)
		}
		(<-res).Body.Close()
	})
}

func TestField86_Batches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		newer, _ := r.open("2025-06-18")
		older, child := r.open("2025-03-26")
		const note = `{"jsonrpc":"2.0","method":"notifications/x"}`
		two := `[{"jsonrpc":"2.0","id":1,"method":"tools/list"},` + note + `,{"jsonrpc":"2.0","id":"2","method":"prompts/list"}]`
		isError(t, r.post(newer, "[%s]", note), http.StatusBadRequest, wire.CodeInvalid, "null")
		isError(t, r.post(newer, "%s", two), http.StatusBadRequest, wire.CodeInvalid, "null")
		isError(t, r.post("", "%s", two), http.StatusBadRequest, wire.CodeInvalid, "null")
		isError(t, r.post("gone", "%s", two), http.StatusNotFound, wire.CodeInvalid, "null")
		for body, id := range map[string]string{
			`[]`:                                 "null",
			`[` + ping + `,42]`:                  "null",
			`[` + ping + `,` + ping + `]`:        "9",
			`[` + initialize("2025-03-26") + `]`: `"init-1"`,
			`[` + strings.Repeat(note+",", 10000) + note + `]`:        "null",
			`[{"jsonrpc":"2.0","id":3,"method":"x","params":"bad"}]`:  "3",
			`[{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}` + `]`: "null",
		} {
			isError(t, r.post(older, "%s", body), http.StatusBadRequest, wire.CodeInvalid, id)
		}
		if res := r.post(older, `[%s,%s]`, note, note); res.StatusCode != http.StatusAccepted || res.ContentLength > 0 {
			t.Errorf("a batch of notifications: %s", res.Status)
		}
		for range 2 {
			child.recv()
		}
		for _, accept := range []string{"application/json", "application/json, text/event-stream"} {
			res := make(chan *http.Response, 1)
			go func() {
				q := r.request("POST", older, two)
				q.Header.Set("Accept", accept)
				res <- r.do(q)
			}()
			for range 3 {
				m := child.recv()
				if wire.IsArray(m.Raw) {
					t.Fatalf("the server got an array: %s", m.Raw)
				}
				if m.Kind == wire.Request {
					child.answer(&m, `{"method":"`+m.Method+`"}`)
				}
			}
			got := text(t, <-res)
			for _, want := range []string{`{"jsonrpc":"2.0","id":1,"result":{"method":"tools/list"}}`, `{"jsonrpc":"2.0","id":"2","result":{"method":"prompts/list"}}`} {
				if strings.Count(got, want) != 1 {
					t.Errorf("%s: the answer is %s", accept, got)
				}
			}
			if array := got[0] == '['; array != (accept == "application/json") {
				t.Errorf("%s: the answer is %s", accept, got)
			}
		}
	})
}

func TestField87_NotificationsGetNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		for _, body := range []string{
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}`,
			`{"jsonrpc":"2.0","id":"never-asked","result":{}}`,
			`{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"x"}}`,
		} {
			q := r.request("POST", id, body)
			q.Header.Set("Accept", "text/plain")
			res := r.do(q)
			if got := text(t, res); res.StatusCode != http.StatusAccepted || got != "" || res.Header.Get("Content-Type") != "" {
				t.Errorf("%s: %s, %q, %q", body, res.Status, res.Header.Get("Content-Type"), got)
			}
		}
	})
}

func TestField118_ProbeIsAnsweredAsAnOldServerWould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		q := r.request("POST", "", speaks("server/discover", `"2026-07-28"`))
		q.Header.Set("Mcp-Protocol-Version", "2026-07-28")
		q.Header.Set("Mcp-Method", "server/discover")
		res := r.do(q)
		if res.Header.Get("Mcp-Session-Id") != "" {
			t.Error("a probe got a session")
		}
		isError(t, res, http.StatusOK, wire.CodeNoMethod, "7")
		if len(r.conns) > 0 {
			t.Error("a probe started a server")
		}
		q = r.request("POST", "", speaks("tools/call", `"2026-07-28"`))
		isError(t, r.do(q), http.StatusBadRequest, wire.CodeVersion, "7")
		r.open("2025-11-25")
	})
}

func TestField45_Bodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{MaxMessage: 200 << 10}})
		id, child := r.open("2025-11-25")
		sent := 0
		big := func(n int) string {
			sent++ // the same request again would attach to the one before
			head, tail := `{"jsonrpc":"2.0","id":`+fmt.Sprint(sent)+`,"method":"tools/list","params":{"x":"`, `"}}`
			return head + strings.Repeat("x", n-len(head)-len(tail)) + tail
		}
		for _, n := range []int{99 << 10, 105 << 10, 200 << 10} {
			for _, chunked := range []bool{false, true} {
				res := make(chan *http.Response, 1)
				go func() {
					q := r.request("POST", id, big(n))
					if chunked {
						q.ContentLength = -1
					}
					res <- r.do(q)
				}()
				m := child.recv()
				child.answer(&m, `{}`)
				if got := <-res; got.StatusCode != http.StatusOK {
					t.Errorf("%d bytes, chunked %v: %s", n, chunked, got.Status)
				}
			}
		}
		for _, chunked := range []bool{false, true} {
			q := r.request("POST", id, big(200<<10+1))
			if chunked {
				q.ContentLength = -1
			}
			isError(t, r.do(q), http.StatusRequestEntityTooLarge, wire.CodeInvalid, "null")
		}
		synctest.Wait()
		if held := r.front.bodies.inUse(); held != 0 {
			t.Errorf("%d bytes of bodies are still counted", held)
		}
	})
}

func TestField45_SlowBodyEndsByItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		conn, err := r.net.Dial(t.Context(), "tcp", "segno")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "POST /mcp HTTP/1.1\r\nHost: segno\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
		answer := make([]byte, 12)
		if _, err := conn.Read(answer); err != nil || string(answer) != "HTTP/1.1 408" {
			t.Errorf("answered %q (%v)", answer, err)
		}
	})
}

func TestBodyRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{net: memnet.Listen()})
		id, _ := r.open("2025-11-25")
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded"} {
			q := r.request("POST", id, ping)
			q.Header["Content-Type"] = []string{kind}
			isError(t, r.do(q), http.StatusUnsupportedMediaType, wire.CodeInvalid, "null")
		}
		q := r.request("POST", id, ping)
		q.Header.Set("Content-Encoding", "gzip")
		isError(t, r.do(q), http.StatusUnsupportedMediaType, wire.CodeInvalid, "null")
		q = r.request("POST", id, ping)
		q.Header.Set("Accept", "text/html")
		isError(t, r.do(q), http.StatusNotAcceptable, wire.CodeInvalid, "9")
		for _, method := range []string{"PUT", "PATCH", "OPTIONS"} {
			res := r.do(r.request(method, id, ""))
			if res.Header.Get("Allow") != "GET, POST, DELETE" {
				t.Errorf("%s: Allow is %q", method, res.Header.Get("Allow"))
			}
			isError(t, res, http.StatusMethodNotAllowed, wire.CodeInvalid, "null")
		}
		q = r.request("POST", id, ping)
		q.Header.Set("Mcp-Protocol-Version", "2025-99-99")
		isError(t, r.do(q), http.StatusBadRequest, wire.CodeVersion, "9")
	})
}

func TestWhatTheFrontRefusesIsCountedByItsFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &counter{}
		r := newRig(t, setup{meter: n, front: Options{InflightMax: 20 << 10, MaxMessage: 140 << 10, Connections: 3, ConnectionsPerPrincipal: 2}})
		id, _ := r.open("2025-11-25")
		r.post(id, "%s", strings.Repeat(" ", 130<<10)+ping)
		r.post(id, "%s", strings.Repeat(" ", 141<<10)+ping)
		r.post(id, "nonsense")
		for range 3 {
			r.resume(id, "")
		}
		q := r.request("GET", id, "")
		q.Header.Set("X-Principal", "bob") // has no such session, and counts for nothing
		r.do(q)
		synctest.Wait()
		for label, want := range map[string]int64{"inflight-max": 1, "max-message": 1, "max-connections-per-principal": 1, "max-connections": 0} {
			if got := n.of(metric.Refused, label); got != want {
				t.Errorf("%s: %d, want %d", label, got, want)
			}
		}
		if got := n.of(metric.Errors, "malformed"); got != 1 {
			t.Errorf("%d malformed messages", got)
		}
		if got := n.of(metric.Clients, "t"); got != 1 {
			t.Errorf("%d clients named t", got)
		}
	})
}
