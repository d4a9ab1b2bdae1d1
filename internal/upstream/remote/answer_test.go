package remote

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

func TestHandshakeAndHeaders(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		r := newRig(t, s, Options{Header: http.Header{"Authorization": {"Bearer x"}}})
		r.init()
		r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		if got := r.answer("1"); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("got %s", got)
		}
		synctest.Wait()
		list := s.all("tools/list")[0].r.Header
		first := s.all("initialize")[0].r.Header
		for _, c := range [][2]string{
			{list.Get("Mcp-Session-Id"), "session-1"}, {list.Get("Mcp-Protocol-Version"), "2025-11-25"},
			{list.Get("Accept"), "application/json, text/event-stream"}, {list.Get("Authorization"), "Bearer x"},
			{list.Get("Idempotency-Key"), ""}, {first.Get("Mcp-Session-Id"), ""}, {first.Get("Mcp-Protocol-Version"), ""},
		} {
			if c[0] != c[1] {
				t.Errorf("header is %q, want %q", c[0], c[1])
			}
		}
		r.conn.Close()
		if d := s.all("DELETE"); len(d) != 1 || d[0].session != "session-1" {
			t.Errorf("DELETE: %d", len(d))
		}
		if gets := s.all("GET"); len(gets) != 1 {
			t.Errorf("GET was answered 405 and asked %d times", len(gets))
		}
	})
}

// bytesAs answers a call with these bytes as a stream, each part flushed.
func bytesAs(parts ...string) func(*hit) {
	return func(h *hit) {
		h.stream()
		for _, p := range parts {
			h.write("%s", strings.ReplaceAll(p, "ID", string(h.msg.IDText())))
			time.Sleep(time.Millisecond)
		}
		<-h.r.Context().Done()
	}
}

// TestFieldFormats are servers that write their streams in every way that the
// WHATWG text allows, and in some that it does not.
func TestFieldFormats(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	for _, c := range []struct {
		name  string
		parts []string
		want  string // in the answer
	}{
		{"Field1_CRLF", []string{"event: message\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\r\n\r\n"}, `"result":{}`},
		{"Field1_CR", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\r\r"}, `"result":{}`},
		{"Field1_mixed", []string{": a\r\n: b\r: c\n", "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\r", "\ndata:\"result\":{}}\n\r\n"}, `"result":{}`},
		{"Field3_BOM", []string{"\xef", "\xbb\xbfdata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"}, `"result":{}`},
		{"Field4_lines", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\ndata: \"result\":{\"content\":[]}}\n\n"}, `"content":[]`},
		{"Field4_blanks", []string{"data:{\ndata\ndata:  \"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"}, `"result":{}`},
		{"Field5_64KiB", []string{`data: {"jsonrpc":"2.0","id":ID,"result":{"t":"` + long(65536) + "\"}}\n\n"}, long(65536)},
		{"Field5_16MiB", []string{`data: {"jsonrpc":"2.0","id":ID,"result":{"t":"` + long(16<<20) + "\"}}\n\n"}, `"result":{"t":"xxx`},
		{"Field6_split", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"t\":\"\xe9", "\x82\xa3 \xf0\x9f", "\x8c\x8d\"}}\n\n"}, `"t":"那 🌍"`},
		{"Field8_comments", []string{": keep-alive\n\n:\n:\r\n", strings.Repeat(": x\n\n", 1000), "data: {\"jsonrpc\":\"2.0\",\n: between\ndata: \"id\":ID,\"result\":{}}\n\n"}, `"result":{}`},
		{"Field10_priming", []string{"id: s1:0\nretry: 3000\ndata:\n\n", "id: s1:1\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"}, `"result":{}`},
		{"Field15_error", []string{"event: error\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32603,\"message\":\"x\"}}\n\n"}, `"message":"x"`},
		{"Field57_pause", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"res", "ult\":{}}\n\n"}, `"result":{}`},
		{"garbage", []string{"event: ping\ndata: ping\n\ndata: {}\n\ndata: [1]\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n"}, `"result":{}`},
		{"null id", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32700,\"message\":\"what?\"}}\n\n"}, `"code":-32700`},
		{"batch", []string{"data: [{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}},{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}]\n\n"}, `"result":{}`},
		{"quoted id", []string{"data: {\"jsonrpc\":\"2.0\",\"id\":\"ID\",\"result\":{}}\n\n"}, `"id":7,`},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := newRig(t, &scripted{call: bytesAs(c.parts...)}, Options{})
				r.init()
				r.callTool("7")
				contains(t, r.within(10*time.Second, "7"), c.want)
			})
		})
	}
}

func TestField5_TooLongFailsOneMessageOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{call: bytesAs(
			"data: {\"jsonrpc\":\"2.0\",\"result\":{\"t\":\"" + strings.Repeat("x", 5000) + "\"},\"id\":ID}\n\n",
		)}
		r := newRig(t, s, Options{MaxMessage: 4096})
		r.init()
		r.callTool("7")
		contains(t, r.within(time.Minute, "7"), `"error"`, "longer than")
		s.call = bytesAs("data: {\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n\n")
		r.callTool("8")
		contains(t, r.within(time.Minute, "8"), `"result":{}`)
	})
}

func TestStatuses(t *testing.T) {
	for _, c := range []struct {
		status int
		kind   string
		body   string
		want   string
	}{
		{401, "", "", `wants credentials`},
		{403, "", "", `not executed: the server answered 403`},
		{400, "application/json", `{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"bad"}}`, `{"code":-32602,"message":"bad"}`},
		{400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad"}}`, `not executed: the server answered 400 Bad Request: bad`},
		{405, "", "", `not executed`},
		{413, "text/html", "<html>", `not executed: the server answered 413`},
		{500, "", "", `"outcome":"unknown"`},
		{502, "", "", `"outcome":"unknown"`},
		{504, "", "", `"outcome":"unknown"`},
		{202, "", "", `"outcome":"unknown"`},
		{200, "text/html", "<html>", `"outcome":"unknown"`},
		{200, "application/json", "", `"outcome":"unknown"`},
		{200, "application/json", `{"jsonrpc":"2.0","id":8,"result":{}}`, `"outcome":"unknown"`},
		{200, "application/json", `[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":7,"result":{}}]`, `"result":{}`},
	} {
		t.Run(fmt.Sprint(c.status, c.kind), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{call: func(h *hit) {
					if c.kind != "" {
						h.w.Header().Set("Content-Type", c.kind)
					}
					h.w.WriteHeader(c.status)
					h.write("%s", c.body)
				}}
				r := newRig(t, s, Options{})
				r.init()
				r.callTool("7")
				contains(t, r.within(time.Minute, "7"), c.want)
				if n := len(s.all("tools/call")); n != 1 {
					t.Errorf("sent %d times", n)
				}
			})
		})
	}
}

// TestField93_Statuses is the table of what the answers to GET mean.
func TestField93_Statuses(t *testing.T) {
	for _, c := range []struct {
		status int
		again  bool
	}{
		{400, false}, {401, false}, {403, false}, {405, false}, {406, false},
		{409, true}, {429, true}, {500, true}, {502, true}, {503, true},
	} {
		t.Run(fmt.Sprint(c.status), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{get: func(h *hit, n int) {
					if c.status == 429 {
						h.w.Header().Set("Retry-After", "30")
					}
					h.w.WriteHeader(c.status)
				}}
				r := newRig(t, s, Options{})
				r.init()
				time.Sleep(5 * time.Minute)
				gets := s.all("GET")
				if c.again && (len(gets) < 3 || len(gets) > 60) || !c.again && len(gets) != 1 {
					t.Errorf("asked %d times in five minutes", len(gets))
				}
				if c.status == 429 && gets[1].at.Sub(gets[0].at) < 30*time.Second {
					t.Errorf("asked again after %v", gets[1].at.Sub(gets[0].at))
				}
				r.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
				r.within(time.Minute, "1")
			})
		})
	}
}

func TestField93_GetOfALostSessionOpensAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{get: func(h *hit, n int) {
			if n == 1 {
				h.w.WriteHeader(http.StatusNotFound)
				return
			}
			h.w.WriteHeader(http.StatusMethodNotAllowed)
		}}
		r := newRig(t, s, Options{})
		r.init()
		time.Sleep(time.Minute)
		if n := len(s.all("initialize")); n != 2 {
			t.Errorf("initialized %d times", n)
		}
	})
}

func TestField92_PlainAnswerToGetIsNoStream(t *testing.T) {
	for _, kind := range []string{"text/html", "application/json", "text/event-stream"} {
		t.Run(kind, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := &scripted{get: func(h *hit, _ int) {
					h.w.Header().Set("Content-Type", kind)
					h.write("{}")
				}}
				r := newRig(t, s, Options{})
				r.init()
				time.Sleep(10 * time.Minute)
				n := len(s.all("GET"))
				if kind != "text/event-stream" && n != 1 || n > 100 {
					t.Errorf("asked %d times in ten minutes", n)
				}
			})
		})
	}
}

func TestDiscoverIsAnsweredHere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := &scripted{}
		r := newRig(t, s, Options{})
		r.send(`{"jsonrpc":"2.0","id":1,"method":"server/discover"}`)
		contains(t, r.answer("1"), "-32601")
		if len(s.all("POST")) != 0 {
			t.Error("it was sent")
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{
		{}, {URL: "ftp://x"}, {URL: "x:8080"}, {URL: "http://x", OnGap: "no"}, {URL: "http://x", GiveUp: -1},
		{URL: "http://x", Header: http.Header{"X": {"a\r\nb"}}}, {URL: "http://x", Header: http.Header{"mcp-session-id": {"a"}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
	s, err := New(Options{URL: "https://a:b@x/mcp#y"})
	same, _ := New(Options{URL: "https://x/mcp"})
	other, _ := New(Options{URL: "https://x/mcp/"})
	if err != nil || s.Fingerprint() != same.Fingerprint() || s.Fingerprint() == other.Fingerprint() || strings.ContainsAny(s.Fingerprint(), "/:") {
		t.Errorf("%v %v", s.Fingerprint(), err)
	}
	if _, ok := placeOf("tGyuCj0XBZSBQc4bZMfx7C.JuwfjK.13.abcdef"); !ok {
		t.Error("a place is not understood")
	}
	_ = wire.Rev2025
}
