package pebblelog

import (
	"container/list"
	"slices"
	"sync"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/internal/tail"
)

// What the newest events of streams may take in memory.
const (
	tailBytes = 1 << 20
	allTails  = 64 << 20
)

// live is a stream that is being written. What readers may know of it is seen;
// what the committer has already put on its way is ahead of that.
type live struct {
	key     eventlog.Key
	ahead   state // of the committer alone
	undated bool  // of the committer alone: it was never armed

	mu       sync.Mutex
	seen     state
	tail     tail.Tail
	inflight int  // steps between the committer and being seen
	late     int  // those of them that wait for a sync
	leave    bool // no writer any more; forgotten when nobody needs it

	// Of tails.
	place   *list.Element
	counted int
	gone    bool
}

func (lv *live) now() state {
	lv.mu.Lock()
	defer lv.mu.Unlock()
	return lv.seen
}

// places holds the live streams and who waits for which stream.
type places struct {
	mu       sync.RWMutex
	live     map[eventlog.Key]*live
	watchers map[eventlog.Key][]chan<- struct{}
	tails    tails
}

func (p *places) find(k eventlog.Key) *live {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.live[k]
}

// enlist takes a stream in for a step that is about to be written. It tells
// whether the step has to wait for a sync because one before it does.
func (p *places) enlist(lv *live, sync bool) (late bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live[lv.key] != lv {
		p.live[lv.key] = lv
		p.tails.admit(lv)
	}
	lv.mu.Lock()
	defer lv.mu.Unlock()
	lv.leave = false
	lv.inflight++
	late = sync || lv.late > 0
	if late {
		lv.late++
	}
	return late
}

// wake hints the watchers of a stream. A full channel has a hint already.
func (p *places) wake(k eventlog.Key) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	tell(p.watchers[k])
}

// wakeAll is for the end: readers may be leaving while it runs.
func (p *places) wakeAll() {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, hints := range p.watchers {
		tell(hints)
	}
}

func tell(hints []chan<- struct{}) {
	for _, hint := range hints {
		select {
		case hint <- struct{}{}:
		default:
		}
	}
}

func (p *places) watch(k eventlog.Key, hint chan<- struct{}) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[k] = append(p.watchers[k], hint)
	var once sync.Once
	return func() { once.Do(func() { p.unwatch(k, hint) }) }
}

func (p *places) unwatch(k eventlog.Key, hint chan<- struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.watchers[k]
	n := slices.Index(left, hint)
	if left = slices.Delete(left, n, n+1); len(left) > 0 {
		p.watchers[k] = left
		return
	}
	delete(p.watchers, k)
	if lv := p.live[k]; lv != nil {
		p.maybeForget(lv)
	}
}

// leave says that a stream has no writer any more.
func (p *places) leave(lv *live) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lv.mu.Lock()
	lv.leave = true
	lv.mu.Unlock()
	p.maybeForget(lv)
}

// maybeForget removes a stream that nobody writes or waits for. While a step is
// not yet seen it must stay: it is what keeps readers from finding that step in
// pebble.
func (p *places) maybeForget(lv *live) {
	lv.mu.Lock()
	needed := !lv.leave && !lv.seen.ended || lv.inflight > 0
	lv.mu.Unlock()
	if !needed && len(p.watchers[lv.key]) == 0 && p.live[lv.key] == lv {
		p.forget(lv)
	}
}

// forget removes a stream, p.mu being held.
func (p *places) forget(lv *live) {
	delete(p.live, lv.key)
	p.tails.remove(lv)
}

// drop removes a stream that is gone and tells its watchers.
func (p *places) drop(k eventlog.Key) {
	p.mu.Lock()
	if lv := p.live[k]; lv != nil {
		p.forget(lv)
	}
	p.mu.Unlock()
	p.wake(k)
}

// tails keeps the newest events of all live streams within a bound. The stream
// that was not written for longest loses its tail first; its readers then read
// from pebble.
type tails struct {
	mu    sync.Mutex
	order list.List // of *live, the next to lose its tail in front
	bytes int
}

func (t *tails) admit(lv *live) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lv.gone = false
}

// count takes note of what a tail takes now, and makes room. No live may be
// locked.
func (t *tails) count(lv *live) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lv.mu.Lock()
	now := lv.tail.Bytes()
	lv.mu.Unlock()
	t.bytes += now - lv.counted
	lv.counted = now
	switch {
	case lv.gone:
		t.empty(lv)
		return
	case lv.place == nil:
		lv.place = t.order.PushBack(lv)
	default:
		t.order.MoveToBack(lv.place)
	}
	for t.bytes > allTails && t.order.Len() > 0 {
		t.empty(t.order.Front().Value.(*live))
	}
}

func (t *tails) remove(lv *live) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lv.gone = true
	t.empty(lv)
}

func (t *tails) empty(lv *live) {
	if lv.place != nil {
		t.order.Remove(lv.place)
		lv.place = nil
	}
	t.bytes -= lv.counted
	lv.counted = 0
	lv.mu.Lock()
	lv.tail = tail.Tail{}
	lv.mu.Unlock()
}
