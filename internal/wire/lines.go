package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// LineOptions say what Lines takes and whom it tells.
type LineOptions struct {
	// Max is the longest line taken, in bytes; 0 means 64 MiB.
	Max int
	// Bad is told of every line that is no message: with the line, or its
	// beginning if it was too long, valid during the call, and why.
	Bad func(line []byte, why *Error)
	// Room is asked before the buffer grows beyond its usual size, with the
	// bytes it wants, and told with a negative number when it gives them back.
	// If it says no, the line is too long. nil: always.
	Room func(bytes int) bool
}

// Sizes of the buffer. It starts at the first, doubles up to the second when
// reads fill it, and goes beyond that for a long line only and for its time.
const (
	lineBuffer = 64 << 10
	lineUsual  = 256 << 10
	lineMax    = 64 << 20
)

// lineBatch bounds what Next returns, and so what it keeps for the next time.
const lineBatch = 1024

// Lines reads messages that come one a line (MCP, Transports, stdio). Lines end
// with LF; a CR before it is white space. Nothing else ends a line, U+2028 as
// little as a lone CR. Empty lines are skipped, arrays are split into their
// elements, what is not UTF-8 becomes U+FFFD. A last line without LF counts if
// it is a whole message.
//
// A line longer than Max is skipped to its LF. If it was an answer, or if an
// answer was malformed and its id could be read, a Failure with that id takes
// its place, so that the call does not wait for ever.
type Lines struct {
	from io.Reader
	opt  LineOptions
	buf  []byte
	r, w int // what is read but not yet handed out
	seen int // up to here there is no LF
	lent int // bytes beyond lineUsual
	out  []Message
	long *Outline // not nil: within a line that is too long
	size int      // of that line, so far
	err  error
}

// NewLines reads from r, which it never closes.
func NewLines(r io.Reader, opt LineOptions) *Lines {
	if opt.Max <= 0 {
		opt.Max = lineMax
	}
	if opt.Bad == nil {
		opt.Bad = func([]byte, *Error) {}
	}
	if opt.Room == nil {
		opt.Room = func(int) bool { return true }
	}
	return &Lines{from: r, opt: opt, buf: make([]byte, lineBuffer)}
}

// Next waits for messages and returns all that have arrived, at least one and
// up to a batch. They are valid until the next call. At the end it returns the
// reader's error, io.EOF included. A read that ended by its deadline is no end:
// the error is os.ErrDeadlineExceeded, and Next can be called again.
func (l *Lines) Next() ([]Message, error) {
	clear(l.out)
	l.out = l.out[:0]
	for {
		l.split()
		if len(l.out) > 0 {
			return l.out, nil
		}
		if l.err == io.EOF && (l.r < l.w || l.long != nil) {
			l.last()
			continue
		}
		if l.err != nil {
			return nil, l.finish()
		}
		l.makeRoom()
		n, err := l.from.Read(l.buf[l.w:])
		l.w += n
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, err
		}
		l.err = err
		if err != nil && err != io.EOF {
			l.err = fmt.Errorf("reading messages: %w", err)
		}
	}
}

// finish gives the buffer back and returns why there is nothing more.
func (l *Lines) finish() error {
	if l.lent > 0 {
		l.opt.Room(-l.lent)
		l.lent = 0
	}
	l.buf = nil
	return l.err
}

// last takes what is left behind the last LF as a line.
func (l *Lines) last() {
	rest := l.buf[l.r:l.w]
	l.r, l.seen = l.w, l.w
	l.complete(rest)
}

// split hands out the complete lines of the buffer, up to a batch.
func (l *Lines) split() {
	for len(l.out) < lineBatch {
		n := bytes.IndexByte(l.buf[l.seen:l.w], '\n')
		if n < 0 {
			l.seen = l.w
			return
		}
		line := l.buf[l.r : l.seen+n]
		l.seen += n + 1
		l.r = l.seen
		l.complete(line)
	}
}

// complete takes a line, or the rest of one that is passed over.
func (l *Lines) complete(line []byte) {
	switch {
	case l.long != nil:
		l.size += len(line)
		l.long.See(line)
		l.skipped()
	case len(line) > l.opt.Max:
		l.pass(line)
		l.skipped()
	default:
		l.line(line)
	}
}

// line takes one line apart into messages.
func (l *Lines) line(line []byte) {
	if len(line) == 0 || line[0] <= ' ' && len(bytes.TrimSpace(line)) == 0 {
		return
	}
	line = FixUTF8(line)
	if line[0] != '{' && IsArray(line) {
		l.batch(line)
		return
	}
	l.out = append(l.out, Message{})
	m := &l.out[len(l.out)-1]
	err := m.parse(line)
	if err == nil {
		return
	}
	l.opt.Bad(line, err)
	var g Outline
	g.See(line)
	if id := g.Answers(); id != nil {
		*m = stand(id, "the server's answer is malformed: "+err.Message)
		return
	}
	l.out = l.out[:len(l.out)-1]
}

func (l *Lines) batch(line []byte) {
	parts, err := Split(line)
	if err != nil {
		l.opt.Bad(line, err)
		return
	}
	for _, part := range parts {
		if !IsArray(part) {
			l.line(part)
			continue
		}
		l.opt.Bad(part, &Error{Code: CodeInvalid, Message: "a batch within a batch"})
	}
}

// stand is the failure that stands for an answer that cannot be passed on.
func stand(id []byte, why string) Message {
	m, _ := Parse(AppendError(nil, id, CodeRefused, why, nil))
	return m
}

// makeRoom moves what is left to the front of the buffer and sees that at least
// half of it, or some of it within a long line, is free.
func (l *Lines) makeRoom() {
	rest := l.w - l.r
	if l.long != nil {
		l.size += rest
		l.long.See(l.buf[l.r:l.w])
		rest, l.r = 0, l.w
	}
	full := l.w == len(l.buf) && len(l.buf) < lineUsual
	switch {
	case rest <= lineUsual/2 && len(l.buf) > lineUsual:
		l.resize(lineUsual)
	case rest > l.opt.Max:
		l.skip()
	case rest > len(l.buf)/2:
		l.grow()
	case full:
		l.resize(2 * len(l.buf))
	default:
		l.resize(len(l.buf))
	}
}

// resize makes the buffer size bytes long with what is left at its front.
func (l *Lines) resize(size int) {
	rest := l.buf[l.r:l.w]
	if size == len(l.buf) && l.r == 0 {
		return
	}
	if size != len(l.buf) {
		l.buf = make([]byte, size)
	}
	l.w = copy(l.buf, rest)
	l.seen -= l.r
	l.r = 0
	if lent := max(0, size-lineUsual); lent < l.lent {
		l.opt.Room(lent - l.lent)
		l.lent = lent
	}
}

// grow makes room for a long line.
func (l *Lines) grow() {
	size := max(lineUsual, min(2*len(l.buf), l.opt.Max+lineBuffer))
	lent := max(0, size-lineUsual)
	if more := lent - l.lent; more > 0 {
		if !l.opt.Room(more) {
			l.skip()
			return
		}
		l.lent = lent
	}
	l.resize(size)
}

// skip begins to pass over a line that is not complete yet.
func (l *Lines) skip() {
	l.pass(l.buf[l.r:l.w])
	l.r, l.seen = l.w, l.w
	l.resize(min(len(l.buf), lineUsual))
}

// pass looks at the beginning of a line that is too long.
func (l *Lines) pass(line []byte) {
	l.long, l.size = &Outline{}, len(line)
	l.long.See(line)
	l.opt.Bad(line[:min(len(line), 1024)], &Error{
		Code:    CodeRefused,
		Message: fmt.Sprintf("a line of at least %d bytes is too long, it is skipped", len(line)),
	})
}

// skipped ends a line that was too long.
func (l *Lines) skipped() {
	id := l.long.Answers()
	l.long = nil
	if id != nil {
		l.out = append(l.out, stand(id, fmt.Sprintf("the server's answer of %d bytes is too long", l.size)))
	}
}
