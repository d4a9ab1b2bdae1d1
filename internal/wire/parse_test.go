package wire

import (
	"strings"
	"testing"
)

func mustParse(t *testing.T, s string) Message {
	t.Helper()
	m, err := Parse([]byte(s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return m
}

func TestParseKinds(t *testing.T) {
	for _, c := range []struct {
		text   string
		kind   Kind
		method string
		id     string
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, Request, "ping", "1"},
		{`{"jsonrpc":"2.0","id":"1","method":"tools\u002fcall","params":{}}`, Request, "tools/call", `"1"`},
		{`{"jsonrpc":"2.0","method":"x/own","params":[1]}`, Notification, "x/own", ""},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":null}`, Notification, "notifications/progress", ""},
		{`{"result":{},"jsonrpc":"2.0","id":0}`, Result, "", "0"},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":""}}`, Failure, "", "1"},
		{`{"jsonrpc":"2.0","id":1,"result":{},"error":null}`, Result, "", "1"},
		{`{"jsonrpc":"2.0","id":1,"result":null,"error":{}}`, Failure, "", "1"},
		{`{"jsonrpc":"2.0","id":1,"result":null}`, Result, "", "1"},
		{" \n{ \"jsonrpc\" : \"2.0\" ,\r\n\t\"id\":1,\"method\":\"ping\" } ", Request, "ping", "1"},
		{"\xef\xbb\xbf" + `{"jsonrpc":"2.0","method":"ping"}`, Notification, "ping", ""},
		{`{"\u0069d":7,"jsonrpc":"2\u002e0","method":"ping"}`, Request, "ping", "7"},
		{`{"jsonrpc":"2.0","method":"ping","unknown":[{"id":2}],"ids":3}`, Notification, "ping", ""},
	} {
		m := mustParse(t, c.text)
		if m.Kind != c.kind || m.Method != c.method || string(m.IDText()) != c.id {
			t.Errorf("%s: kind %d method %q id %s", c.text, m.Kind, m.Method, m.IDText())
		}
		if m.Raw[0] != '{' || m.Raw[len(m.Raw)-1] != '}' {
			t.Errorf("%s: raw %q", c.text, m.Raw)
		}
	}
}

func TestParseSpans(t *testing.T) {
	m := mustParse(t, ` {"jsonrpc":"2.0", "id":12 ,"method":"tools/call","params":{"a":[1,2]}}`)
	if got := string(m.Text(m.Params)); got != `{"a":[1,2]}` {
		t.Errorf("params %s", got)
	}
	m = mustParse(t, `{"jsonrpc":"2.0","id":12,"error":{"code":1}}`)
	if got := string(m.Text(m.Error)); got != `{"code":1}` || m.Result.Ok() {
		t.Errorf("error %s, result %v", got, m.Result)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		text string
		code int
		id   string
	}{
		{``, CodeParse, ""},
		{`   `, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping"} x`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":01}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1.}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":tru}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + "\x01" + `"}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\x"}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\u00g0"}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":1,}}`, CodeParse, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping",}`, CodeParse, ""},
		{`{'jsonrpc':"2.0"}`, CodeParse, ""},
		{`[1,2`, CodeParse, ""},
		{"\xef\xbb\xbf\xef\xbb\xbf{}", CodeParse, ""},
		{`[]`, CodeInvalid, ""},
		{`42`, CodeInvalid, ""},
		{`{}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","Method":"tools/call"}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","param` + "ſ" + `":{}}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","method":"ping"}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":5,"\u0069d":5,"method":"ping"}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","ID":5,"method":"ping"}`, CodeInvalid, ""},
		{`{"jsonrpc":"1.0","id":5,"method":"ping"}`, CodeInvalid, "5"},
		{`{"jsonrpc":2.0,"id":5,"method":"ping"}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":7}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":"ping","result":{}}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":5,"method":"` + strings.Repeat("m", 257) + `"}`, CodeInvalid, "5"},
		{`{"jsonrpc":"2.0","id":"` + strings.Repeat("m", 257) + `","method":"ping"}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":5,"result":{},"error":{}}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":5,"error":"bad"}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","id":null,"result":{}}`, CodeInvalid, ""},
		{`{"jsonrpc":"2.0","result":{}}`, CodeInvalid, ""},
	} {
		_, err := Parse([]byte(c.text))
		if err == nil {
			t.Errorf("%.80s: taken", c.text)
			continue
		}
		if err.Code != c.code || string(err.ID) != c.id {
			t.Errorf("%.80s: %d id %q (%s), want %d id %q", c.text, err.Code, err.ID, err.Message, c.code, c.id)
		}
	}
}

func TestParseDepth(t *testing.T) {
	nest := func(n int) string {
		return `{"jsonrpc":"2.0","method":"x","params":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`
	}
	mustParse(t, nest(maxDepth))
	if _, err := Parse([]byte(nest(maxDepth + 1))); err == nil {
		t.Error("taken")
	}
}

func TestField83_IDsKeepTheirSpelling(t *testing.T) {
	for _, id := range []string{`"1"`, `1`, `"01"`, `""`, `"init-é"`, `"1e3"`, `0`, `-1`} {
		m := mustParse(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		if string(m.IDText()) != id {
			t.Errorf("%s became %s", id, m.IDText())
		}
	}
	for text, want := range map[string]int64{`7`: 7, `"7"`: 7, `7.0`: 7, `"7.0"`: 7, `0`: 0, `9007199254740993`: 9007199254740993} {
		if n, ok := IntID([]byte(text)); !ok || n != want {
			t.Errorf("%s: %d %v", text, n, ok)
		}
	}
	for _, text := range []string{``, `""`, `"`, `07`, `"x"`, `-1`, `1.5`, `99999999999999999999`, `9999999999999999999`, `null`} {
		if n, ok := IntID([]byte(text)); ok {
			t.Errorf("%s: %d", text, n)
		}
	}
}

func TestField84_IntegersAreExactAndFractionsRefused(t *testing.T) {
	for _, id := range []string{`1774232524389`, `9007199254740993`, `1e3`, `1.0`, `1.5e1`, `10e-1`, `0.0`, `-0`, `1E+2`, `0e-9`} {
		m := mustParse(t, `{"jsonrpc":"2.0","id":`+id+`,"method":"ping"}`)
		if string(m.IDText()) != id {
			t.Errorf("%s became %s", id, m.IDText())
		}
	}
	for _, id := range []string{`1.5`, `1e-1`, `15e-2`, `1.05e1`, `1e-99999999999999999999`} {
		_, err := Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`))
		if err == nil || err.Code != CodeInvalid || err.ID != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestField85_BadIDsAreNeverInvented(t *testing.T) {
	for _, id := range []string{`null`, `{}`, `true`, `[1]`} {
		_, err := Parse([]byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`))
		if err == nil || err.Code != CodeInvalid || err.ID != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	_, err := Parse([]byte(`{"jsonrpc":"2.0","id":5,"method":"ping","params":"text"}`))
	if err == nil || err.Code != CodeInvalid || string(err.ID) != "5" {
		t.Errorf("params a string: %v", err)
	}
	_, err = Parse([]byte(`{"jsonrpc":"2.0","id":5}`))
	if err == nil || err.Code != CodeInvalid || string(err.ID) != "5" {
		t.Errorf("no method: %v", err)
	}
	if got := string((&Error{Code: CodeParse, Message: "x"}).AppendTo(nil)); got != `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}` {
		t.Errorf("got %s", got)
	}
	for _, s := range []string{`"id":null,`, ``} {
		m := mustParse(t, `{"jsonrpc":"2.0",`+s+`"error":{"code":-32700,"message":"parse"}}`)
		if m.Kind != Failure || m.ID.Ok() {
			t.Errorf("%q: kind %d id %v", s, m.Kind, m.ID)
		}
	}
}

func TestKnownMethodsCostNoMemory(t *testing.T) {
	all := append([]string{ProgressNote, ToolsCall, LogNote, Cancelled, Ping}, methods[:]...)
	for _, name := range all {
		text := []byte(`{"jsonrpc":"2.0","id":1,"method":"` + name + `","params":{"a":1}}`)
		n := testing.AllocsPerRun(10, func() {
			if m, err := Parse(text); err != nil || m.Method != name {
				t.Errorf("%s: %q %v", name, m.Method, err)
			}
		})
		if n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func TestRevisions(t *testing.T) {
	for n, v := range Revisions {
		if !KnownRevision(v) || !AtLeast(v, v) || n > 0 && AtLeast(Revisions[n-1], v) {
			t.Errorf("%s is out of order", v)
		}
	}
	if AtLeast("DRAFT-2026", Rev2024) || AtLeast("", Rev2024) || AtLeast("2025/11-25", Rev2024) {
		t.Error("no date is at least something")
	}
	if !Modern("2027-01-01") || Modern(Rev2025) || KnownRevision("2027-01-01") {
		t.Error("modern")
	}
}
