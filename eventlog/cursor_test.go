package eventlog_test

import (
	"strings"
	"testing"

	"github.com/segno-mcp/segno/eventlog"
)

const streamName = "AAAAAAAAAAAAAAAAAAAA-_"

func TestParseCursorIsStrict(t *testing.T) {
	for text, ok := range map[string]bool{
		streamName + ".abcdef.0":                   true,
		streamName + ".abcdef.12":                  true,
		streamName + ".abcdef.9223372036854775807": true,
		streamName + ".abcdef.7.zzzzzz":            true,
		"":                                         false,
		".":                                        false,
		"..":                                       false,
		streamName + ".abcdef":                     false,
		streamName + ".abcdef.":                    false,
		streamName + ".abcdef.01":                  false,
		streamName + ".abcdef.+1":                  false,
		streamName + ".abcdef.-1":                  false,
		streamName + ".abcdef.1_0":                 false,
		streamName + ".abcdef.0x1":                 false,
		streamName + ".abcdef. 1":                  false,
		streamName + ".abcdef.9223372036854775808": false,
		streamName + ".abcde.1":                    false,
		streamName + ".abcd ef.1":                  false,
		streamName + ".abcdef.1.":                  false,
		streamName + ".abcdef.1.zzzzz":             false,
		streamName + ".abcdef.1.zzzzzz.1":          false,
		streamName + ".abcdef.1.x":                 false,
		"short.abcdef.1":                           false,
		strings.Repeat("A", 65):                    false,
	} {
		c, err := eventlog.ParseCursor(text)
		if (err == nil) != ok {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
		if ok && c.String() != text {
			t.Errorf("%q comes back as %q", text, c)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(streamName + ".abcdef.12.zzzzzz")
	f.Add(streamName + ".abcdef.00")
	f.Add("..." + streamName)
	f.Fuzz(func(t *testing.T, text string) {
		c, err := eventlog.ParseCursor(text)
		if err != nil {
			return
		}
		if c.String() != text {
			t.Fatalf("%q comes back as %q", text, c)
		}
		for _, char := range text {
			// What a browser sends without a preflight.
			if !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.", char) {
				t.Fatalf("%q has %q", text, char)
			}
		}
		if len(text) > eventlog.MaxCursor {
			t.Fatalf("%q is too long", text)
		}
	})
}

func TestPlace(t *testing.T) {
	one := eventlog.Info{Top: 9, Terms: []eventlog.Term{{Name: "one", First: 1}}}
	three := eventlog.Info{Top: 9, Terms: []eventlog.Term{{Name: "one", First: 1}, {Name: "two", First: 4}, {Name: "three", First: 6}}}
	for _, tc := range []struct {
		name  string
		info  eventlog.Info
		term  string
		seq   uint64
		place uint64
		holds bool
	}{
		{"before the first", one, "one", 0, 0, true},
		{"in the middle", one, "one", 5, 5, true},
		{"at the top", one, "one", 9, 9, true},
		{"beyond the end", one, "one", 10, 9, false},
		{"a term that never was", one, "two", 5, 0, false},
		{"before the first of many terms", three, "one", 0, 0, true},
		{"last of its term", three, "one", 3, 3, true},
		{"what the next term wrote instead", three, "one", 4, 3, false},
		{"far beyond its term", three, "one", 100, 3, false},
		{"first of its term", three, "two", 4, 4, true},
		{"before its term began", three, "two", 3, 3, false},
		{"long before its term began", three, "two", 1, 1, false},
		{"zero of a later term", three, "two", 0, 0, false},
		{"last of the middle term", three, "two", 5, 5, true},
		{"beyond the middle term", three, "two", 6, 5, false},
		{"newest term", three, "three", 9, 9, true},
		{"beyond the newest term", three, "three", 10, 9, false},
		{"nothing is there", eventlog.Info{}, "one", 1, 0, false},
	} {
		place, holds := tc.info.Place(eventlog.Cursor{Term: tc.term, Seq: tc.seq})
		if place != tc.place || holds != tc.holds {
			t.Errorf("%s: %s.%d stands at %d (%v), want %d (%v)", tc.name, tc.term, tc.seq, place, holds, tc.place, tc.holds)
		}
	}
	for seq, term := range map[uint64]string{0: "one", 1: "one", 3: "one", 4: "two", 5: "two", 6: "three", 99: "three"} {
		if got := three.TermAt(seq); got != term {
			t.Errorf("%d is of term %q, want %q", seq, got, term)
		}
		// A cursor that is made for a place holds there.
		if place, holds := three.Place(eventlog.Cursor{Term: three.TermAt(seq), Seq: seq}); seq <= three.Top && (place != seq || !holds) {
			t.Errorf("a cursor made for %d stands at %d (%v)", seq, place, holds)
		}
	}
}

func TestNewTerm(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		term := eventlog.NewTerm()
		if _, err := eventlog.ParseCursor(streamName + "." + term + ".1"); err != nil || seen[term] {
			t.Fatalf("term %q: %v, seen %v", term, err, seen[term])
		}
		seen[term] = true
	}
}
