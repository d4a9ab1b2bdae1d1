package streamable

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/segno-mcp/segno/internal/wire"
)

func parsed(t *testing.T, text string) *wire.Message {
	t.Helper()
	m, err := wire.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &m
}

// speaks is a message that names a revision in its body.
func speaks(method, version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":%s}}}`, method, version)
}

func plainly(method string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q}`, method)
}

func TestEveryMessageIsJudgedByItself(t *testing.T) {
	note := func(s string) string { return strings.Replace(s, `"id":7,`, "", 1) }
	const modern, old = `"2026-07-28"`, `"2025-11-25"`
	for _, c := range []struct {
		name, text, header string
		session            bool
		want               verdict
		code               int
	}{
		{"initialize", plainly("initialize"), "", false, opens, 0},
		{"initialize, modern header", plainly("initialize"), "2026-07-28", false, opens, 0},
		{"initialize, unknown header", plainly("initialize"), "1999-01-01", false, opens, 0},
		{"initialize, session header", plainly("initialize"), "", true, opens, 0},
		{"initialize that names an old revision", speaks("initialize", old), "", false, opens, 0},
		{"initialize that names a modern revision", speaks("initialize", modern), "", false, 0, wire.CodeVersion},
		{"probe", speaks("server/discover", modern), "2026-07-28", false, steers, 0},
		{"probe without revision", plainly("server/discover"), "", false, steers, 0},
		{"probe in a session", speaks("server/discover", modern), "", true, steers, 0},
		{"probe, revision no string", speaks("server/discover", "5"), "", false, 0, wire.CodeParams},
		{"modern", speaks("tools/call", modern), "2026-07-28", false, 0, wire.CodeVersion},
		{"modern in a session", speaks("tools/call", modern), "", true, 0, wire.CodeVersion},
		{"later than modern", speaks("tools/call", `"2027-01-01"`), "", false, 0, wire.CodeVersion},
		{"revision unknown", speaks("tools/call", `"banana"`), "", true, 0, wire.CodeVersion},
		{"revision null", speaks("tools/call", `null`), "", true, 0, wire.CodeParams},
		{"revision empty", speaks("tools/call", `""`), "", true, 0, wire.CodeParams},
		{"old revision in a session", speaks("tools/call", old), "", true, inSession, 0},
		{"old revision, no session", speaks("tools/call", old), "", false, 0, wire.CodeVersion},
		{"modern header, no envelope", plainly("tools/call"), "2026-07-28", true, 0, wire.CodeParams},
		{"in a session", plainly("tools/call"), "2025-06-18", true, inSession, 0},
		{"in a session, header absent", plainly("tools/call"), "", true, inSession, 0},
		{"in a session, header unknown", plainly("tools/call"), "2025-13-99", true, 0, wire.CodeVersion},
		{"in a session, header garbage", plainly("tools/call"), "x", true, 0, wire.CodeVersion},
		{"no session", plainly("tools/call"), "2025-06-18", false, 0, wire.CodeInvalid},
		{"notification", note(plainly("notifications/initialized")), "", true, inSession, 0},
		{"notification, modern header", note(plainly("notifications/initialized")), "2026-07-28", true, inSession, 0},
		{"notification, no session", note(plainly("notifications/initialized")), "", false, 0, wire.CodeInvalid},
		{"notification, unknown header", note(plainly("notifications/initialized")), "x", true, 0, wire.CodeVersion},
		{"modern notification", note(speaks("notifications/x", modern)), "", false, ignored, 0},
		{"modern notification by header", note(plainly("notifications/x")), "2026-07-28", false, ignored, 0},
		{"response", `{"jsonrpc":"2.0","id":7,"result":{}}`, "", true, inSession, 0},
		{"response, no session", `{"jsonrpc":"2.0","id":7,"result":{}}`, "", false, 0, wire.CodeInvalid},
		{"two revisions", `{"jsonrpc":"2.0","id":7,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, "", true, 0, wire.CodeInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := parsed(t, c.text)
			got, err := judge(m, c.header, c.session)
			if c.code == 0 {
				if got != c.want || err != nil {
					t.Fatalf("verdict %d (%v), want %d", got, err, c.want)
				}
				return
			}
			var p *problem
			if !errors.As(err, &p) || p.status != http.StatusBadRequest || p.code != c.code {
				t.Fatalf("verdict %d, %+v; want 400 with %d", got, err, c.code)
			}
			if m.Kind == wire.Request && string(p.id) != "7" {
				t.Errorf("the error's id is %q, want the request's", p.id)
			}
			if p.code == wire.CodeVersion && !strings.Contains(string(p.data), `"supported":["2025-11-25","2025-06-18","2025-03-26","2024-11-05"]`) {
				t.Errorf("the error's data is %s", p.data)
			}
		})
	}
}

func TestAcceptIsRead(t *testing.T) {
	for _, c := range []struct {
		accept []string
		want   forms
	}{
		{nil, forms{true, true}},
		{[]string{"*/*"}, forms{true, true}},
		{[]string{"application/json, text/event-stream"}, forms{true, true}},
		{[]string{"text/event-stream", "application/json"}, forms{true, true}},
		{[]string{"Application/JSON;q=0.9 , TEXT/event-stream; charset=utf-8"}, forms{true, true}},
		{[]string{"application/json"}, forms{json: true}},
		{[]string{"application/*"}, forms{json: true}},
		{[]string{"text/event-stream"}, forms{sse: true}},
		{[]string{"text/*"}, forms{sse: true}},
		{[]string{"application/json, text/event-stream;q=0"}, forms{json: true}},
		{[]string{"application/json; q=0.0, text/event-stream"}, forms{sse: true}},
		{[]string{"text/html"}, forms{}},
		{[]string{""}, forms{}},
		{[]string{"application/jsonp, text/event-streams"}, forms{}},
		{[]string{"text/html, */*;q=0.1"}, forms{true, true}},
	} {
		h := http.Header{}
		if c.accept != nil {
			h["Accept"] = c.accept
		}
		if got := accepted(h); got != c.want {
			t.Errorf("%q: %+v, want %+v", c.accept, got, c.want)
		}
	}
}

func TestField111_OnlyJSONBodiesAreTaken(t *testing.T) {
	for value, want := range map[string]bool{
		"application/json": true, "Application/JSON": true, "application/json; charset=utf-8": true,
		`application/json;charset="UTF-8"`: true, "application/json; charset=utf-16": false,
		"": false, "text/plain": false, "text/plain; application/json": false, "application/x-www-form-urlencoded": false,
		"multipart/form-data; boundary=x": false, "application/json-rpc": false, "application/json,text/plain": false, "text/json": false,
	} {
		if got := isJSON(http.Header{"Content-Type": {value}}); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
	if isJSON(http.Header{}) {
		t.Error("a body without a type was taken")
	}
}
