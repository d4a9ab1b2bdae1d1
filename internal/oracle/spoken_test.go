package oracle

import (
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

type timeOf = time.Duration

// longest is how long a tool runs at most, unless it waits for something.
const longest = 25 * time.Second

// spoken is something that a server said of which nothing tells which call it
// is for: a log message, a request of its own.
type spoken struct {
	line
	kid  *kid
	n    int // place in what the kid said
	text string
	sure bool // it must be in a stream
	used bool // ... and is found in one
}

// text is a message without its id.
func textOf(m wire.Message) string {
	if m.ID.Ok() {
		return withID(m, "0")
	}
	return string(m.Raw)
}

// checkSpoken: each is in exactly one stream of the session, and in the order
// the server said it.
func (w *world) checkSpoken(c *client) {
	all := w.spokenTo(c)
	said, sure := map[string]int{}, map[string]int{}
	for _, s := range all {
		if said[s.text]++; s.sure {
			sure[s.text]++
		}
	}
	have := map[string]int{}
	for _, p := range w.pasts() {
		if p.key.Session == c.sessionName() {
			w.checkOrder(c, p, all, have)
		}
	}
	for text, n := range have {
		if n > said[text] {
			w.broken(c.name, "twice", "the server said it %d times, the streams have it %d times: %s", said[text], n, text)
		}
	}
	for text, n := range sure {
		if have[text] < n {
			w.broken(c.name, "lost", "the server said it %d times, the streams have it %d times: %s", n, have[text], text)
		}
	}
}

func (w *world) spokenTo(c *client) (all []spoken) {
	ended, over := w.hist.ended[c.sessionName()]
	for _, k := range w.kids {
		if k.client != c.name {
			continue
		}
		for i, l := range k.said {
			if l.msg.Kind != wire.Request && l.msg.Kind != wire.Notification || l.msg.Method == wire.ProgressNote {
				continue
			}
			s := spoken{line: l, kid: k, n: i, text: textOf(l.msg)}
			s.sure = !w.offAt(l.at) && !(over && !l.at.before(ended)) && !w.cancelAt(c, l.at)
			all = append(all, s)
		}
	}
	return all
}

// cancelAt tells whether something of the session was cancelled at this instant:
// what is said for a stream that just ends is dropped.
func (w *world) cancelAt(c *client, m moment) bool {
	for _, k := range c.calls {
		if k.cancelled != nil && k.cancelled.at == m.at {
			return true
		}
	}
	for _, p := range w.pasts() {
		if p.call != nil && p.call.c == c && p.endedAt != nil && p.endedAt.at == m.at {
			if e := p.outcome(); e == nil || strings.Contains(e.data, `"outcome":"unknown"`) {
				return true
			}
		}
	}
	return false
}

// checkOrder finds what a stream has among what was said, in order.
func (w *world) checkOrder(c *client, p *past, all []spoken, have map[string]int) {
	from := 0
	for i, e := range p.events {
		if e.kind != eventlog.Other && e.kind != eventlog.Request {
			continue
		}
		m, err := wire.Parse([]byte(e.data))
		if err != nil || m.Method == wire.Cancelled {
			continue
		}
		text := textOf(m)
		have[text]++
		n := from
		for n < len(all) && (all[n].used || all[n].text != text) {
			n++
		}
		if n == len(all) {
			w.broken(c.name, "order", "%s: event %d was not said after those before it: %s", p.label(), i+1, e.data)
			continue
		}
		from, all[n].used = n+1, true
		w.checkPlace(c, p, &all[n])
		if e.kind == eventlog.Request && only(all, text) {
			w.checkAnswer(c, &all[n], string(m.IDText()))
		}
	}
}

// only tells whether a text was said once: else nothing tells its events apart.
func only(all []spoken, text string) bool {
	n := 0
	for _, s := range all {
		if s.text == text {
			n++
		}
	}
	return n == 1
}

// checkPlace: what is the session's is on its own stream, what can only be of
// one call is on that call's.
func (w *world) checkPlace(c *client, p *past, s *spoken) {
	if strings.HasSuffix(s.msg.Method, "/list_changed") || s.msg.Method == wire.ResourceUpdated {
		if !p.own {
			w.broken(c.name, "place", "%s is on %s", s.msg.Raw, p.label())
		}
		return
	}
	only, sure := s.kid.onlyRun(s)
	if sure && only != nil && (p.call == nil || p.call.key != only.key) {
		w.broken(c.name, "place", "%s is on %s, but only %s ran", s.msg.Raw, p.label(), only.key)
	}
}

// onlyRun is the one tool that ran when something was said; sure is false if
// some may just have begun or ended.
func (k *kid) onlyRun(s *spoken) (only *run, sure bool) {
	for _, r := range k.runs() {
		if s.at.before(r.at) || r.answer >= 0 && r.answer < s.n {
			continue
		}
		call := k.w.callOf(r.key)
		if only != nil || call == nil || call.cancelled != nil || !r.at.before(s.at) {
			return nil, false
		}
		for _, x := range k.w.conns {
			if x.o.policy == "error" || k.w.knobs.orphan < time.Hour {
				return nil, false
			}
		}
		only = r
	}
	return only, true
}

func (w *world) callOf(key string) *call {
	for _, c := range w.clients {
		for _, k := range c.calls {
			if k.key == key {
				return k
			}
		}
	}
	return nil
}

// checkAnswer: a client's answer gets to the server that asked, once and with
// the id that it asked with.
func (w *world) checkAnswer(c *client, s *spoken, id string) {
	theirs := string(s.msg.IDText())
	n := 0
	for _, l := range s.kid.heard {
		if l.msg.Kind != wire.Result && l.msg.Kind != wire.Failure || string(l.msg.IDText()) != theirs {
			continue
		}
		n++
		if l.msg.Kind == wire.Result && !strings.HasSuffix(string(l.msg.Raw), `"content":{"for":`+id+`}}}`) {
			w.broken(c.name, "answer", "server %d got %s for what it asked as %s", s.kid.n, l.msg.Raw, id)
		}
	}
	a := c.asks[id]
	arrived := a != nil && a.conn != nil && a.conn.status == 202
	if n > 1 || n == 0 && arrived && s.kid.gone == nil {
		w.broken(c.name, "answer", "server %d got %d answers to %s", s.kid.n, n, id)
	}
}
