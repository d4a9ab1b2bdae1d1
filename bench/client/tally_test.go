package client

import (
	"strings"
	"testing"
	"time"

	"github.com/segno-mcp/segno/bench/tool"
)

// stream is a body as an SSE server sends it: n events and the result.
func stream(serials ...int) string {
	var b strings.Builder
	b.WriteString("id: s.t.0\ndata:\n\n")
	for _, i := range serials {
		b.WriteString("id: s.t.x\ndata: ")
		b.Write(tool.AppendProgress(nil, []byte("7"), i, 200))
		b.WriteString("\n")
	}
	b.WriteString("id: s.t.y\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n")
	return b.String()
}

// TestTallyIsTheSameHoweverTheBytesArrive cuts a stream into pieces of every size.
func TestTallyIsTheSameHoweverTheBytesArrive(t *testing.T) {
	body := stream(1, 2, 3, 4, 5)
	for size := 1; size <= len(body); size++ {
		var got Tally
		for rest := body; rest != ""; {
			k := min(size, len(rest))
			got.Feed([]byte(rest[:k]))
			rest = rest[k:]
		}
		if err := got.End(5); err != nil || got.Events != 5 || got.Lost != 0 || got.FirstID != "s.t.0" {
			t.Fatalf("pieces of %d: %+v, %v", size, got, err)
		}
	}
}

func TestTallySeesWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name    string
		serials []int
		of      int
		lost    int
		fails   bool
	}{
		{"all", []int{1, 2, 3}, 3, 0, false},
		{"hole", []int{1, 4, 5}, 5, 2, false},
		{"first is missing", []int{2, 3}, 3, 1, false},
		{"last is missing", []int{1, 2}, 3, 1, false},
		{"twice", []int{1, 2, 2, 3}, 3, 0, true},
		{"out of order", []int{1, 3, 2}, 3, 1, true},
	} {
		var got Tally
		got.Feed([]byte(stream(c.serials...)))
		if err := got.End(c.of); (err != nil) != c.fails || (err == nil && got.Lost != c.lost) {
			t.Errorf("%s: lost %d, want %d; %v", c.name, got.Lost, c.lost, err)
		}
	}
	var cut Tally
	body := stream(1, 2, 3)
	cut.Feed([]byte(body[:len(body)-60]))
	if err := cut.End(3); err == nil {
		t.Error("a stream without its result was taken for whole")
	}
}

func TestTallyCountsNotices(t *testing.T) {
	var got Tally
	got.Feed([]byte(`data: {"method":"notifications/message","params":{"data":{"gap":{"lost":3}}}}` + "\n\n"))
	got.Feed([]byte(stream(4, 5)))
	if err := got.End(5); err != nil || got.Told != 1 || got.Lost != 3 {
		t.Errorf("told %d, lost %d: %v", got.Told, got.Lost, err)
	}
}

func TestStampsReadEveryTime(t *testing.T) {
	var got Stamps
	body := tool.AppendStamp(nil, []byte("7"), 1, time.Now().Add(-time.Second))
	body = tool.AppendStamp(body, []byte("7"), 2, time.Now().Add(-time.Second))
	got.Feed(body[:30])
	got.Feed(body[30:])
	if len(got.Took) != 2 || got.Took[0] < time.Second || got.Took[1] > time.Minute {
		t.Errorf("took %v", got.Took)
	}
}

func TestProgressHasTheSizeAskedFor(t *testing.T) {
	for _, i := range []int{1, 99, 5_000_000} {
		if got := len(tool.AppendProgress(nil, []byte("123"), i, 200)) - 1; got != 200 {
			t.Errorf("event %d has %d bytes", i, got)
		}
	}
}
