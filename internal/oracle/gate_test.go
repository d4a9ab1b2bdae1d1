package oracle

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/eventlog"
)

// gate stands before the log. It notes what is appended, and closes for good
// when the process that uses it is killed.
type gate struct {
	inner eventlog.Log
	hist  *history
	crash func()
	dead  atomic.Bool
	fuse  atomic.Int64 // crash when so many more appends came; 0: never
	after atomic.Bool  // ... with that append done
}

// history is all that was ever appended.
type history struct {
	w       *world
	mu      sync.Mutex
	streams map[eventlog.Key]*past
	byName  map[string]*past  // by the stream's name
	owns    map[string]string // sessions by their public id
	terms   map[uint64]string // by fence
	ended   map[string]moment // sessions that were dropped
}

// past is what was appended to one stream.
type past struct {
	key     eventlog.Key
	call    *call  // whose stream it is; nil: a session's own, or of no call
	name    string // for the story
	own     bool
	owner   string // the session's public id
	events  []entry
	dropped *moment
	endedAt *moment
	acked   bool // a client said what it has
}

// entry is one event; its seq is its place in the slice and one.
type entry struct {
	kind eventlog.Kind
	term string
	data string
	at   moment
}

func (g *gate) open() error {
	if g.dead.Load() {
		return eventlog.ErrClosed
	}
	return nil
}

func (g *gate) Claim(ctx context.Context, s string, create bool) (eventlog.Claim, error) {
	if err := g.open(); err != nil {
		return eventlog.Claim{}, err
	}
	c, err := g.inner.Claim(ctx, s, create)
	g.hist.mu.Lock()
	defer g.hist.mu.Unlock()
	if err != nil {
		return c, err
	}
	for fence, term := range g.hist.terms {
		if term == c.Term || fence == c.Fence {
			g.hist.w.broken("", "term", "a claim gives fence %d and term %s, which were given before", c.Fence, c.Term)
		}
	}
	g.hist.terms[c.Fence] = c.Term
	return c, err
}

// Append notes what is appended before it is: whoever reads it does so after.
func (g *gate) Append(ctx context.Context, a eventlog.Append) error {
	if err := g.open(); err != nil {
		return err
	}
	burn := g.fuse.Add(-1) == 0
	if burn && !g.after.Load() {
		g.crash()
		return eventlog.ErrClosed
	}
	g.hist.mu.Lock()
	undo := g.hist.note(&a)
	g.hist.mu.Unlock()
	err := g.inner.Append(ctx, a)
	if err != nil {
		g.hist.mu.Lock()
		undo()
		g.hist.mu.Unlock()
	}
	if burn {
		g.crash()
		return eventlog.ErrClosed
	}
	return err
}

// note takes down an append that is about to happen.
func (h *history) note(a *eventlog.Append) (undo func()) {
	p := h.streams[a.Key]
	if p == nil {
		p = &past{key: a.Key}
		h.streams[a.Key], h.byName[a.Stream] = p, p
	}
	before := *p
	if a.Record != nil && p.owner == "" {
		h.read(p, a.Record)
	}
	m := h.w.now()
	if len(p.events) == 0 && len(a.Events) > 0 {
		p.call = h.w.callFor(string(a.Events[0].Data))
		p.name = cmp.Or(keyIn(string(a.Events[0].Data)), "init")
	}
	for _, e := range a.Events {
		p.events = append(p.events, entry{kind: e.Kind, term: h.terms[a.Fence], data: string(e.Data), at: m})
		if e.Kind == eventlog.End {
			p.endedAt = &m
		}
	}
	return func() {
		if *p = before; len(p.events) == 0 {
			delete(h.streams, a.Key)
			delete(h.byName, a.Stream)
		}
	}
}

// read looks into a session's record for what names the session.
func (h *history) read(p *past, record []byte) {
	var r struct{ Public, Own string }
	if json.Unmarshal(record, &r) == nil && r.Own == p.key.Stream {
		p.own, p.owner = true, r.Public
		h.owns[r.Public] = p.key.Session
	}
}

// of finds a stream by its name.
func (h *history) of(stream string) *past {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byName[stream]
}

// ack notes that a client says what it has of a stream; false if that is gone.
func (h *history) ack(p *past) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.acked = p.acked || p.dropped == nil
	return p.dropped == nil
}

func (g *gate) Release(s string) {
	if g.open() == nil {
		g.inner.Release(s)
	}
}

func (g *gate) Read(ctx context.Context, k eventlog.Key, after uint64, max int) (eventlog.Page, error) {
	if err := g.open(); err != nil {
		return eventlog.Page{}, err
	}
	return g.inner.Read(ctx, k, after, max)
}

func (g *gate) Stat(ctx context.Context, k eventlog.Key) (eventlog.Info, error) {
	if err := g.open(); err != nil {
		return eventlog.Info{}, err
	}
	return g.inner.Stat(ctx, k)
}

func (g *gate) Watch(k eventlog.Key, hint chan<- struct{}) func() { return g.inner.Watch(k, hint) }

func (g *gate) Trim(ctx context.Context, k eventlog.Key, fence, through uint64, keep eventlog.Kinds) (eventlog.Trimmed, error) {
	if err := g.open(); err != nil {
		return eventlog.Trimmed{}, err
	}
	return g.inner.Trim(ctx, k, fence, through, keep)
}

func (g *gate) Drop(ctx context.Context, k eventlog.Key, fence uint64, memo []byte) error {
	if err := g.open(); err != nil {
		return err
	}
	m := g.hist.w.now()
	err := g.inner.Drop(ctx, k, fence, memo)
	g.hist.mu.Lock()
	defer g.hist.mu.Unlock()
	if p := g.hist.streams[k]; err == nil && p != nil {
		p.dropped = &m
	}
	return err
}

func (g *gate) DropSession(ctx context.Context, s string, fence uint64) error {
	if err := g.open(); err != nil {
		return err
	}
	m := g.hist.w.now()
	err := g.inner.DropSession(ctx, s, fence)
	g.hist.mu.Lock()
	defer g.hist.mu.Unlock()
	if err == nil {
		g.hist.ended[s] = m
	}
	return err
}

func (g *gate) Arm(ctx context.Context, k eventlog.Key, at time.Time) error {
	if err := g.open(); err != nil {
		return err
	}
	return g.inner.Arm(ctx, k, at)
}

func (g *gate) Due(ctx context.Context, now time.Time, max int) ([]eventlog.Key, error) {
	if err := g.open(); err != nil {
		return nil, err
	}
	return g.inner.Due(ctx, now, max)
}

func (g *gate) Record(ctx context.Context, s string) ([]byte, error) {
	if err := g.open(); err != nil {
		return nil, err
	}
	return g.inner.Record(ctx, s)
}

func (g *gate) Sessions(ctx context.Context, after string, max int) ([]string, error) {
	if err := g.open(); err != nil {
		return nil, err
	}
	return g.inner.Sessions(ctx, after, max)
}

func (g *gate) Streams(ctx context.Context, s, after string, max int) ([]string, error) {
	if err := g.open(); err != nil {
		return nil, err
	}
	return g.inner.Streams(ctx, s, after, max)
}

func (g *gate) Lookup(ctx context.Context, name string) (eventlog.Key, error) {
	if err := g.open(); err != nil {
		return eventlog.Key{}, err
	}
	return g.inner.Lookup(ctx, name)
}

func (g *gate) Size() int64  { return g.inner.Size() }
func (g *gate) Close() error { return nil }

var _ eventlog.Log = (*gate)(nil)

// callFor is the call that a stream's opening is of.
func (w *world) callFor(opening string) *call {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.callOf(keyIn(opening))
}
