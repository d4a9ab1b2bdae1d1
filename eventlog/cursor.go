package eventlog

import (
	"strconv"
	"strings"
)

// Cursor is a place in a stream as a client holds it: the event id.
// Its text is <stream>.<term>.<seq>, or <stream>.<term>.<seq>.<again> where a
// new id must stand for the same place. Text of at most MaxCursor characters
// of [A-Za-z0-9_-] and dots, so that a browser sends it without a preflight
// (Fetch, CORS-safelisted request-header).
type Cursor struct {
	Stream string
	Term   string
	Seq    uint64
	Again  string
}

// Lengths of a cursor and its parts, in characters.
const (
	StreamLen = 22 // 128 random bits in base64url
	TermLen   = 6
	AgainLen  = 6
	MaxCursor = 64
)

// ParseCursor reads a cursor strictly: what it accepts, String gives back.
func ParseCursor(s string) (Cursor, error) {
	if len(s) > MaxCursor {
		return Cursor{}, ErrCursor
	}
	parts := strings.Split(s, ".")
	if len(parts) != 3 && len(parts) != 4 {
		return Cursor{}, ErrCursor
	}
	c := Cursor{Stream: parts[0], Term: parts[1]}
	if !name(c.Stream, StreamLen) || !name(c.Term, TermLen) {
		return Cursor{}, ErrCursor
	}
	seq, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil || (len(parts[2]) > 1 && parts[2][0] == '0') || parts[2][0] == '+' {
		return Cursor{}, ErrCursor
	}
	c.Seq = seq
	if len(parts) == 4 {
		c.Again = parts[3]
		if !name(c.Again, AgainLen) {
			return Cursor{}, ErrCursor
		}
	}
	return c, nil
}

// String is the cursor's text.
func (c Cursor) String() string { return string(c.AppendTo(nil)) }

// AppendTo appends the cursor's text to b.
func (c Cursor) AppendTo(b []byte) []byte {
	b = append(b, c.Stream...)
	b = append(b, '.')
	b = append(b, c.Term...)
	b = append(b, '.')
	b = strconv.AppendUint(b, c.Seq, 10)
	if c.Again != "" {
		b = append(b, '.')
		b = append(b, c.Again...)
	}
	return b
}

func name(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// Place tells where in the stream a cursor stands. If its term does not hold
// at its seq the two histories have diverged, holds is false and place is the
// last one they have in common.
func (i Info) Place(c Cursor) (place uint64, holds bool) {
	for n, t := range i.Terms {
		if t.Name != c.Term {
			continue
		}
		last := i.Top
		if n+1 < len(i.Terms) {
			last = i.Terms[n+1].First - 1
		}
		switch {
		case c.Seq > last:
			return last, false
		case c.Seq < t.First && (n > 0 || c.Seq > 0):
			return min(c.Seq, t.First-1), false
		}
		return c.Seq, true
	}
	return 0, false
}

// TermAt returns the term that the place belongs to: the one that wrote its
// event, or the first one for the place before any event.
func (i Info) TermAt(seq uint64) string {
	name := ""
	for n, t := range i.Terms {
		if n == 0 || t.First <= seq {
			name = t.Name
		}
	}
	return name
}
