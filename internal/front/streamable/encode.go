package streamable

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/sse"
)

// Sizes in bytes. A page above keepPage is not kept for the next burst; an
// event above large is written from where it lies.
const (
	firstPage = 4 << 10
	keepPage  = 1 << 20
	large     = 256 << 10
)

// page is the buffer of one burst.
type page struct{ b []byte }

func (f *Front) page() *page {
	if p, ok := f.pages.Get().(*page); ok {
		return p
	}
	return &page{b: make([]byte, 0, firstPage)}
}

func (f *Front) giveBack(p *page) {
	if cap(p.b) <= keepPage {
		p.b = p.b[:0]
		f.pages.Put(p)
	}
}

// places spells the ids of a stream's events.
type places interface {
	AppendID(dst []byte, term string, seq uint64) []byte
}

// event encodes one event. The id is written in place: it costs no memory.
func (p *page) event(ids places, term string, e *eventlog.Event) {
	p.b = append(p.b, "id: "...)
	p.b = ids.AppendID(p.b, term, e.Seq)
	p.b = append(p.b, '\n')
	p.b = sse.AppendEvent(p.b, "", "", e.Data)
}

// head encodes what stands before an event's data of one line.
func (p *page) head(ids places, term string, seq uint64) {
	p.b = append(p.b, "id: "...)
	p.b = ids.AppendID(p.b, term, seq)
	p.b = append(p.b, "\ndata: "...)
}

func oneLine(b []byte) bool { return bytes.IndexByte(b, '\n') < 0 && bytes.IndexByte(b, '\r') < 0 }

// lost tells whether a write failed because the other side is gone.
func lost(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
