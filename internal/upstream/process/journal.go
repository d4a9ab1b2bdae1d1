package process

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// journal hands what a child says to the log. It never waits for the log: what
// a slow one does not take is counted and dropped.
type journal struct {
	log     *slog.Logger
	entries chan entry
	dropped atomic.Int64
	lines   *rate.Limiter
	quit    chan struct{}
}

type entry struct {
	level slog.Level
	msg   string
	attrs []slog.Attr
}

// Lines of a child in the log: so many a second, after a first burst.
const (
	lineRate  = 50
	lineBurst = 200
	maxLine   = 1 << 10 // bytes of a line that are logged
	keepRoom  = 8       // entries kept free for what is not a line
)

func newJournal(log *slog.Logger, label string) *journal {
	return &journal{
		log:     log.With("session", label),
		entries: make(chan entry, 64),
		lines:   rate.NewLimiter(lineRate, lineBurst),
		quit:    make(chan struct{}),
	}
}

// line logs a line the child wrote, which was size bytes long.
func (j *journal) line(level slog.Level, msg, text string, size int) {
	if !j.log.Enabled(context.Background(), level) {
		return
	}
	if len(j.entries) > cap(j.entries)-keepRoom || !j.lines.Allow() {
		j.dropped.Add(1)
		return
	}
	text = printable(text[:min(len(text), maxLine)])
	j.add(level, msg, slog.String("line", text), slog.Int("bytes", size))
}

func (j *journal) add(level slog.Level, msg string, attrs ...slog.Attr) {
	select {
	case j.entries <- entry{level, msg, attrs}:
	default:
		j.dropped.Add(1)
	}
}

func (j *journal) run() {
	for {
		select {
		case e := <-j.entries:
			j.write(e)
		case <-j.quit:
			j.flush()
			return
		}
	}
}

func (j *journal) flush() {
	for {
		select {
		case e := <-j.entries:
			j.write(e)
		default:
			j.tellDropped()
			return
		}
	}
}

func (j *journal) write(e entry) {
	j.tellDropped()
	j.log.LogAttrs(context.Background(), e.level, e.msg, e.attrs...)
}

func (j *journal) tellDropped() {
	if n := j.dropped.Swap(0); n > 0 {
		j.log.Warn("lines of the server were left out of the log", "count", n)
	}
}

// printable escapes control characters, which could write to a terminal or
// forge lines, and bytes that are not UTF-8.
func printable(s string) string {
	if !strings.ContainsFunc(s, unprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unprintable(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool {
	return r != '\t' && (unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r))
}
