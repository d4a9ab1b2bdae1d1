// Package notice writes the messages that Segno sends in its own name: that events
// are missing, and how a call ended that the server did not answer.
package notice

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// Why events are missing, as a gap notice says it.
const (
	Retention  = "retention"   // dropped by count, bytes or age
	SlowReader = "slow_reader" // dropped while connected but not reading
	Store      = "store"       // the store lost them
	Policy     = "policy"      // kept, but the client wants only what is new
	Gone       = "gone"        // the stream is dropped
	Unknown    = "unknown"     // no such stream here
)

// levels are the log levels of MCP, lowest first (RFC 5424 names).
var levels = [...]string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Rank orders the log levels of MCP, debug first; -1 for what is none.
func Rank(level string) int {
	for i, l := range levels {
		if l == level {
			return i
		}
	}
	return -1
}

// Gap is the notifications/message that tells of a gap. Its level is at
// least warning and at least the client's own, or the client would not see it.
func Gap(level, stream, reason string, g eventlog.Gap) []byte {
	if Rank(level) < Rank("warning") {
		level = "warning"
	}
	p := append([]byte(nil), `{"level":`...)
	p = wire.AppendQuoted(p, level)
	p = append(p, `,"logger":"segno","data":{"gap":`...)
	p = append(appendGap(p, stream, reason, g), "}}"...)
	return wire.AppendNotification(nil, wire.LogNote, p)
}

func appendGap(p []byte, stream, reason string, g eventlog.Gap) []byte {
	p = append(p, `{"stream":`...)
	p = wire.AppendQuoted(p, stream)
	p = append(p, `,"reason":`...)
	p = wire.AppendQuoted(p, reason)
	if reason != Unknown && reason != Gone {
		p = append(p, `,"after":`...)
		p = strconv.AppendUint(p, g.After, 10)
		p = append(p, `,"next":`...)
		p = strconv.AppendUint(p, g.Next, 10)
		p = append(p, `,"lost":`...)
		p = strconv.AppendUint(p, g.Lost, 10)
	}
	return append(p, '}')
}

// UnknownOutcome is the error for a call of which nobody knows whether its
// tool ran to the end. stderr is what the server last said there, if anything.
func UnknownOutcome(id []byte, why, stderr string) []byte {
	return failed(id, "unknown", "outcome unknown: ", why, stderr)
}

// NotExecuted is the error for a call that never reached the server.
func NotExecuted(id []byte, why, stderr string) []byte {
	return failed(id, "not executed", "not executed: ", why, stderr)
}

func failed(id []byte, outcome, prefix, why, stderr string) []byte {
	d := append([]byte(nil), `{"outcome":`...)
	d = wire.AppendQuoted(d, outcome)
	d = append(d, `,"reason":`...)
	d = wire.AppendQuoted(d, why)
	if stderr != "" {
		d = append(d, `,"stderr":`...)
		d = wire.AppendQuoted(d, stderr)
	}
	d = append(d, '}')
	return wire.AppendError(nil, id, wire.CodeInternal, prefix+WithLastLine(why, stderr), d)
}

// maxLine is the most of a line that goes into a message, in bytes.
const maxLine = 300

// WithLastLine adds to a reason the last line that the server said: most
// clients show the message of an error and nothing else.
func WithLastLine(why, stderr string) string {
	stderr = strings.TrimRightFunc(stderr, unicode.IsSpace)
	line := strings.TrimSpace(stderr[strings.LastIndexAny(stderr, "\r\n")+1:])
	if line == "" {
		return why
	}
	var b strings.Builder
	for _, r := range line {
		if b.Len() > maxLine {
			b.WriteString("…")
			break
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			fmt.Fprintf(&b, `\x%02x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return why + ": " + b.String()
}

// GapOutcome is the error that ends a call whose client wants none with a hole.
// It tells of the hole in the words of its notice.
func GapOutcome(id []byte, stream, reason string, g eventlog.Gap) []byte {
	d := append([]byte(nil), `{"outcome":"unknown","gap":`...)
	d = append(appendGap(d, stream, reason, g), '}')
	return wire.AppendError(nil, id, wire.CodeInternal, "events of the call are lost, and it was cancelled as asked by Segno-On-Gap: error", d)
}

// Cancel tells the other side that a request of this id is not wanted any
// more.
func Cancel(id []byte, reason string) []byte {
	p := append([]byte(nil), `{"requestId":`...)
	p = append(p, id...)
	p = append(p, `,"reason":`...)
	p = wire.AppendQuoted(p, reason)
	p = append(p, '}')
	return wire.AppendNotification(nil, wire.Cancelled, p)
}
