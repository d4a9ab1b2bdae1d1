package oracle

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
)

// cursor is an event id, read by the rule in the design and not by the code of
// the product.
type cursor struct {
	stream, term string
	seq          uint64
	again        bool
}

var cursorForm = regexp.MustCompile(`^([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{6})\.(0|[1-9][0-9]{0,17})(\.[A-Za-z0-9_-]{6})?$`)

func parseCursor(id string) (cursor, bool) {
	m := cursorForm.FindStringSubmatch(id)
	if m == nil || len(id) > 64 {
		return cursor{}, false
	}
	seq, err := strconv.ParseUint(m[3], 10, 64)
	return cursor{m[1], m[2], seq, m[4] != ""}, err == nil
}

// place is an id as the story tells it.
func (w *world) place(id string) string {
	c, ok := parseCursor(id)
	if !ok {
		return fmt.Sprintf("%.30q", id)
	}
	again := ""
	if c.again {
		again = "'"
	}
	if p := w.hist.of(c.stream); p != nil {
		return fmt.Sprintf("%s:%d%s", p.label(), c.seq, again)
	}
	return fmt.Sprintf("?:%d%s", c.seq, again)
}

func (p *past) label() string {
	if p.own {
		return "own"
	}
	return p.name
}

func (p *past) who() string {
	if p.call != nil {
		return p.call.c.name
	}
	return p.owner
}

// outcome is the stream's outcome, nil if it has none.
func (p *past) outcome() *entry {
	for i := range p.events {
		if p.events[i].kind == eventlog.Outcome {
			return &p.events[i]
		}
	}
	return nil
}

// at is the event of a seq, nil if there was none.
func (p *past) at(seq uint64) *entry {
	if seq == 0 || seq > uint64(len(p.events)) {
		return nil
	}
	return &p.events[seq-1]
}

// topAt is how far the stream was at a moment.
func (p *past) topAt(m moment) uint64 {
	n := 0
	for n < len(p.events) && p.events[n].at.n <= m.n {
		n++
	}
	return uint64(n)
}

// termAt is the term that a place belongs to.
func (p *past) termAt(seq uint64) string {
	return p.events[max(seq, 1)-1].term
}

// holds tells whether a cursor's term wrote its place, as things stood at a
// moment; if not, common is the last place of that term.
func (p *past) holds(c cursor, m moment) (common uint64, holds bool) {
	top := p.topAt(m)
	found := false
	for seq := uint64(1); seq <= top; seq++ {
		if p.events[seq-1].term == c.term {
			found = true
			common = seq
		} else if found {
			break
		}
	}
	if !found {
		return 0, false
	}
	if c.seq > common {
		return common, false
	}
	if c.seq == 0 {
		return 0, p.events[0].term == c.term
	}
	if p.events[c.seq-1].term != c.term {
		return c.seq, false
	}
	return c.seq, true
}

// sessionName is the name of the client's session in the log.
func (c *client) sessionName() string {
	c.w.hist.mu.Lock()
	defer c.w.hist.mu.Unlock()
	public, _, _ := strings.Cut(c.id, "-")
	return cmp.Or(c.w.hist.owns[public], "none")
}

// stream is the stream that a connection is on, as far as it can be told.
func (x *conn) stream() string {
	id := x.firstID()
	if id == "" && x.status == http.StatusOK {
		id = x.o.cursor
	}
	c, ok := parseCursor(id)
	if p := x.w.hist.of(c.stream); !ok || p == nil || p.key.Session != x.c.sessionName() {
		return ""
	}
	return c.stream
}

func (x *conn) firstID() string {
	if len(x.events) == 0 {
		return ""
	}
	return x.events[0].id
}
