package sse

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// parse gives the stream to a parser in pieces of n bytes and returns the
// events as text, and the parser.
func parse(stream string, n int, p *Parser) []string {
	var got []string
	for len(stream) > 0 {
		piece := []byte(stream[:min(n, len(stream))])
		stream = stream[len(piece):]
		p.Feed(piece)
		for {
			e, ok := p.Next()
			if !ok {
				break
			}
			got = append(got, show(e))
		}
		clear(piece) // nothing may be kept of it
	}
	return got
}

func show(e Event) string {
	if e.Err != nil {
		return fmt.Sprintf("%s/%s: %v", e.Name, e.ID, e.Err)
	}
	return fmt.Sprintf("%s/%s: %q", e.Name, e.ID, e.Data)
}

// check runs the stream in pieces of every size.
func check(t *testing.T, stream string, want ...string) {
	t.Helper()
	for n := 1; n <= len(stream)+1; n++ {
		got := parse(stream, n, &Parser{})
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%q in pieces of %d: %s, want %s", stream, n, got, want)
			return
		}
	}
}

// The grammar, case by case, as the web platform tests for eventsource see it.
func TestGrammar(t *testing.T) {
	// A field's name ends at the first colon, and one space after that goes.
	check(t, "data:\x00\ndata:  2\rData:1\ndata\x00:2\ndata:1\r\x00data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n", `/: "\x00\n 2\n1\n3\n\n4"`)
	check(t, "data:\ttest\rdata: \ndata:test\n\n", `/: "\ttest\n\ntest"`)
	check(t, "data:a:b: c\n\n", `/: "a:b: c"`)
	check(t, "data\n\ndata\ndata\n\ndata:x", `/: ""`, `/: "\n"`)
	// Comments say nothing, long ones too, wherever they stand.
	check(t, "data:1\r:\x00\n:\r\ndata:2\n:"+strings.Repeat("x", 3000)+"\rdata:3\n:data:fail\r:"+strings.Repeat("x", 20)+"\ndata:4\n\n", `/: "1\n2\n3\n4"`)
	// Names last for one event; an empty one is none.
	check(t, "event:test\ndata:x\n\ndata:x\n\n", `test/: "x"`, `/: "x"`)
	check(t, "event:a\nevent: \ndata:data\n\n", `/: "data"`)
	check(t, "event:lost\n\ndata:data\n\nevent:a\ndata:1\n\nevent:a\ndata:2\n\n", `/: "data"`, `a/: "1"`, `a/: "2"`)
	// Unknown fields are nothing.
	check(t, "data:test\n data\ndata\nfoobar:xxx\njustsometext\n:thisisacommentyay\ndata:test\n\n", `/: "test\n\ntest"`)
	// What has no empty line behind it never happened.
	check(t, "retry:1000\ndata:test1\n\nid:test\ndata:test2", `/: "test1"`)
	// NUL in data and bytes that are no UTF-8 are the reader's.
	check(t, "data:\x00\n\n\n\n", `/: "\x00"`)
	check(t, "data:ok\xfe\xff\n\n", `/: "ok\xfe\xff"`)
}

func TestField1_EveryLineEnd(t *testing.T) {
	for _, nl := range []string{"\n", "\r", "\r\n"} {
		check(t, "event: message"+nl+"data: {}"+nl+nl+"data: 2"+nl+nl, `message/: "{}"`, `/: "2"`)
	}
	check(t, "data:test\r\ndata\ndata:test\r\n\r", `/: "test\n\ntest"`)
	check(t, "data:1\r\r\ndata:2\n\rdata:3\r\n\r\n", `/: "1"`, `/: "2"`, `/: "3"`)
	// An event that ends with CR is there at once, not with the next byte.
	p := &Parser{}
	if got := parse("data: x\r\r", 100, p); len(got) != 1 {
		t.Errorf("got %s", got)
	}
	if got := parse("\n\ndata: y\r\n\r\n", 1, p); len(got) != 1 {
		t.Errorf("then %s", got)
	}
}

func TestField3_OneLeadingMark(t *testing.T) {
	check(t, "\xef\xbb\xbfdata:1\n\ndata:2\n\n", `/: "1"`, `/: "2"`)
	check(t, "\xef\xbb\xbf\xef\xbb\xbfdata:1\n\ndata:2\n\n", `/: "2"`)
	check(t, "data:1\n\n\xef\xbb\xbfdata:2\n\ndata:\xef\xbb\xbf3\n\n", `/: "1"`, `/: "\ufeff3"`)
	check(t, "\xef\xbbdata:1\n\ndata:2\n\n", `/: "2"`)
	check(t, "\xef\xbb\xbf\n\ndata:2\n\n", `/: "2"`)
}

func TestField4_DataLinesAreJoined(t *testing.T) {
	check(t, "data: {\"jsonrpc\":\"2.0\",\"id\":2,\ndata: \"result\":{}}\n\n", `/: "{\"jsonrpc\":\"2.0\",\"id\":2,\n\"result\":{}}"`)
	check(t, "data:{\ndata\ndata:  }\n\n", `/: "{\n\n }"`)
}

func TestField5_LongData(t *testing.T) {
	for _, size := range []int{65535, 65536, 1048577, 16777216} {
		long := strings.Repeat("x", size)
		r := NewReader(strings.NewReader("data: " + long + "\n\ndata: after\n\n"))
		e, err := r.Next()
		if err != nil || string(e.Data) != long {
			t.Errorf("%d: %d bytes, %v", size, len(e.Data), err)
		}
		if e, err = r.Next(); err != nil || string(e.Data) != "after" {
			t.Errorf("%d: then %q, %v", size, e.Data, err)
		}
	}
}

func TestField5_TooLongDataIsLeftOutAndTold(t *testing.T) {
	long := strings.Repeat("x", 40)
	stream := "id: 1\nevent: a\ndata: " + long + "\n\ndata: y\n\nid: 2\ndata: " + long[:15] + "\ndata: " + long[:15] + "\ndata: z\n\ndata: " + long[:20] + "\n\nid:" + long + "\n:" + long + "\ndata: v\n\n"
	want := []string{
		"a/1: an event of 40 bytes is longer than the 20 taken", `/1: "y"`,
		"/2: an event of 33 bytes is longer than the 20 taken", fmt.Sprintf("/2: %q", long[:20]), `/2: "v"`,
	}
	for n := 1; n <= len(stream); n++ {
		var over strings.Builder
		p := &Parser{Max: 20, Over: func(b []byte) { over.Write(b) }}
		if got := parse(stream, n, p); strings.Join(got, "|") != strings.Join(want, "|") {
			t.Fatalf("in pieces of %d: %s", n, got)
		}
		if got := strings.ReplaceAll(over.String(), "\n", ""); got != long+long[:30]+"z" {
			t.Fatalf("in pieces of %d: shown %s", n, got)
		}
		if cap(p.part) > 100 || cap(p.data) > 100 {
			t.Fatalf("in pieces of %d: %d and %d bytes kept", n, cap(p.part), cap(p.data))
		}
	}
	var tooLong *TooLongError
	p := &Parser{Max: 1}
	p.Feed([]byte("data: xx\n\n"))
	if e, _ := p.Next(); !errors.As(e.Err, &tooLong) || tooLong.Size != 2 {
		t.Errorf("got %v", e.Err)
	}
}

func TestField6_CharactersCutInTwo(t *testing.T) {
	check(t, "data: {\"a\":\"那🌍é\"}\n\n", "/: \"{\\\"a\\\":\\\"那🌍é\\\"}\"")
}

func TestField7_OnlyCRAndLFEndALine(t *testing.T) {
	data := "a\u2028b\u2029c\u0085d\x0be\x0cf"
	check(t, "data: "+data+"\n\n", fmt.Sprintf("/: %q", data))
	if got := string(AppendEvent(nil, "", "", []byte(data))); got != "data: "+data+"\n\n" {
		t.Errorf("written as %q", got)
	}
}

func TestField8_CommentsAreNoEvents(t *testing.T) {
	for _, s := range []string{": keep-alive\n\n", ":\n", ":\r\n", ":\n\n", strings.Repeat(":\n", 1000)} {
		for n := 1; n < 4; n++ {
			if got := parse(s, n, &Parser{}); got != nil {
				t.Errorf("%q: %s", s, got)
			}
		}
	}
	check(t, "data: 1\n: keep-alive\ndata: 2\n\n", `/: "1\n2"`)
}

func TestField9_HeartbeatMovesNothing(t *testing.T) {
	p := &Parser{}
	stream := string(AppendEvent(nil, "", "7", []byte("x"))) + Heartbeat + Heartbeat + string(AppendEvent(nil, "", "8", []byte("y")))
	if got := parse(stream, 1, p); strings.Join(got, "|") != `/7: "x"|/8: "y"` {
		t.Errorf("got %s", got)
	}
	for _, field := range []string{"data", "event", "id"} {
		if strings.Contains(Heartbeat, field) {
			t.Errorf("the heartbeat has %s in it", field)
		}
	}
}

func TestField10_PrimingHandsOutAnID(t *testing.T) {
	p := &Parser{}
	if got := parse("id: s1:0\nretry: 3000\ndata:\n\n", 3, p); strings.Join(got, "|") != `/s1:0: ""` {
		t.Errorf("got %s", got)
	}
	if got := parse("id: s1:1\n\n", 3, p); got != nil || p.LastID() != "s1:1" {
		t.Errorf("got %s, last %q", got, p.LastID())
	}
	if d, ok := p.Retry(); !ok || d != 3*time.Second {
		t.Errorf("retry %v %v", d, ok)
	}
}

func TestField12_IDs(t *testing.T) {
	p := &Parser{}
	steps := []struct{ stream, last string }{
		{"id: 7\ndata:{}\n\n", "7"},
		{"id: a\x00b\ndata:{}\n\n", "7"},
		{"data:{}\n\n", "7"},
		{"id: 8\ndata:{}\n", "7"}, // not complete yet
		{"\n", "8"},
		{"id: not a number ~\n\n", "not a number ~"},
		{"id\ndata:{}\n\n", ""},
		{"id: 9\nid: 10\n\n", "10"},
		{"ID: 11\n\n", "10"},
	}
	for _, s := range steps {
		parse(s.stream, 2, p)
		if p.LastID() != s.last {
			t.Errorf("after %q: %q, want %q", s.stream, p.LastID(), s.last)
		}
	}
}

func TestField12_Retry(t *testing.T) {
	p := &Parser{}
	if _, ok := p.Retry(); ok {
		t.Error("retry before any")
	}
	for _, s := range []struct {
		line string
		want time.Duration
	}{
		{"retry: 5000", 5 * time.Second}, {"retry: 5000abc", 5 * time.Second}, {"retry:", 5 * time.Second},
		{"retry", 5 * time.Second}, {"retry: -1", 5 * time.Second}, {"retry: 1.5", 5 * time.Second}, {"retry:  1", 5 * time.Second},
		{"retry: 0", 0}, {"retry: 0010", 10 * time.Millisecond}, {"retry: 99999999999999999999999", MaxRetry},
	} {
		parse(s.line+"\n", 100, p)
		if d, ok := p.Retry(); !ok || d != s.want {
			t.Errorf("%s: %v", s.line, d)
		}
	}
}

func TestField15_EventsOfAnyNameAreDelivered(t *testing.T) {
	check(t, "event: error\ndata: {\"id\":4}\n\n", `error/: "{\"id\":4}"`)
}

func TestEventsAtTheEndAreDropped(t *testing.T) {
	for _, from := range []string{"id: 1\ndata: a\n\nid: 2\ndata: b\n", "id: 1\ndata: a\n\nid: 2\ndata: b", "id: 1\ndata: a\n\nid: 2"} {
		r := NewReader(iotest.DataErrReader(strings.NewReader(from)))
		if e, err := r.Next(); err != nil || string(e.Data) != "a" {
			t.Fatal(e, err)
		}
		if e, err := r.Next(); err != io.EOF || r.LastID() != "1" {
			t.Errorf("%q: %q %v, last %q", from, e.Data, err, r.LastID())
		}
	}
}

func TestReaderReturnsTheReadersError(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n\n"), iotest.ErrReader(broken)))
	for _, want := range []string{"a", "b"} {
		if e, err := r.Next(); err != nil || string(e.Data) != want {
			t.Fatal(e, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, broken) {
		t.Error(err)
	}
}

func TestReaderGivesALongEventsMemoryBack(t *testing.T) {
	r := NewReader(strings.NewReader("data: " + strings.Repeat("x", 4<<20) + "\n\ndata: a\n\n"))
	for range 2 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if cap(r.data) > 1<<20 || cap(r.part) > 1<<20 {
		t.Errorf("%d and %d bytes are kept", cap(r.data), cap(r.part))
	}
}
