package wire

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestFind(t *testing.T) {
	m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"name":2,"name":3},"_meta":{ "progressToken" : "t\"k" , "o":1}}}`)
	for _, c := range []struct {
		path []string
		want string
	}{
		{[]string{"params", "_meta", "progressToken"}, `"t\"k"`},
		{[]string{"params", "name"}, `"x"`},
		{[]string{"params", "_meta", "none"}, ""},
		{[]string{"params", "name", "deeper"}, ""},
		{[]string{"none", "deeper"}, ""},
		{[]string{"result", "deeper"}, ""},
		{[]string{"method"}, `"tools/call"`},
		{[]string{"id"}, `1`},
	} {
		s, err := m.Find(c.path...)
		if err != nil || string(m.Text(s)) != c.want {
			t.Errorf("%v: %q %v", c.path, m.Text(s), err)
		}
	}
	if _, err := m.Find("params", "arguments", "name"); err == nil {
		t.Error("a name that is there twice is found")
	}
}

// What Parse notes of the params and what Find looks for by itself is the same.
func TestFindInParamsOfAnySize(t *testing.T) {
	for _, c := range []struct{ params, want string }{
		{`{"progressToken":7}`, "7"},
		{`{"a":1,"b":2,"c":3,"d":4,"progressToken":7,"e":{}}`, "7"},
		{`{"a":1,"b":2,"c":3,"d":4,"e":{},"f":[],"g":0,"progressToken":7}`, "7"},
		{`{"progressToken":7,"progressToken":8}`, "error"},
		{`{"progressToken":7,"a":1,"b":2,"c":3,"d":4,"e":{},"f":[],"progressToken":8}`, "error"},
		{`{"ProgressToken":7}`, "error"},
		{`{}`, ""},
		{`[7]`, ""},
	} {
		m := mustParse(t, `{"jsonrpc":"2.0","method":"notifications/progress","params":`+c.params+`}`)
		s, err := m.Find("params", "progressToken")
		if (err != nil) != (c.want == "error") || err == nil && string(m.Text(s)) != c.want {
			t.Errorf("%s: %q, %v", c.params, m.Text(s), err)
		}
	}
}

func TestFindSeesEscapedAndRefusesOtherCase(t *testing.T) {
	m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"x","params":{"\u005fmeta":{"progressTo\u006ben":5}}}`)
	if s, err := m.Find("params", "_meta", "progressToken"); err != nil || string(m.Text(s)) != "5" {
		t.Errorf("%q %v", m.Text(s), err)
	}
	for _, params := range []string{
		`{"_meta":{"progresstoken":5}}`, `{"_META":{}}`, `{"_meta":{"progressToken":1,"progressTo\u006ben":2}}`,
		`{"_meta":{"progressTo` + "\u212a" + `en":1}}`,
	} {
		m := mustParse(t, `{"jsonrpc":"2.0","id":1,"method":"x","params":`+params+`}`)
		if s, err := m.Find("params", "_meta", "progressToken"); err == nil {
			t.Errorf("%s: %v", params, s)
		}
	}
}

func TestAppendSplice(t *testing.T) {
	m := []byte("0123456789")
	edit := func(from, to int, with string) Edit { return Edit{Span{from, to}, []byte(with)} }
	for _, c := range []struct {
		edits []Edit
		want  string
	}{
		{nil, "0123456789"},
		{[]Edit{edit(2, 4, "ab")}, "01ab456789"},
		{[]Edit{edit(5, 5, "+"), edit(8, 10, "!")}, "01234+567!"},
		{[]Edit{edit(8, 10, "!"), edit(5, 5, "+"), edit(0, 1, "")}, "1234+567!"},
		{[]Edit{edit(5, 5, "a"), edit(5, 6, "b"), edit(6, 6, "c")}, "01234abc6789"},
		{[]Edit{edit(10, 10, "z")}, "0123456789z"},
		{[]Edit{edit(2, 6, "x"), edit(4, 5, "lost")}, "01x6789"},
	} {
		if got := string(AppendSplice([]byte(">"), m, c.edits...)); got != ">"+c.want {
			t.Errorf("%v: %s, want %s", c.edits, got, c.want)
		}
	}
}

func TestSpliceKeepsTheRestByteForByte(t *testing.T) {
	text := `{ "jsonrpc":"2.0","id":1.0,"method":"tools/call","x":1.10,"params":{"big":9007199254740993,"_meta":{"progressToken":"a"}}}`
	m := mustParse(t, text)
	token, err := m.Find("params", "_meta", "progressToken")
	if err != nil {
		t.Fatal(err)
	}
	got := AppendSplice(nil, m.Raw, Edit{token, []byte("17")}, Edit{m.ID, []byte("17")})
	want := `{ "jsonrpc":"2.0","id":17,"method":"tools/call","x":1.10,"params":{"big":9007199254740993,"_meta":{"progressToken":17}}}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestBuildersMakeMessages(t *testing.T) {
	for _, c := range []struct {
		text []byte
		kind Kind
		want string
	}{
		{AppendRequest(nil, []byte(`"a"`), Ping, nil), Request, `{"jsonrpc":"2.0","id":"a","method":"ping"}`},
		{AppendNotification(nil, LogNote, []byte(`{}`)), Notification, `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`},
		{AppendResponse(nil, []byte(`1`), []byte(`{}`)), Result, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{AppendError(nil, []byte(`1`), -1, "a\"b\n", []byte(`[1]`)), Failure, `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"a\"b\n","data":[1]}}`},
		{AppendError(nil, nil, CodeParse, "", nil), Failure, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":""}}`},
	} {
		if m := mustParse(t, string(c.text)); string(c.text) != c.want || m.Kind != c.kind {
			t.Errorf("kind %d, %s", m.Kind, c.text)
		}
	}
}

func TestQuoting(t *testing.T) {
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "é世🎵", "\u2028\u2029", "<&>"} {
		q := AppendQuoted(nil, s)
		var std string
		if err := json.Unmarshal(q, &std); err != nil || std != s {
			t.Errorf("%q: %s reads as %q (%v)", s, q, std, err)
		}
		if got, ok := Unquote(q); !ok || got != s {
			t.Errorf("%q: Unquote gives %q", s, got)
		}
	}
	if got := string(AppendQuoted(nil, "a\xffb")); got != "\"a\uFFFDb\"" {
		t.Errorf("got %q", got)
	}
	for text, want := range map[string]string{
		`"\ud83c\udfb5"`: "🎵", `"\ud83c"`: "\uFFFD", `"\udfb5x"`: "\uFFFDx", `"\ud83c\ud83c\udfb5"`: "\uFFFD🎵", `"\/\u00e9"`: "/é",
	} {
		if got, ok := Unquote([]byte(text)); !ok || got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	for _, bad := range []string{``, `"`, `x`, `"a`, `"a"b`, `"\q"`, `"\u12"`, "\"\n\""} {
		if got, ok := Unquote([]byte(bad)); ok {
			t.Errorf("%s: %q", bad, got)
		}
	}
}

func TestFixUTF8(t *testing.T) {
	good := []byte(`{"a":"é世🎵"}`)
	if got := FixUTF8(good); &got[0] != &good[0] {
		t.Error("copied without need")
	}
	if got := FixUTF8([]byte("a\xffb\xe4\xb8")); string(got) != "a\uFFFDb\uFFFD" {
		t.Errorf("%q", got)
	}
}

func TestCompact(t *testing.T) {
	one := []byte(`{"a":"\n"}`)
	if got := Compact(one); &got[0] != &one[0] {
		t.Error("copied without need")
	}
	spread := []byte("{\r\n  \"a\":\n\"\\n b\",\r\"c\":[1,\n2]}")
	if got := Compact(spread); string(got) != `{  "a":"\n b","c":[1,2]}` {
		t.Errorf("%q", got)
	}
	if got := AppendLine([]byte(">"), spread); string(got) != `>{  "a":"\n b","c":[1,2]}`+"\n" {
		t.Errorf("%q", got)
	}
}

func TestField86_Batches(t *testing.T) {
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	parts, err := Split([]byte(" [ " + ping + " , 42,\n[] ] "))
	if err != nil || len(parts) != 3 || string(parts[0]) != ping || string(parts[1]) != "42" || string(parts[2]) != "[]" {
		t.Errorf("%q %v", parts, err)
	}
	for text, code := range map[string]int{
		`[]`: CodeInvalid, `[1,]`: CodeParse, `[1`: CodeParse, `[1]x`: CodeParse, ``: CodeParse, `{}`: CodeInvalid, `[1 2]`: CodeParse,
	} {
		if parts, err := Split([]byte(text)); err == nil || err.Code != code {
			t.Errorf("%s: %q %v", text, parts, err)
		}
	}
	if !IsArray([]byte("\xef\xbb\xbf [1]")) || IsArray([]byte(ping)) || IsArray(nil) {
		t.Error("IsArray")
	}
	many := append(bytes.Repeat([]byte(ping+","), 9999), ping...)
	if parts, err := Split(append(append([]byte("["), many...), ']')); err != nil || len(parts) != 10000 {
		t.Errorf("%d %v", len(parts), err)
	}
}
