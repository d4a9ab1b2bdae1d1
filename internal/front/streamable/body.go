package streamable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
	"unicode/utf8"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// firstRead is how much room a body of unknown length gets before any of it has
// come, in bytes. Up to small a body is always taken and not counted: the number
// of connections bounds those.
const (
	firstRead = 4 << 10
	small     = 64 << 10
)

// body reads the whole body. That comes first: only after it does a request's
// context tell that the client left. The room it took is given back by release.
func (x *exchange) body() (text []byte, release func(), err error) {
	release = func() {}
	max := x.f.o.MaxMessage
	switch {
	case !isJSON(x.r.Header):
		return nil, release, invalid(http.StatusUnsupportedMediaType, "the Content-Type must be application/json")
	case !plain(x.r.Header):
		return nil, release, invalid(http.StatusUnsupportedMediaType, "the body must not be compressed")
	case x.r.ContentLength > int64(max):
		return nil, release, x.tooLarge(max)
	}
	if err := x.rc.SetReadDeadline(time.Now().Add(x.f.o.BodyTimeout)); err != nil {
		return nil, release, x.hidden(err)
	}
	text, taken, err := x.readBody(max)
	release = func() { x.f.bodies.give(x.who.Principal, taken) }
	if err != nil {
		return nil, release, err
	}
	if !utf8.Valid(text) {
		x.f.meter.Add(metric.Errors, "malformed", 1)
		return nil, release, &problem{status: http.StatusBadRequest, code: wire.CodeParse, message: "the body is not UTF-8"}
	}
	// The server's own wait for the client's leaving uses the same deadline.
	if err := x.rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, release, x.hidden(err)
	}
	x.f.meter.Add(metric.BytesIn, "client", float64(len(text)))
	return text, release, nil
}

// readBody takes room as the bytes come, so that a client that announces much
// and sends little holds little.
func (x *exchange) readBody(max int) (text []byte, taken int64, err error) {
	room := firstRead
	if n := x.r.ContentLength; n >= 0 {
		room = int(min(n, small)) + 1
	}
	for {
		if n := int64(room-small-1) - taken; n > 0 {
			if !x.f.bodies.take(x.who, taken, n) {
				return nil, taken, x.crowded()
			}
			taken += n
		}
		text = append(make([]byte, 0, room), text...)
		for len(text) < room {
			n, err := x.r.Body.Read(text[len(text):room])
			text = text[:len(text)+n]
			if len(text) > max {
				return nil, taken, x.tooLarge(max)
			}
			if err == io.EOF {
				return fitted(text), taken, nil
			}
			if err != nil {
				return nil, taken, x.unread(err)
			}
		}
		room = min(2*room, max+1)
	}
}

// crowded refuses a body for which there is no room. Its id is not known, but in
// a live session that is no failure of the server.
func (x *exchange) crowded() error {
	p := x.refused("inflight-max", "too many requests are being read", time.Second)
	if p.unread = true; x.live {
		p.status = http.StatusOK
	}
	return p
}

// fitted returns the text without the room that it does not need: the log may
// keep it for long.
func fitted(text []byte) []byte {
	if cap(text)-len(text) <= len(text)/4 {
		return text
	}
	return bytes.Clone(text)
}

// unread says why a body could not be read to its end.
func (x *exchange) unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		x.f.meter.Add(metric.Errors, "read_timeout", 1)
		return &problem{status: http.StatusRequestTimeout, code: wire.CodeInvalid, unread: true, message: "the body did not come in time"}
	}
	if x.r.Context().Err() != nil {
		return errGone
	}
	return invalid(http.StatusBadRequest, "the body ended early")
}

func (x *exchange) tooLarge(max int) error {
	x.f.meter.Add(metric.Refused, "max-message", 1)
	return &problem{status: http.StatusRequestEntityTooLarge, code: wire.CodeInvalid, unread: true,
		message: fmt.Sprintf("the body is larger than %d bytes", max)}
}
