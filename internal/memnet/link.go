// Package memnet is a network for tests: one in memory that runs in virtual
// time (testing/synctest) and one of real sockets, Proxy. Both can be cut at an
// exact byte, frozen and made to refuse.
package memnet

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// DefaultBuffer is how many bytes each direction of a link holds before a
// writer waits.
const DefaultBuffer = 64 << 10

// Link is one connection as the network sees it. Its methods may be called from
// anywhere. Up is towards the server, down towards the client.
type Link struct {
	mu       sync.Mutex
	change   *sync.Cond
	up, down lane
	frozen   bool
	reset    bool
	client   *conn
	server   *conn
}

// lane is one direction of a link.
type lane struct {
	arrived []byte // can be read
	held    []byte // written while frozen
	room    int
	total   int64 // bytes ever written
	limit   int64 // cut when total reaches it; 0 means never
	fin     bool  // the writer will write no more
	deaf    bool  // the reader will read no more
}

func newLink(room int, client, server net.Addr) *Link {
	l := &Link{up: lane{room: room}, down: lane{room: room}}
	l.change = sync.NewCond(&l.mu)
	l.client = &conn{link: l, in: &l.down, out: &l.up, local: client, remote: server}
	l.server = &conn{link: l, in: &l.up, out: &l.down, local: server, remote: client}
	return l
}

func (l *Link) with(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	l.change.Broadcast()
}

// Cut breaks the connection at once, as a reset does: both sides get
// ECONNRESET. What had arrived can still be read; what a frozen link holds back
// is lost, and it is frozen no more.
func (l *Link) Cut() { l.with(l.cut) }

func (l *Link) cut() {
	l.reset, l.frozen = true, false
	l.up.held, l.down.held = nil, nil
}

// CutAfter cuts when the server has written n more bytes: the client gets
// exactly these. The server's write succeeds, as it would on a socket.
func (l *Link) CutAfter(n int64) { l.with(func() { l.cutAfter(&l.down, n) }) }

// CutAfterUp cuts when the client has written n more bytes.
func (l *Link) CutAfterUp(n int64) { l.with(func() { l.cutAfter(&l.up, n) }) }

func (l *Link) cutAfter(d *lane, n int64) {
	if n <= 0 {
		l.cut()
		return
	}
	d.limit = d.total + n
}

// CloseClean ends the connection in both directions as a proxy does that closes
// it in good order: both sides read to the end and then get io.EOF.
func (l *Link) CloseClean() {
	l.with(func() {
		l.up.fin, l.down.fin = true, true
		l.up.deaf, l.down.deaf = true, true
	})
}

// Freeze stops everything in both directions, the news of an end too, as a
// cable that was pulled. Writers go on until the buffer is full.
func (l *Link) Freeze() { l.with(func() { l.frozen = true }) }

// Thaw lets a frozen link go on; what was held back arrives.
func (l *Link) Thaw() {
	l.with(func() {
		l.frozen = false
		l.up.thaw()
		l.down.thaw()
	})
}

func (d *lane) thaw() {
	d.arrived = append(d.arrived, d.held...)
	d.held = nil
}

// Down is how many bytes the server has written on the link.
func (l *Link) Down() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down.total
}

// Alive tells whether neither side has closed the link and it was not cut.
func (l *Link) Alive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.reset && !l.client.closed && !l.server.closed && !l.up.fin && !l.down.fin
}

// put takes as much of p as there is room for. The caller holds mu.
func (l *Link) put(d *lane, p []byte) int {
	n := min(len(p), d.room-len(d.arrived)-len(d.held))
	if n <= 0 {
		return 0
	}
	pass := n
	if d.limit > 0 {
		pass = int(min(int64(n), d.limit-d.total))
	}
	if l.frozen {
		d.held = append(d.held, p[:pass]...)
	} else {
		d.arrived = append(d.arrived, p[:pass]...)
	}
	d.total += int64(pass)
	if d.limit > 0 && d.total >= d.limit {
		l.cut()
	}
	return n
}

func (d *lane) take(p []byte) int {
	n := copy(p, d.arrived)
	d.arrived = d.arrived[:copy(d.arrived, d.arrived[n:])]
	return n
}

// deadline wakes all who wait on the link when its time has come.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) set(l *Link, at time.Time) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = at
	if wait := time.Until(at); !at.IsZero() && wait > 0 {
		d.timer = time.AfterFunc(wait, func() { l.with(func() {}) })
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func reset(op string) error { return &net.OpError{Op: op, Net: "tcp", Err: syscall.ECONNRESET} }
