package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/listen"
	"github.com/segno-mcp/segno/internal/memnet"
)

// moment is when something was seen. Things of the same instant happen without
// any time passing; n orders what the world itself noted.
type moment struct {
	at time.Duration
	n  int64
}

// before tells whether time passed between two moments, so that everything the
// first set in motion had come to rest.
func (m moment) before(o moment) bool { return m.at < o.at }

// fault is a broken promise.
type fault struct {
	check string // what was checked, a few words that do not change
	text  string
}

// world is one run: a Segno with all that is before and behind it. It lives in
// a bubble of testing/synctest.
type world struct {
	seed  uint64
	store store
	opt   segno.Options
	knobs knobs
	began time.Time
	hist  *history
	seg   *incarnation
	dial  func() (net.Conn, *memnet.Link, error)

	mu      sync.Mutex
	n       int64
	kids    []*kid
	clients []*client
	conns   []*conn
	ids     map[string]bool // priming ids, which are never the same
	downs   []down          // when there was no Segno
	faults  []fault
	story   []chapter
	last    moment // of the end's beginning
	pebble  bool
	dialing sync.Mutex
}

// down is a time without a Segno that serves.
type down struct {
	from, to moment
	clean    bool // it was asked to end
}

// chapter is a line of the story.
type chapter struct {
	at   time.Duration
	who  string // empty: it concerns everybody
	text string
}

// incarnation is one process of Segno.
type incarnation struct {
	gate *gate
	srv  *segno.Server
	net  *memnet.Net
	web  *http.Server
	done chan error
}

func newWorld(seed uint64, s store, k knobs) *world {
	w := &world{seed: seed, store: s, knobs: k, opt: k.options(), began: time.Now(), ids: map[string]bool{}}
	w.dial = w.dialSegno
	w.hist = &history{w: w, streams: map[eventlog.Key]*past{}, byName: map[string]*past{}, owns: map[string]string{}, terms: map[uint64]string{}, ended: map[string]moment{}}
	return w
}

// now is a moment; the lock must not be held.
func (w *world) now() moment {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tick()
}

func (w *world) tick() moment {
	w.n++
	return moment{time.Since(w.began), w.n}
}

// tell adds to the story.
func (w *world) tell(who, format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.story = append(w.story, chapter{time.Since(w.began), who, fmt.Sprintf(format, a...)})
}

// broken notes a broken promise.
func (w *world) broken(who, check, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	w.mu.Lock()
	w.faults = append(w.faults, fault{check, who + ": " + text})
	w.mu.Unlock()
	w.tell(who, "BROKEN (%s): %s", check, text)
}

// start starts Segno on the store.
func (w *world) start() {
	log, err := w.store.open()
	if err != nil {
		panic(fmt.Sprintf("opening the store: %v", err)) // a run without a store says nothing
	}
	g := &gate{inner: log, hist: w.hist}
	o := w.opt
	o.Log = g
	o.Logger = slog.New(slog.DiscardHandler)
	o.Authenticate = authenticate
	srv, err := segno.New(w, o)
	if err != nil {
		panic(fmt.Sprintf("starting segno: %v", err))
	}
	seg := &incarnation{gate: g, srv: srv, net: memnet.Listen(), done: make(chan error, 1)}
	seg.net.Buffer = w.knobs.buffer
	seg.web = listen.NewServer(srv, o.Logger)
	go func() { seg.done <- seg.web.Serve(seg.net) }()
	g.crash = func() { w.crash(seg) }
	w.seg = seg
	m := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.downs {
		if w.downs[i].to.n == 0 {
			w.downs[i].to = m
		}
	}
}

func authenticate(r *http.Request) (segno.Identity, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if name == "" {
		return segno.Identity{}, errors.New("nobody said who it is")
	}
	return segno.Identity{Principal: name}, nil
}

// crash ends Segno as kill -9 does, in the middle of whatever it does: no byte
// leaves any more, nothing is written any more, the children lose their pipes.
func (w *world) crash(seg *incarnation) {
	seg.net.Refuse(true)
	seg.net.Cut()
	seg.gate.dead.Store(true)
	w.wentDown(false)
	w.tell("", "segno is killed")
	for _, k := range w.allKids() {
		k.conn.Close()
	}
}

func (w *world) wentDown(clean bool) {
	m := w.now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.downs = append(w.downs, down{from: m, clean: clean})
}

// end stops Segno in good order; bury takes away what is left of it.
func (w *world) end(drain time.Duration) {
	seg := w.seg
	w.tell("", "segno is stopped, with %v to drain", drain)
	w.wentDown(true)
	seg.net.Refuse(true)
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	// What still runs when the time is over is cut off: no fault of its own.
	_ = seg.srv.Drain(ctx)
	cancel()
	w.bury()
}

func (w *world) bury() {
	seg := w.seg
	if err := seg.srv.Close(context.Background()); err != nil && !seg.gate.dead.Load() {
		w.broken("", "close", "segno does not close: %v", err)
	}
	if err := seg.web.Close(); err != nil {
		w.broken("", "close", "its listener does not close: %v", err)
	}
	seg.net.Cut()
	<-seg.done
	w.store.close(seg.gate.dead.Load())
	w.seg = nil
	synctest.Wait()
}

// revive sees whether Segno is dead by a crash, and then starts it again.
func (w *world) revive() {
	if w.seg.gate.dead.Load() {
		w.bury()
		w.start()
		w.tell("", "segno is started again")
	}
}

func (w *world) allKids() []*kid {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*kid(nil), w.kids...)
}

// offAt tells whether Segno was away at a moment, or went away at its instant.
func (w *world) offAt(m moment) bool {
	for _, d := range w.downs {
		if d.from.at <= m.at && (d.to.n == 0 || m.at <= d.to.at) {
			return true
		}
	}
	return false
}

// offBetween tells whether Segno went away between two moments.
func (w *world) offBetween(a, b moment) bool {
	for _, d := range w.downs {
		if a.at <= d.from.at && d.from.at <= b.at || d.from.at <= a.at && (d.to.n == 0 || d.to.at >= a.at) {
			return true
		}
	}
	return false
}

// knobs are what a run is set to.
type knobs struct {
	buffer       int // of each direction of a connection
	retainEvents int64
	retainBytes  int64
	sessionMax   int64
	retainAge    time.Duration
	orphan       time.Duration
	ask          time.Duration
	repost       time.Duration
	grace        time.Duration
	jsonWithin   time.Duration
	writeTimeout time.Duration
}

func randomKnobs(r *rand.Rand) knobs {
	return knobs{
		buffer:       pick(r, 64<<10, 64<<10, 4<<10, 700),
		retainEvents: pick[int64](r, 10000, 10000, 40, 5, 1),
		retainBytes:  pick[int64](r, 16<<20, 16<<20, 4<<10),
		sessionMax:   pick[int64](r, 0, 0, 0, 48<<10),
		retainAge:    pick(r, 20*time.Second, 15*time.Minute),
		orphan:       pick(r, time.Hour, time.Hour, 40*time.Second),
		ask:          pick(r, 10*time.Minute, 15*time.Second),
		repost:       pick(r, time.Minute, 5*time.Second),
		grace:        pick(r, 5*time.Minute, 30*time.Second),
		jsonWithin:   pick(r, 50*time.Millisecond, 50*time.Millisecond, -1),
		writeTimeout: pick(r, 30*time.Second, 5*time.Second),
	}
}

func (k knobs) options() segno.Options {
	return segno.Options{
		RetainEvents: k.retainEvents, RetainBytes: k.retainBytes, SessionMax: k.sessionMax, RetainAge: k.retainAge,
		Orphan: k.orphan, AskTimeout: k.ask, Repost: k.repost, Grace: k.grace, Keep: cmp.Or(keep, k.grace),
		JSONWithin: k.jsonWithin, WriteTimeout: k.writeTimeout,
	}
}

// keep is how long a session is kept in every run: longer than any step takes.
const keep = 20 * time.Minute

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }
