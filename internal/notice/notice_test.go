package notice

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

func TestAGapIsSeenAtEveryLevelOfTheClient(t *testing.T) {
	gap := eventlog.Gap{After: 3, Next: 9, Lost: 5}
	for level, want := range map[string]string{"": "warning", "debug": "warning", "warning": "warning", "error": "error", "emergency": "emergency", "loud": "warning"} {
		got := string(Gap(level, "s", Retention, gap))
		if want := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"` + want + `","logger":"segno","data":{"gap":{"stream":"s","reason":"retention","after":3,"next":9,"lost":5}}}}`; got != want {
			t.Errorf("%q: %s", level, got)
		}
	}
	for _, reason := range []string{Gone, Unknown} {
		if got := string(Gap("", "s", reason, gap)); strings.Contains(got, "after") || !strings.Contains(got, `"reason":"`+reason+`"`) {
			t.Errorf("%s: %s", reason, got)
		}
	}
}

// Whatever a server says on its last breath, the message is one.
func TestEveryNoticeIsAMessage(t *testing.T) {
	nasty := "a\"\\\n\r\u2028\x00\xff</script>"
	for _, id := range []string{`1`, `"x"`, `9007199254740993`} {
		for name, raw := range map[string][]byte{
			"unknown":      UnknownOutcome([]byte(id), nasty, nasty),
			"not executed": NotExecuted([]byte(id), nasty, ""),
			"gap":          GapOutcome([]byte(id), nasty, nasty, eventlog.Gap{After: 1, Lost: 2}),
			"cancel":       Cancel([]byte(id), nasty),
			"notice":       Gap(nasty, nasty, nasty, eventlog.Gap{}),
		} {
			m, err := wire.Parse(raw)
			if err != nil || !json.Valid(raw) {
				t.Errorf("%s: %v: %s", name, err, raw)
				continue
			}
			if m.Kind == wire.Failure && string(m.IDText()) != id {
				t.Errorf("%s has the id %s", name, m.IDText())
			}
			if strings.ContainsAny(string(raw), "\n\r") {
				t.Errorf("%s is more than a line", name)
			}
		}
	}
}

func TestTheOutcomeSaysWhetherTheToolMayHaveRun(t *testing.T) {
	if got := string(UnknownOutcome([]byte("1"), "why", "")); !strings.Contains(got, `"data":{"outcome":"unknown","reason":"why"}`) {
		t.Error(got)
	}
	if got := string(NotExecuted([]byte("1"), "why", "tail")); !strings.Contains(got, `"data":{"outcome":"not executed","reason":"why","stderr":"tail"}`) {
		t.Error(got)
	}
}

func TestTheLastLineOfTheServerIsInTheMessage(t *testing.T) {
	for stderr, want := range map[string]string{
		"":                                       "exit status 3",
		" \n\t\n":                                "exit status 3",
		"loading\nno licence\n\n":                "exit status 3: no licence",
		"10 %\r100 %\r":                          "exit status 3: 100 %",
		"a\n\x1b[31mno\x00\u202e licence\x1b[0m": `exit status 3: \x1b[31mno\x00\x202e licence\x1b[0m`,
		strings.Repeat("é", 1000):                "exit status 3: " + strings.Repeat("é", 151) + "…",
	} {
		if got := WithLastLine("exit status 3", stderr); got != want {
			t.Errorf("%q: %s, want %s", stderr, got, want)
		}
	}
	m, err := wire.Parse(NotExecuted([]byte("1"), "exit status 3", "a\nno licence\n"))
	if err != nil || m.StringAt("error", "message") != "not executed: exit status 3: no licence" || m.StringAt("error", "data", "stderr") != "a\nno licence\n" {
		t.Errorf("%s, %v", m.Raw, err)
	}
}
