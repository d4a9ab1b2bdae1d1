package sse

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestAppendEvent(t *testing.T) {
	for _, c := range []struct {
		event, id, data, want string
	}{
		{"", "", "", "data: \n\n"},
		{"message", "s.t.1", `{"a":1}`, "id: s.t.1\nevent: message\ndata: {\"a\":1}\n\n"},
		{"", "s.t.1", "a\nb\rc\r\nd\n", "id: s.t.1\ndata: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"", "", "\r\r\n\n", "data: \ndata: \ndata: \ndata: \n\n"},
		{"", "", " x", "data:  x\n\n"},
		{"a\nb", "1\ndata: {}", "x", "data: x\n\n"},
		{"a\rb", "1\r", "x", "data: x\n\n"},
		{"a\x00", "\x001", "x", "data: x\n\n"},
	} {
		if got := string(AppendEvent([]byte(">"), c.event, c.id, []byte(c.data))); got != ">"+c.want {
			t.Errorf("%q %q %q: %q", c.event, c.id, c.data, got)
		}
	}
}

func TestAppendPrimingAndRetry(t *testing.T) {
	for want, got := range map[string][]byte{
		"id: s.t.0\nretry: 2000\ndata: \n\n": AppendPriming(nil, "s.t.0", 2*time.Second),
		"id: s.t.0\ndata: \n\n":              AppendPriming(nil, "s.t.0", 0),
		"retry: 2\n\n":                       AppendRetry(nil, 1500*time.Microsecond),
		"retry: 0\n\n":                       AppendRetry(nil, -time.Second),
	} {
		if string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestWritingCostsNoMemory(t *testing.T) {
	buf, data := make([]byte, 0, 4096), []byte(`{"jsonrpc":"2.0"}`)
	n := testing.AllocsPerRun(100, func() {
		buf = AppendEvent(buf[:0], "message", "abc.def.1", data)
		buf = AppendPriming(buf, "abc.def.1", time.Second)
		buf = AppendRetry(buf, time.Second)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// lines is what a reader makes of data: every line end becomes LF.
func lines(data string) string {
	return strings.ReplaceAll(strings.ReplaceAll(data, "\r\n", "\n"), "\r", "\n")
}

// Writer to reader: the same event comes out, for any cut.
func FuzzRoundTrip(f *testing.F) {
	f.Add("message", "s.t.1", "a\r\n\rb\n", "x", 3)
	f.Add("a\nb", "1\x00", "", "\r", 1)
	f.Fuzz(func(t *testing.T, name, id, one, two string, cut int) {
		stream := AppendEvent(nil, name, id, []byte(one))
		stream = append(stream, Heartbeat...)
		stream = AppendEvent(stream, "", "", []byte(two))
		if strings.ContainsAny(name, "\r\n\x00") {
			name = ""
		}
		if strings.ContainsAny(id, "\r\n\x00") {
			id = ""
		}
		want := []string{
			fmt.Sprintf("%s/%s: %q", name, id, lines(one)),
			fmt.Sprintf("/%s: %q", id, lines(two)),
		}
		got := parse(string(stream), max(1, cut), &Parser{})
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("%q: %s, want %s", stream, got, want)
		}
	})
}

// Any split gives the same events, last id and retry.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\xef\xbb\xbfid:1\ndata:a\r\n\r\ndata\rretry:5\r\revent:x\n:c\ndata:b\n\n"), 0)
	f.Add([]byte("data: 0123456789\ndata:x\n\nid:0123456789abcdef\n\n:0123456789abcdef\n"), 5)
	f.Fuzz(func(t *testing.T, b []byte, most int) {
		limit := max(0, most%100)
		whole := &Parser{Max: limit}
		want := parse(string(b), len(b)+1, whole)
		for _, n := range []int{1, 2, 3, 7} {
			p := &Parser{Max: limit}
			got := parse(string(b), n, p)
			if strings.Join(got, "|") != strings.Join(want, "|") || p.LastID() != whole.LastID() || p.retry != whole.retry {
				t.Fatalf("%q in pieces of %d: %q, want %q", b, n, got, want)
			}
		}
	})
}

var progress = []byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":17,"progress":1234,"total":10000,"message":"exported 1234 rows of the table customers into the file"}}`)

func BenchmarkWrite(b *testing.B) {
	buf := make([]byte, 0, 4096)
	b.SetBytes(int64(len(progress)))
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEvent(buf[:0], "message", "AAAAAAAAAAAAAAAAAAAAAA.abcdef.12345", progress)
	}
}

func BenchmarkRead(b *testing.B) {
	var stream []byte
	for n := range 1000 {
		stream = AppendEvent(stream, "message", fmt.Sprint("AAAAAAAAAAAAAAAAAAAAAA.abcdef.", n), progress)
	}
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		r, n := NewReader(bytes.NewReader(stream)), 0
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}
