package memnet

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echo is a TCP server that sends back what it gets.
func echo(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

func proxy(t *testing.T) *Proxy {
	p, err := NewProxy(echo(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestProxyPassesOnAndClosesCleanly(t *testing.T) {
	p := proxy(t)
	c := dial(t, p)
	long := strings.Repeat("x", 1<<20)
	go io.WriteString(c, long)
	read(t, c, long)
	c.(*net.TCPConn).CloseWrite()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v", err)
	}
	if p.Total() != 1 || p.Down() != 1<<20 {
		t.Errorf("%d connections, %d bytes", p.Total(), p.Down())
	}
}

func TestProxyCut(t *testing.T) {
	p := proxy(t)
	c := dial(t, p)
	io.WriteString(c, "abc")
	read(t, c, "abc")
	p.Cut()
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v", err)
	}
	c = dial(t, p)
	io.WriteString(c, "abc")
	read(t, c, "abc")
}

func TestProxyCutAfterIsExact(t *testing.T) {
	p := proxy(t)
	for n := 1; n < 8; n++ {
		c := dial(t, p)
		io.WriteString(c, "abc")
		read(t, c, "abc")
		p.CutAfter(int64(n))
		io.WriteString(c, "0123456789")
		got, err := io.ReadAll(c)
		if string(got) != "0123456789"[:n] || err != nil {
			t.Errorf("%d: %q %v", n, got, err)
		}
	}
	p.CutEach(2)
	for range 3 {
		c := dial(t, p)
		io.WriteString(c, "0123456789")
		if got, err := io.ReadAll(c); string(got) != "01" || err != nil {
			t.Errorf("each: %q %v", got, err)
		}
	}
}

func TestProxyRefuses(t *testing.T) {
	p := proxy(t)
	c := dial(t, p)
	p.Refuse()
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
	io.WriteString(c, "still there")
	read(t, c, "still there")
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	c = dial(t, p)
	io.WriteString(c, "again")
	read(t, c, "again")
}

func TestProxyFreezes(t *testing.T) {
	p := proxy(t)
	c := dial(t, p)
	io.WriteString(c, "abc")
	read(t, c, "abc")
	p.Freeze()
	io.WriteString(c, "held")
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := c.Read(make([]byte, 4)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("frozen: %d %v", n, err)
	}
	c.SetReadDeadline(time.Time{})
	p.Thaw()
	read(t, c, "held")
	p.Freeze() // and Close ends what is frozen
	io.WriteString(c, "never")
}

func TestProxyWithoutTarget(t *testing.T) {
	p, err := NewProxy("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return
	}
	defer c.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("read from nothing")
	}
}
