package memnet

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Proxy is a TCP proxy on 127.0.0.1 in front of a target, for tests with real
// sockets and processes. It can be cut at an exact byte, frozen and made to
// refuse. It is for tests that do not run in virtual time.
type Proxy struct {
	target string
	addr   string
	pumps  sync.WaitGroup

	mu     sync.Mutex
	change *sync.Cond
	ln     net.Listener
	live   map[*relay]bool
	total  int // connections ever accepted
	down   int64
	limit  int64 // the connection that carries this byte down is cut after it; 0 means none
	each   int64 // every connection is cut after so many bytes down; 0 means none
	frozen bool
	closed bool
}

// relay is one connection through the proxy.
type relay struct {
	client, server *net.TCPConn
	down           int64
	over           atomic.Bool // cut after its last byte; the client may still read
}

// NewProxy listens on a free port and passes connections on to target, a
// host:port.
func NewProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, addr: "127.0.0.1:0", live: map[*relay]bool{}}
	p.change = sync.NewCond(&p.mu)
	if err := p.listen(); err != nil {
		return nil, err
	}
	return p, nil
}

// Addr is the host:port that clients connect to.
func (p *Proxy) Addr() string { return p.addr }

// URL is http:// with Addr.
func (p *Proxy) URL() string { return "http://" + p.addr }

// listen opens the listener, on the same port each time.
func (p *Proxy) listen() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil || p.closed {
		return nil
	}
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.ln, p.addr = ln, ln.Addr().String()
	p.pumps.Go(func() { p.accept(ln) })
	return nil
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		p.pumps.Go(func() { p.relay(c.(*net.TCPConn)) })
	}
}

func (p *Proxy) relay(client *net.TCPConn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		breakOff(client)
		return
	}
	r := &relay{client: client, server: s.(*net.TCPConn)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		r.cut()
		return
	}
	p.live[r] = true
	p.total++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(r, r.server, r.client, true) })
	both.Go(func() { p.pump(r, r.client, r.server, false) })
	both.Wait()
	client.Close()
	s.Close()
	p.mu.Lock()
	delete(p.live, r)
	p.mu.Unlock()
}

// pump copies one direction until its end and passes that on.
func (p *Proxy) pump(r *relay, to, from *net.TCPConn, up bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		pass := p.pass(r, n, up)
		_, werr := to.Write(buf[:pass])
		switch {
		case up && r.over.Load() && err == nil:
			// The client still talks to a server that is gone.
		case p.spent(r, up):
			r.over.Store(true)
			breakOff(r.server)
			to.CloseWrite()
			return
		case errors.Is(err, io.EOF):
			to.CloseWrite()
			return
		case err != nil || werr != nil:
			r.cut()
			return
		}
	}
}

// pass waits while the proxy is frozen and tells how many of n bytes may pass.
func (p *Proxy) pass(r *relay, n int, up bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.frozen && p.live[r] {
		p.change.Wait()
	}
	if up || n == 0 {
		return n
	}
	pass := int64(n)
	if p.limit > 0 {
		pass = min(pass, p.limit-p.down)
	}
	if p.each > 0 {
		pass = min(pass, p.each-r.down)
	}
	pass = max(pass, 0)
	p.down += pass
	r.down += pass
	return int(pass)
}

// spent tells whether the connection has carried its last byte down.
func (p *Proxy) spent(r *relay, up bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if up {
		return false
	}
	if p.limit > 0 && p.down >= p.limit {
		p.limit = 0
		return true
	}
	return p.each > 0 && r.down >= p.each
}

// cut resets both sides.
func (r *relay) cut() {
	breakOff(r.client)
	breakOff(r.server)
}

// breakOff closes with a reset.
func breakOff(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}

// Cut resets all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.live {
		r.cut()
		delete(p.live, r)
	}
	p.change.Broadcast()
}

// CutAfter lets n more bytes go down, over all connections together, and breaks
// the one that carried the last of them: the client gets exactly these and then
// the end of the connection, in mid-message; the server gets a reset. (A reset
// towards the client would drop what still waits to be sent.)
// Then the proxy goes on as before.
func (p *Proxy) CutAfter(n int64) {
	if n <= 0 {
		p.Cut()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit = p.down + n
}

// CutEach breaks every connection after n bytes down, as CutAfter does; 0 stops
// that.
func (p *Proxy) CutEach(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.each = max(0, n)
}

// Refuse closes the port: connecting is refused until Resume. Connections that
// are open stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		p.ln.Close()
		p.ln = nil
	}
}

// Resume opens the port again.
func (p *Proxy) Resume() error { return p.listen() }

// Freeze stops all bytes in both directions, and the news of an end with them.
func (p *Proxy) Freeze() { p.freeze(true) }

// Thaw lets everything go on.
func (p *Proxy) Thaw() { p.freeze(false) }

func (p *Proxy) freeze(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = yes
	p.change.Broadcast()
}

// Live is how many connections are open.
func (p *Proxy) Live() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.live)
}

// Total is how many connections there ever were.
func (p *Proxy) Total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total
}

// Down is how many bytes went down, over all connections.
func (p *Proxy) Down() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// Close cuts everything and waits until it has ended.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Refuse()
	p.Cut()
	p.pumps.Wait()
	return nil
}
