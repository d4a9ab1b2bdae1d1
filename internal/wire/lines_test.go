package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

// readLines reads everything and returns the messages and the bad lines.
func readLines(r io.Reader, opt LineOptions) (msgs, bad []string, err error) {
	opt.Bad = func(line []byte, _ *Error) { bad = append(bad, string(line)) }
	l := NewLines(r, opt)
	for {
		batch, err := l.Next()
		if err != nil {
			return msgs, bad, err
		}
		for _, m := range batch {
			msgs = append(msgs, string(m.Raw))
		}
	}
}

func checkLines(t *testing.T, text string, opt LineOptions, want, wantBad []string) {
	t.Helper()
	readers := map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)),
		"halves": iotest.HalfReader(strings.NewReader(text)), "with the end": iotest.DataErrReader(strings.NewReader(text)),
	}
	for name, r := range readers {
		msgs, bad, err := readLines(r, opt)
		if err != io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Join(msgs, "|") != strings.Join(want, "|") {
			t.Errorf("%s: got\n%.300s\nwant\n%.300s", name, strings.Join(msgs, "\n"), strings.Join(want, "\n"))
		}
		if wantBad != nil && strings.Join(bad, "|") != strings.Join(wantBad, "|") {
			t.Errorf("%s: bad lines %.300q, want %.300q", name, bad, wantBad)
		}
	}
}

const one, two = `{"jsonrpc":"2.0","id":1,"result":{"a":"b"}}`, `{"jsonrpc":"2.0","method":"x"}`

func TestLines(t *testing.T) {
	checkLines(t, one+"\n"+two+"\r\n\n\r\n  \n"+one+"\n", LineOptions{}, []string{one, two, one}, []string{})
	checkLines(t, one+"\n["+two+", "+one+",[],3]\n[]\n"+two+"\n", LineOptions{}, []string{one, two, one, two}, []string{"[]", "3", "[]"})
	checkLines(t, "", LineOptions{}, nil, []string{})
}

func TestLinesTakesAWholeLastLine(t *testing.T) {
	checkLines(t, one+"\n"+two, LineOptions{}, []string{one, two}, []string{})
	checkLines(t, one+"\n"+two[:20], LineOptions{}, []string{one}, []string{two[:20]})
}

func TestLinesReturnsManyMessagesInBatches(t *testing.T) {
	const many = 3*lineBatch + 1
	text := strings.Repeat(two+"\n", many-1) + two
	l := NewLines(strings.NewReader(text), LineOptions{})
	got := 0
	for {
		batch, err := l.Next()
		if err != nil {
			break
		}
		if len(batch) > lineBatch {
			t.Fatalf("a batch of %d", len(batch))
		}
		for _, m := range batch {
			if string(m.Raw) != two {
				t.Fatalf("got %s", m.Raw)
			}
		}
		got += len(batch)
	}
	if got != many {
		t.Errorf("%d messages of %d", got, many)
	}
}

func TestLinesReportsTheReadersError(t *testing.T) {
	broken := errors.New("broken")
	msgs, _, err := readLines(io.MultiReader(strings.NewReader(one+"\n"+two), iotest.ErrReader(broken)), LineOptions{})
	if len(msgs) != 1 || !errors.Is(err, broken) {
		t.Errorf("%v %v", msgs, err)
	}
}

func TestField3_MarkBeforeALine(t *testing.T) {
	checkLines(t, "\xef\xbb\xbf"+one+"\n\xef\xbb\xbf["+two+"]\n", LineOptions{}, []string{one, two}, []string{})
}

func TestField5_LongLinesPass(t *testing.T) {
	for _, size := range []int{65535, 65536, 1048577, 16777216} {
		long := `{"jsonrpc":"2.0","id":1,"result":{"t":"`
		long += strings.Repeat("x", size-len(long)-3) + `"}}`
		msgs, bad, err := readLines(strings.NewReader(two+"\n"+long+"\n"+two+"\n"), LineOptions{})
		if err != io.EOF || len(bad) != 0 || len(msgs) != 3 || msgs[1] != long || msgs[2] != two {
			t.Errorf("%d: %d messages, %d bad, %v", size, len(msgs), len(bad), err)
		}
	}
}

func TestField7_OnlyLFEndsALine(t *testing.T) {
	text := "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"a\":\"\u2028\u2029\u0085\\u000b\\u000c\"}\r}"
	checkLines(t, text+"\n"+two+"\n", LineOptions{}, []string{text, two}, []string{})
}

func TestField59_OtherLinesAreReportedAndPassedOver(t *testing.T) {
	noise := []string{"Server v1 started", "[db] connected", "┌──┐", `{"level":"info","id":5}`, `half{"jsonrpc":"2.0","id":1,"result":{}}`, `[INFO] {"jsonrpc":"2.0","id":1,"result":{}}`, `{"jsonrpc":"2.0","id":1,"result":{}} sent`}
	checkLines(t, noise[0]+"\n\n"+strings.Join(noise[1:], "\n")+"\n"+one+"\n", LineOptions{}, []string{one}, noise)
}

func TestLinesMakesUTF8(t *testing.T) {
	checkLines(t, "{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"a\":\"\xff\xe9\x82\xa3\"}}\n", LineOptions{},
		[]string{"{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":{\"a\":\"\uFFFD那\"}}"}, []string{})
}

func answer(id, middle string) string {
	return `{"result":{"t":"` + middle + `"},"jsonrpc":"2.0","id":` + id + `}`
}

func TestField66_TooLongAnswersFailTheirCall(t *testing.T) {
	opt := LineOptions{Max: 1000}
	long := strings.Repeat("x\\\"", 400)
	for _, text := range []string{answer("7", long), `{"jsonrpc":"2.0","id":"a,}b","error":{"code":1,"message":"` + long + `"}}`, answer("7", strings.Repeat(long, 400))} {
		var bad int
		l := NewLines(strings.NewReader(two+"\n"+text+"\n"+two+"\n"), LineOptions{Max: 1000, Bad: func([]byte, *Error) { bad++ }})
		var got []Message
		for {
			batch, err := l.Next()
			if err != nil {
				break
			}
			for _, m := range batch {
				m.Raw = bytes.Clone(m.Raw)
				got = append(got, m)
			}
		}
		if len(got) != 3 || bad != 1 {
			t.Fatalf("%.40s: %d messages, %d bad", text, len(got), bad)
		}
		if id := string(got[1].IDText()); got[1].Kind != Failure || id != "7" && id != `"a,}b"` {
			t.Errorf("%.40s: %s", text, got[1].Raw)
		}
	}
	checkLines(t, strings.Repeat("x", 3e5)+"\n"+two+"\n", opt, []string{two}, nil)
	checkLines(t, `{"jsonrpc":"2.0","id":7,"method":"x","params":"`+long+`"}`+"\n"+two+"\n", opt, []string{two}, nil)
}

func TestMalformedAnswersFailTheirCall(t *testing.T) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":7,"result":{"v":NaN}}`,
		`{"jsonrpc":"2.0","id":7,"error":"text"}`,
		`{"jsonrpc":"2.0","id":7,"result":{},"error":{}}`,
		`{"id":7,"result":{}}`, `{"jsonrpc":"1.0","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":7,"result":1,"result":2}`,
		`{"jsonrpc":"2.0","id":7,"id":7,"result":{}}`, `{"jsonrpc":"2.0","Id":7,"result":{}}`, `{"jsonrpc":"2.0","\u0069d":7,"RESULT":{}}`,
	} {
		msgs, bad, _ := readLines(strings.NewReader(text+"\n"), LineOptions{})
		if len(bad) != 1 || len(msgs) != 1 || !strings.HasPrefix(msgs[0], `{"jsonrpc":"2.0","id":7,"error":{"code":-32000,`) {
			t.Errorf("%s: %v", text, msgs)
		}
	}
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":7,"id":8,"result":{}}`, `{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}`,
		`{"level":"info","id":7,"result":{}}`, `{"jsonrpc":"2.0","id":1.5,"result":{}}`, `{"jsonrpc":"2.0","id":{},"result":{}}`,
	} {
		if msgs, bad, _ := readLines(strings.NewReader(text+"\n"), LineOptions{}); len(msgs) != 0 || len(bad) != 1 {
			t.Errorf("%s: %v", text, msgs)
		}
	}
}

func TestLinesAsksForRoomAndGivesItBack(t *testing.T) {
	used, most := 0, 0
	room := func(n int) bool {
		if used+n > 1<<20 {
			return false
		}
		used += n
		most = max(most, used)
		return true
	}
	fits, not := answer("1", strings.Repeat("x", 600<<10)), answer("2", strings.Repeat("x", 5<<20))
	msgs, _, err := readLines(strings.NewReader(fits+"\n"+not+"\n"+fits+"\n"+two+"\n"), LineOptions{Room: room})
	if err != io.EOF || len(msgs) != 4 || msgs[0] != fits || msgs[2] != fits || msgs[3] != two || len(msgs[1]) > 1000 {
		t.Errorf("%d messages, %v", len(msgs), err)
	}
	if used != 0 || most == 0 {
		t.Errorf("%d bytes are still taken, at most %d were", used, most)
	}
}

func TestLinesGivesALongLinesMemoryBack(t *testing.T) {
	l := NewLines(io.MultiReader(strings.NewReader(answer("1", strings.Repeat("x", 8<<20))+"\n"), strings.NewReader(two+"\n"), strings.NewReader(two+"\n")), LineOptions{})
	for range 3 {
		if _, err := l.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if len(l.buf) > lineUsual {
		t.Errorf("the buffer is %d bytes long", len(l.buf))
	}
}

func TestLinesCostNoMemoryPerMessage(t *testing.T) {
	text := bytes.Repeat(append(bytes.Clone(progressLine), '\n'), 20000)
	n := testing.AllocsPerRun(3, func() {
		l, got := NewLines(bytes.NewReader(text), LineOptions{}), 0
		for {
			batch, err := l.Next()
			if err != nil {
				break
			}
			got += len(batch)
		}
		if got != 20000 {
			t.Errorf("%d messages", got)
		}
	})
	if n > 40 {
		t.Errorf("%v allocations for 20000 messages", n)
	}
}

func BenchmarkLines(b *testing.B) {
	text := bytes.Repeat(append(bytes.Clone(progressLine), '\n'), 10000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		l := NewLines(bytes.NewReader(text), LineOptions{})
		n := 0
		for {
			batch, err := l.Next()
			if err != nil {
				break
			}
			n += len(batch)
		}
		if n != 10000 {
			b.Fatal(fmt.Sprint(n, " messages"))
		}
	}
}

// late gives a piece, then the error of a deadline, and so on.
type late struct{ pieces []string }

func (r *late) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0])
	r.pieces = r.pieces[1:]
	if n == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	return n, nil
}

func TestLinesGoesOnAfterADeadline(t *testing.T) {
	l := NewLines(&late{[]string{two[:5], "", two[5:] + "\n", ""}}, LineOptions{})
	if _, err := l.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if msgs, err := l.Next(); err != nil || string(msgs[0].Raw) != two {
		t.Fatal(msgs, err)
	}
	if _, err := l.Next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := l.Next(); err != io.EOF {
		t.Fatal(err)
	}
}
