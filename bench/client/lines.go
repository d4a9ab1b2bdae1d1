// Package client is the reading side of the measurements: an MCP client over
// HTTP or a pipe that spends as little as it can on each byte, so that what is
// measured is the gateway. It checks what it counts: every serial number.
package client

import "bytes"

// lines hands whole lines on, in blocks as large as they arrive.
type lines struct{ rest []byte }

func (l *lines) feed(chunk []byte, block func([]byte)) {
	if len(l.rest) > 0 {
		i := bytes.IndexByte(chunk, '\n')
		if i < 0 {
			l.rest = append(l.rest, chunk...)
			return
		}
		l.rest = append(l.rest, chunk[:i+1]...)
		block(l.rest)
		l.rest, chunk = l.rest[:0], chunk[i+1:]
	}
	i := bytes.LastIndexByte(chunk, '\n')
	if i >= 0 {
		block(chunk[:i+1])
	}
	l.rest = append(l.rest, chunk[i+1:]...)
}

// end hands on a last line without a newline, as a JSON body is one.
func (l *lines) end(block func([]byte)) {
	if len(l.rest) > 0 {
		block(l.rest)
		l.rest = l.rest[:0]
	}
}
