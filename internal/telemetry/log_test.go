package telemetry

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var b bytes.Buffer
		l, err := NewLogger(&b, format, "info")
		if err != nil {
			t.Fatal(err)
		}
		l.Info("bad\nlevel=ERROR msg=forged", "line", "a\r\n\x1b[2Jb\u202e", "key\n", 1)
		out := strings.TrimSuffix(b.String(), "\n")
		if strings.ContainsAny(out, "\n\r\x1b") || format == "text" && strings.Contains(out, "\u202e") {
			t.Errorf("%s: a control character came through: %q", format, out)
		}
	}
}

func TestLevelsAndFormats(t *testing.T) {
	var b bytes.Buffer
	l, err := NewLogger(&b, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	l.Info("not this")
	l.Warn("this", "session", "abcd1234")
	Announce(t.Context(), l, "listening", "url", "http://127.0.0.1:1/mcp")
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("logged %q", lines)
	}
	var last map[string]any
	if err := json.Unmarshal([]byte(lines[1]), &last); err != nil || last["msg"] != "listening" || last["url"] != "http://127.0.0.1:1/mcp" {
		t.Errorf("the announcement is %v, %v", last, err)
	}
	if _, err := NewLogger(&b, "xml", "info"); err == nil {
		t.Error("format xml was taken")
	}
	if _, err := NewLogger(&b, "text", "loud"); err == nil {
		t.Error("level loud was taken")
	}
}

func TestLongTextsAreCut(t *testing.T) {
	var b bytes.Buffer
	l, _ := NewLogger(&b, "text", "info")
	l.Info("stdout", "line", strings.Repeat("ä", 1<<20))
	if b.Len() > 2*longest || !strings.Contains(b.String(), "…") {
		t.Errorf("a line of a megabyte was logged in %d bytes", b.Len())
	}
}

// TestTimesHaveTheirUnit: a bare number of nanoseconds says nothing to a reader.
func TestTimesHaveTheirUnit(t *testing.T) {
	for format, want := range map[string]string{"text": " lived=15.01s\n", "json": `"lived":"15.01s"`} {
		var b bytes.Buffer
		l, err := NewLogger(&b, format, "info")
		if err != nil {
			t.Fatal(err)
		}
		l.Info("it ended", "lived", 15010*time.Millisecond)
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", format, b.String())
		}
	}
}
