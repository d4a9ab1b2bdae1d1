package demo

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"time"
)

// relay is the network between client and server: it copies bytes, and can
// break as networks do, with a reset of every connection.
type relay struct {
	url    string // the endpoint, through the relay
	target string
	listen net.Listener
	work   sync.WaitGroup

	mu     sync.Mutex
	conns  map[*net.TCPConn]bool
	away   time.Time // until then new connections are reset
	closed bool
}

func newRelay(endpoint string) (*relay, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" || u.Host == "" {
		return nil, fmt.Errorf("putting a network between: %q is not an http URL", endpoint)
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("putting a network between: %w", err)
	}
	r := &relay{target: u.Host, listen: l, conns: map[*net.TCPConn]bool{}}
	u.Host = l.Addr().String()
	r.url = u.String()
	r.work.Go(r.accept)
	return r, nil
}

func (r *relay) accept() {
	for {
		c, err := r.listen.Accept()
		if err != nil {
			return
		}
		r.work.Go(func() { r.carry(c.(*net.TCPConn)) })
	}
}

// carry copies both ways until one side ends.
func (r *relay) carry(client *net.TCPConn) {
	if !r.keep(client) {
		reset(client)
		return
	}
	defer r.drop(client)
	c, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	if !r.keep(server) {
		reset(server)
		return
	}
	defer r.drop(server)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		server.CloseWrite()
	}()
	_, _ = io.Copy(client, server)
	client.Close()
	<-done
}

func (r *relay) keep(c *net.TCPConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || time.Now().Before(r.away) {
		return false
	}
	r.conns[c] = true
	return true
}

func (r *relay) drop(c *net.TCPConn) {
	c.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// cut resets what is connected, on both sides, and what tries to for a time.
func (r *relay) cut(away time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = time.Now().Add(away)
	for c := range r.conns {
		reset(c)
	}
}

// reset ends a connection with a RST instead of a FIN.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	c.Close()
}

func (r *relay) close() {
	r.listen.Close()
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.work.Wait()
}
