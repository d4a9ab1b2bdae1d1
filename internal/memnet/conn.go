package memnet

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// conn is one side of a link.
type conn struct {
	link          *Link
	in, out       *lane
	local, remote net.Addr
	closed        bool
	readBy        deadline
	writeBy       deadline
}

// Read reads what has arrived.
func (c *conn) Read(p []byte) (int, error) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.failed("read", net.ErrClosed)
		case c.readBy.passed():
			return 0, c.failed("read", os.ErrDeadlineExceeded)
		case len(c.in.arrived) > 0:
			n := c.in.take(p)
			l.change.Broadcast()
			return n, nil
		case l.reset:
			return 0, reset("read")
		case c.in.fin && !l.frozen:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		l.change.Wait()
	}
}

// Write waits for room and writes all of p.
func (c *conn) Write(p []byte) (int, error) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for {
		switch {
		case c.closed || c.out.fin && !c.out.deaf:
			return n, c.failed("write", net.ErrClosed)
		case c.writeBy.passed():
			return n, c.failed("write", os.ErrDeadlineExceeded)
		case l.reset:
			return n, reset("write")
		case c.out.deaf && !l.frozen:
			return n, c.failed("write", syscall.EPIPE)
		}
		put := l.put(c.out, p[n:])
		if n += put; n == len(p) {
			l.change.Broadcast()
			return n, nil
		}
		if put > 0 {
			l.change.Broadcast()
		} else {
			l.change.Wait()
		}
	}
}

func (c *conn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// Close closes this side. The other one reads to the end and gets io.EOF, and
// cannot write any more.
func (c *conn) Close() error {
	c.link.with(func() {
		c.closed = true
		c.out.fin, c.in.deaf = true, true
		c.readBy.set(c.link, time.Time{})
		c.writeBy.set(c.link, time.Time{})
	})
	return nil
}

// CloseWrite ends what this side writes, as on a TCP connection.
func (c *conn) CloseWrite() error {
	c.link.with(func() { c.out.fin = true })
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.link.with(func() {
		c.readBy.set(c.link, t)
		c.writeBy.set(c.link, t)
	})
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error {
	c.link.with(func() { c.readBy.set(c.link, t) })
	return nil
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.link.with(func() { c.writeBy.set(c.link, t) })
	return nil
}
