package memnet

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Net is a network in memory with one listener on it and as many clients as
// dial. It is a net.Listener for http.Server; Dial is for http.Transport.
type Net struct {
	// OnDial, if not nil, is called with every new link before a byte passes,
	// and with its number from 0. Set it before the first Dial.
	OnDial func(n int, l *Link)
	// Buffer is how many bytes each direction holds; 0 means DefaultBuffer.
	Buffer int

	mu      sync.Mutex
	links   []*Link
	waiting []*Link
	refuse  bool
	closed  bool
	change  chan struct{} // closed and replaced when there is something new
}

// Listen makes a network.
func Listen() *Net { return &Net{change: make(chan struct{})} }

// port is what the listener says it listens on.
const port = 80

// Addr is an address on the loopback.
func (n *Net) Addr() net.Addr { return loopback(port) }

func loopback(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

// Dial connects, whatever the address.
func (n *Net) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse || n.closed {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: n.Addr(), Err: syscall.ECONNREFUSED}
	}
	room := n.Buffer
	if room == 0 {
		room = DefaultBuffer
	}
	l := newLink(room, loopback(40000+len(n.links)), n.Addr())
	if n.OnDial != nil {
		n.OnDial(len(n.links), l)
	}
	n.links = append(n.links, l)
	n.waiting = append(n.waiting, l)
	n.changed()
	return l.client, nil
}

func (n *Net) changed() {
	close(n.change)
	n.change = make(chan struct{})
}

// Accept waits for the next connection.
func (n *Net) Accept() (net.Conn, error) {
	for {
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: n.Addr(), Err: net.ErrClosed}
		}
		if len(n.waiting) > 0 {
			l := n.waiting[0]
			n.waiting = n.waiting[1:]
			n.mu.Unlock()
			return l.server, nil
		}
		change := n.change
		n.mu.Unlock()
		<-change
	}
}

// Close ends the listener; connections not yet accepted are cut.
func (n *Net) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil
	}
	n.closed = true
	for _, l := range n.waiting {
		l.Cut()
	}
	n.waiting = nil
	n.changed()
	return nil
}

// Refuse lets every later Dial fail with ECONNREFUSED, or stops doing so.
func (n *Net) Refuse(yes bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = yes
}

// Links are all links ever dialled, in order.
func (n *Net) Links() []*Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]*Link(nil), n.links...)
}

// Alive are the links that are still open.
func (n *Net) Alive() []*Link {
	var alive []*Link
	for _, l := range n.Links() {
		if l.Alive() {
			alive = append(alive, l)
		}
	}
	return alive
}

// Last is the link dialled last, nil if there is none.
func (n *Net) Last() *Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.links) == 0 {
		return nil
	}
	return n.links[len(n.links)-1]
}

// Cut cuts all links.
func (n *Net) Cut() {
	for _, l := range n.Links() {
		l.Cut()
	}
}
