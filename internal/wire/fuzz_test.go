package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"
)

func seeds(f *testing.F) {
	for _, s := range []string{
		string(progressLine), string(toolCall), one, two, "[" + one + "," + two + "]", "{}", "[]", "1", `"x"`,
		`{"jsonrpc":"2.0","id":1.50e1,"method":"a\u002fb","params":[{"a":[]},null,true,-0.1e-7]}`,
		"\xef\xbb\xbf" + two, one + "\n" + two + "\r\nnoise\n" + one, `{"jsonrpc":"2.0","\u0069d":1,"ID":2}`,
		`{"jsonrpc":"2.0","id":7,"result":{"v":NaN}}` + "\n", `{"a":"` + "\x00" + `"}`,
	} {
		f.Add([]byte(s))
	}
}

func FuzzParse(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		text := bytes.TrimPrefix(b, mark)
		if err != nil {
			if err.Code == CodeParse && json.Valid(text) {
				t.Fatalf("%q is JSON: %v", b, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON", b)
		}
		var std map[string]json.RawMessage
		if err := json.Unmarshal(text, &std); err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]Span{"id": m.ID, "params": m.Params, "result": m.Result, "error": m.Error} {
			if s.Ok() && !bytes.Equal(bytes.TrimSpace(std[name]), m.Text(s)) {
				t.Fatalf("%q: %s is %q, want %q", b, name, m.Text(s), std[name])
			}
		}
		var want string
		if std["method"] != nil && utf8.Valid(b) {
			if err := json.Unmarshal(std["method"], &want); err != nil || want != m.Method {
				t.Fatalf("%q: method %q, want %q, %v", b, m.Method, want, err)
			}
		}
		if again, err := Parse(Compact(m.Raw)); err != nil || again.Kind != m.Kind {
			t.Fatalf("%q is no message any more when compact: %v", b, err)
		}
	})
}

func FuzzSplit(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		parts, err := Split(b)
		var std []json.RawMessage
		stdErr := json.Unmarshal(bytes.TrimPrefix(b, mark), &std)
		if err != nil {
			if err.Code == CodeParse && stdErr == nil {
				t.Fatalf("%q: %v", b, err)
			}
			return
		}
		if stdErr != nil || len(std) != len(parts) {
			t.Fatalf("%q: %d parts, want %d, %v", b, len(parts), len(std), stdErr)
		}
		for n := range parts {
			if !bytes.Equal(parts[n], bytes.TrimSpace(std[n])) {
				t.Fatalf("%q: part %d is %q", b, n, parts[n])
			}
		}
	})
}

func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"_meta":{"progressToken":1}}`))
	f.Add([]byte(`{"a":[{"_meta":2}],"_meta" : { "x":{"progressToken":3},"progressT\u006fken":"a"} }`))
	f.Fuzz(func(t *testing.T, params []byte) {
		m, perr := Parse(append(append([]byte(`{"jsonrpc":"2.0","method":"x","params":`), params...), '}'))
		if perr != nil {
			return
		}
		s, err := m.Find("params", "_meta", "progressToken")
		if err != nil {
			return
		}
		var std struct{ Params json.RawMessage }
		if err := json.Unmarshal(m.Raw, &std); err != nil {
			t.Fatal(err)
		}
		inner := std.Params
		for _, name := range []string{"_meta", "progressToken"} {
			var object map[string]json.RawMessage
			_ = json.Unmarshal(inner, &object)
			inner = object[name]
		}
		if !bytes.Equal(bytes.TrimSpace(inner), m.Text(s)) {
			t.Fatalf("%s: found %q, want %q", m.Raw, m.Text(s), inner)
		}
	})
}

func FuzzLines(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		opt := LineOptions{Max: 200}
		msgs, bad, err := readLines(bytes.NewReader(b), opt)
		if err != io.EOF {
			t.Fatal(err)
		}
		for _, m := range msgs {
			if strings.Contains(m, "\n") || !utf8.ValidString(m) || !json.Valid([]byte(m)) {
				t.Fatalf("%q comes out of %q", m, b)
			}
		}
		slow, slowBad, _ := readLines(iotest.OneByteReader(bytes.NewReader(b)), opt)
		if strings.Join(slow, "\n") != strings.Join(msgs, "\n") || len(slowBad) != len(bad) {
			t.Fatalf("byte by byte %q differs: %q, %q", b, slow, msgs)
		}
	})
}

func FuzzQuote(f *testing.F) {
	f.Add("a\u2028\"\\\x00é")
	f.Fuzz(func(t *testing.T, s string) {
		q := AppendQuoted(nil, s)
		got, ok := Unquote(q)
		var std string
		if err := json.Unmarshal(q, &std); err != nil || !ok || got != std {
			t.Fatalf("%q: %s, %q, %q", s, q, got, std)
		}
		if utf8.ValidString(s) && got != s {
			t.Fatalf("%q became %q", s, got)
		}
	})
}
