package remote

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/segno-mcp/segno/internal/sse"
	"github.com/segno-mcp/segno/internal/wire"
)

// place is where an event id of a Segno stands: <stream>.<term>.<seq>, or that
// and .<again>, where the id is a new one for the same place.
type place struct {
	stream, term string
	seq          uint64
	again        bool
}

func placeOf(id string) (place, bool) {
	parts := strings.Split(id, ".")
	if len(parts) != 3 && len(parts) != 4 || len(parts[0]) != 22 || len(parts[1]) != 6 {
		return place{}, false
	}
	seq, err := strconv.ParseUint(parts[2], 10, 63)
	if err != nil {
		return place{}, false
	}
	return place{parts[0], parts[1], seq, len(parts) == 4}, true
}

// seenMax is how many event ids of a stream are remembered.
const seenMax = 4096

// seen are the last ids of a stream.
type seen struct {
	ring []string
	next int
	all  map[string]int // how often each is in the ring
	last string
}

func (s *seen) add(id string) {
	if id == "" || id == s.last {
		return
	}
	s.last = id
	if s.all == nil {
		s.all = map[string]int{}
	}
	s.all[id]++
	if len(s.ring) < seenMax {
		s.ring = append(s.ring, id)
		return
	}
	if old := s.ring[s.next]; s.all[old] > 1 {
		s.all[old]--
	} else {
		delete(s.all, old)
	}
	s.ring[s.next] = id
	s.next = (s.next + 1) % seenMax
}

// repeated tells whether an event was delivered before. An id that is the one of
// the event just before may not be the event's own: it stays until it is set
// again.
func (s *stream) repeated(id string) bool {
	if id == "" || id == s.cursor && s.marked {
		return false
	}
	if at, ok := placeOf(id); ok && !at.again && at.stream == s.place.stream && at.term == s.place.term {
		return at.seq <= s.place.seq
	}
	return s.seen.all[id] > 0
}

// dense watches ids of the form PREFIX_NUMBER. If they rose by one from event to
// event so far, a jump is a hole.
type dense struct {
	prefix string
	last   uint64
	run    int // how often it rose by one; -1: they do not
}

// step takes the next id and tells how many are missing before it.
func (d *dense) step(id string) (lost uint64) {
	i := strings.LastIndexAny(id, "_-:")
	if i < 1 || d.run < 0 {
		return 0
	}
	n, err := strconv.ParseUint(id[i+1:], 10, 32)
	if err != nil || d.prefix != "" && d.prefix != id[:i] || d.prefix != "" && n <= d.last {
		d.run = -1
		return 0
	}
	switch {
	case d.prefix == "":
	case n == d.last+1:
		d.run++
	case d.run >= 3:
		lost = n - d.last - 1
	default:
		d.run = -1
	}
	d.prefix, d.last = id[:i], n
	return lost
}

// follows checks that an event follows the one before. Where a jump was not
// told, it is a gap all the same.
func (s *stream) follows(e *sse.Event) ending {
	told := s.told
	s.told = false
	at, ok := placeOf(e.ID)
	var g Gap
	switch {
	case ok && s.place.stream == at.stream && at.seq > s.place.seq+1 && !told && !isGap(e.Data):
		g = Gap{After: s.place.seq, Lost: at.seq - s.place.seq - 1}
	case !ok && e.ID != "" && e.ID != s.cursor:
		if lost := s.dense.step(e.ID); lost > 0 {
			g = Gap{After: s.dense.last - lost - 1, Lost: lost}
		}
	}
	if g.Lost == 0 {
		return 0
	}
	g.Reason = "not told"
	return s.gap(g, nil)
}

func isGap(data []byte) bool {
	m, bad := wire.Parse(data)
	if bad != nil {
		return false
	}
	_, ok := gapOf(&m)
	return ok
}

// gapOf reads the notice by which a Segno tells of a gap.
func gapOf(m *wire.Message) (Gap, bool) {
	if m.Method != wire.LogNote || m.StringAt("params", "logger") != "segno" {
		return Gap{}, false
	}
	at, err := m.Find("params", "data", "gap")
	if err != nil || !at.Ok() {
		return Gap{}, false
	}
	return Gap{Reason: m.StringAt("params", "data", "gap", "reason"), After: number(m, "after"), Lost: number(m, "lost")}, true
}

func number(m *wire.Message, name string) uint64 {
	at, err := m.Find("params", "data", "gap", name)
	if err != nil || !at.Ok() {
		return 0
	}
	n, _ := strconv.ParseUint(string(m.Text(at)), 10, 64)
	return n
}

// gap does what the options say where events are lost. m is the server's notice
// if there was one.
func (s *stream) gap(g Gap, m *wire.Message) ending {
	g.Stream = s.name()
	s.c.o.Trace.Gap(g)
	s.c.log.Warn("events are lost", "request", g.Stream, "reason", g.Reason, "after", g.After, "lost", g.Lost)
	if s.r == nil || s.over() != 0 || s.c.o.OnGap == Continue {
		s.pass(g, m)
		return 0
	}
	id, l := s.r.wireID, s.l
	s.c.run(func() {
		s.c.tell(s.c.ctx, l, wire.AppendNotification(nil, wire.Cancelled, append(append([]byte(`{"requestId":`), id...), `,"reason":"events are lost"}`...)))
	})
	if s.c.o.OnGap == Reissue && s.r.again < 3 && s.c.safeTwice(s.r) {
		if err := s.c.reissued(s.r); err == nil {
			return remade
		}
	}
	s.c.fail(s.r, outcome(s.r.wireID, "unknown", fmt.Sprintf("events of the call are lost (%s), and it was cancelled as asked by on-gap", g.Reason),
		append([]byte(`,"gap":`), g.text()...)))
	s.why = errors.New("events are lost")
	return answered
}

// pass tells the client of a gap: by the server's notice, or by one like it if
// the server said nothing and may send log messages.
func (s *stream) pass(g Gap, m *wire.Message) {
	switch {
	case m != nil:
		s.c.deliver(m.Raw)
	case s.l != nil && s.l.logging:
		s.c.deliver(wire.AppendNotification(nil, wire.LogNote,
			fmt.Appendf(nil, `{"level":"warning","logger":"segno","data":{"gap":%s}}`, g.text())))
	}
}

// text is the gap as JSON. The reason is a server's word, whatever is in it.
func (g Gap) text() []byte {
	b := wire.AppendQuoted([]byte(`{"reason":`), g.Reason)
	return fmt.Appendf(b, `,"after":%d,"lost":%d}`, g.After, g.Lost)
}
