package sse

import (
	"bytes"
	"fmt"
	"time"
)

// Event is one event of a stream.
type Event struct {
	// Name is what the event: line said; empty stands for "message".
	Name string
	// ID is the stream's last id when the event was complete, whether this
	// event set it or an earlier one.
	ID string
	// Data is valid until the parser is used again. It is not checked to be
	// UTF-8. An event whose data is empty is an event too.
	Data []byte
	// Err is a *TooLongError if the data was left out.
	Err error
}

// TooLongError says that an event's data was longer than the parser takes. The
// stream goes on behind it.
type TooLongError struct {
	Size int64 // of the data, in bytes
	Max  int
}

func (e *TooLongError) Error() string {
	return fmt.Sprintf("an event of %d bytes is longer than the %d taken", e.Size, e.Max)
}

// MaxRetry is the longest time that a retry line can ask for.
const MaxRetry = time.Hour

// Parser reads an event stream that comes in pieces, cut anywhere: Feed it,
// then take events with Next until there is none. It follows the WHATWG grammar
// to the letter: one leading byte order mark, lines that end with LF, CR or
// CRLF in any mixture, and what is not closed by an empty line never happened.
// The zero Parser is ready.
type Parser struct {
	// Max is the longest data of one event in bytes; 0 means no limit.
	Max int
	// Over, if not nil, is shown the data that is left out, piece by piece.
	Over func(data []byte)

	in     []byte // not yet read
	cr     int    // the next CR of in; behind its end if there is none
	begun  bool   // past the byte order mark
	lf     bool   // the last line ended with CR, an LF now is part of that
	part   []byte // of a line that is not complete
	tail   tail   // what becomes of the rest of a line that is too long
	data   []byte // each line of it followed by LF
	over   int64  // size of the data if it is too long
	spent  bool   // the data belongs to the event last returned
	named  bool   // the block has a name
	name   string // of the last block that had one
	id     string // set by the lines so far
	last   string // set by complete blocks
	retry  time.Duration
	wanted bool // retry was set
}

// tail says what becomes of the rest of a line that is too long to keep.
type tail uint8

const (
	keepTail tail = iota
	dropTail
	dataTail // shown to Over, counted
)

// LastID is the id to resume from: that of the last complete block. Empty means
// that there is none.
func (p *Parser) LastID() string { return p.last }

// Retry is the time that the stream last asked to wait before connecting
// again, at most MaxRetry; false if it never did.
func (p *Parser) Retry() (time.Duration, bool) { return p.retry, p.wanted }

// Feed gives the parser the next bytes. Next must have returned false before.
// b must not change until it does so again.
func (p *Parser) Feed(b []byte) {
	if !p.begun {
		if b = p.begin(b); !p.begun {
			return
		}
	}
	p.in = b
	p.findCR()
}

var mark = []byte("\xef\xbb\xbf")

// begin takes away the byte order mark, which may come byte by byte.
func (p *Parser) begin(b []byte) []byte {
	if len(p.part) > 0 {
		b = append(p.part, b...)
	}
	if len(b) < len(mark) && bytes.HasPrefix(mark, b) {
		p.part = append([]byte(nil), b...)
		return nil
	}
	p.begun, p.part = true, nil
	return bytes.TrimPrefix(b, mark)
}

func (p *Parser) findCR() {
	if p.cr = bytes.IndexByte(p.in, '\r'); p.cr < 0 {
		p.cr = len(p.in)
	}
}

// Next returns the next event, or false if more bytes are needed.
func (p *Parser) Next() (Event, bool) {
	if p.spent {
		p.spent, p.data, p.over = false, p.data[:0], 0
		p.shrink()
	}
	for len(p.in) > 0 {
		if p.lf {
			p.lf = false
			if p.in[0] == '\n' {
				p.advance(1)
				continue
			}
		}
		line, whole := p.cut()
		if !whole {
			p.keep(line)
			return Event{}, false
		}
		if len(p.part) > 0 || p.tail != keepTail {
			p.keep(line)
			line = p.part
			p.part = p.part[:0]
			if p.tail != keepTail {
				p.tail = keepTail
				continue
			}
		}
		if len(line) > 0 {
			p.field(line)
		} else if e, ok := p.dispatch(); ok {
			return e, true
		}
	}
	return Event{}, false
}

// shrink gives the memory of an unusually long event back.
func (p *Parser) shrink() {
	const usual = 256 << 10
	if cap(p.data) > usual {
		p.data = nil
	}
	if cap(p.part) > usual && len(p.part) == 0 {
		p.part = nil
	}
}

func (p *Parser) advance(n int) {
	p.in = p.in[n:]
	p.cr -= n
}

// cut takes the next line, without its end, or all there is of it.
func (p *Parser) cut() (line []byte, whole bool) {
	end := bytes.IndexByte(p.in[:p.cr], '\n')
	if end < 0 {
		end = p.cr
	}
	line = p.in[:end]
	if end == len(p.in) {
		p.in, p.cr = nil, 0
		return line, false
	}
	p.lf = p.in[end] == '\r'
	p.advance(end + 1)
	if p.lf {
		p.findCR()
	}
	return line, true
}

// keep adds a piece to the line that is not complete.
func (p *Parser) keep(piece []byte) {
	switch p.tail {
	case dataTail:
		p.drop(piece)
		return
	case dropTail:
		return
	}
	p.part = append(p.part, piece...)
	if p.Max == 0 || len(p.part) <= p.Max+len("data: ") {
		return
	}
	p.tail = dropTail
	if value, ok := bytes.CutPrefix(p.part, []byte("data:")); ok {
		p.tail = dataTail
		p.addData(bytes.TrimPrefix(value, []byte(" ")))
	}
	p.part = nil
}

// field takes one line that is not empty.
func (p *Parser) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	if string(name) == "data" {
		p.addData(value)
		return
	}
	// Where the pieces are cut must not decide what counts, see keep.
	if p.Max > 0 && len(line) > p.Max+len("data: ") {
		return
	}
	switch string(name) {
	case "event":
		if p.named = len(value) > 0; string(value) != p.name {
			p.name = string(value)
		}
	case "id":
		if bytes.IndexByte(value, 0) < 0 && string(value) != p.id {
			p.id = string(value)
		}
	case "retry":
		p.setRetry(value)
	}
}

func (p *Parser) addData(value []byte) {
	if p.over == 0 && (p.Max == 0 || len(p.data)+len(value) <= p.Max) {
		p.data = append(append(p.data, value...), '\n')
		return
	}
	if p.over > 0 {
		p.drop([]byte{'\n'})
	}
	if len(p.data) > 0 {
		kept := p.data
		p.data = nil
		p.drop(kept)
	}
	p.drop(value)
}

// drop shows data to Over instead of keeping it.
func (p *Parser) drop(piece []byte) {
	p.over += int64(len(piece))
	if p.Over != nil {
		p.Over(piece)
	}
}

func (p *Parser) setRetry(value []byte) {
	if len(value) == 0 {
		return
	}
	ms := int64(0)
	for _, c := range value {
		if c < '0' || c > '9' {
			return
		}
		ms = min(ms*10+int64(c-'0'), MaxRetry.Milliseconds())
	}
	p.retry, p.wanted = time.Duration(ms)*time.Millisecond, true
}

// dispatch ends a block and returns its event if it is one.
func (p *Parser) dispatch() (Event, bool) {
	p.last = p.id
	e := Event{ID: p.last}
	if p.named {
		e.Name, p.named = p.name, false
	}
	if len(p.data) == 0 && p.over == 0 {
		return Event{}, false
	}
	p.spent = true
	if p.over > 0 {
		e.Err = &TooLongError{Size: p.over, Max: p.Max}
		return e, true
	}
	e.Data = p.data[:len(p.data)-1]
	return e, true
}
