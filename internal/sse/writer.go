// Package sse writes and reads text/event-stream (WHATWG HTML, "Server-sent
// events"). It knows nothing of MCP and does no input or output of its own but
// in Reader.
package sse

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// Heartbeat is what a writer sends when it has nothing to say: a comment line.
// It has no empty line after it, as many readers take that for an event, so it
// may stand only between events. It moves no cursor.
const Heartbeat = ":\n"

// AppendEvent appends an event. event and id may be empty, then the event has
// none. Data is taken byte for byte but for CR, LF and CRLF, which each begin a
// new data line and reach the reader as LF. A name or id with CR, LF or NUL in
// it is left out: it would end the line, and a changed id would be another
// place.
//
// U+2028 and its like are not escaped, though some readers break at them: they
// are part of messages that must arrive as they were sent.
func AppendEvent(dst []byte, event, id string, data []byte) []byte {
	dst = appendField(dst, "id: ", id)
	dst = appendField(dst, "event: ", event)
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		dst = append(dst, "data: "...)
		dst = append(dst, data...)
		return append(dst, "\n\n"...)
	}
	return append(appendLines(dst, data), '\n')
}

func appendField(dst []byte, name, value string) []byte {
	if value == "" || strings.ContainsAny(value, "\r\n\x00") {
		return dst
	}
	dst = append(dst, name...)
	dst = append(dst, value...)
	return append(dst, '\n')
}

func appendLines(dst, data []byte) []byte {
	for {
		// Some readers want the space, so it is always there.
		dst = append(dst, "data: "...)
		n := bytes.IndexAny(data, "\r\n")
		if n < 0 {
			dst = append(dst, data...)
			return append(dst, '\n')
		}
		dst = append(dst, data[:n]...)
		dst = append(dst, '\n')
		if bytes.HasPrefix(data[n:], []byte("\r\n")) {
			n++
		}
		data = data[n+1:]
	}
}

// AppendPriming appends the event that hands out an id and nothing else: empty
// data and no name (MCP 2025-11-25, Transports, Sending Messages to the
// Server). With a retry above zero it carries that line too.
func AppendPriming(dst []byte, id string, retry time.Duration) []byte {
	dst = appendField(dst, "id: ", id)
	if retry > 0 {
		dst = appendRetry(dst, retry)
	}
	return append(dst, "data: \n\n"...)
}

// AppendRetry appends the time after which the reader shall connect again, as a
// block of its own, which is no event. It is rounded up to a millisecond.
func AppendRetry(dst []byte, d time.Duration) []byte {
	return append(appendRetry(dst, d), '\n')
}

func appendRetry(dst []byte, d time.Duration) []byte {
	dst = append(dst, "retry: "...)
	ms := max(0, (d+time.Millisecond-1)/time.Millisecond)
	return append(strconv.AppendInt(dst, int64(ms), 10), '\n')
}
