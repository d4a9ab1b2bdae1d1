package memnet

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect makes a network and both ends of one link on it.
func connect(t *testing.T, n *Net) (client, server net.Conn, l *Link) {
	t.Helper()
	client, err := n.Dial(t.Context(), "tcp", "any:1")
	if err != nil {
		t.Fatal(err)
	}
	if server, err = n.Accept(); err != nil {
		t.Fatal(err)
	}
	return client, server, n.Last()
}

func read(t *testing.T, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q %v, want %q", got, err, want)
	}
}

func fails(t *testing.T, c net.Conn, readErr, writeErr error) {
	t.Helper()
	if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, readErr) {
		t.Errorf("read: %d %v, want %v", n, err, readErr)
	}
	if _, err := c.Write([]byte("x")); !errors.Is(err, writeErr) {
		t.Errorf("write: %v, want %v", err, writeErr)
	}
}

func TestCutResetsBothSides(t *testing.T) {
	c, s, l := connect(t, Listen())
	s.Write([]byte("arrived"))
	l.Cut()
	read(t, c, "arrived")
	fails(t, c, syscall.ECONNRESET, syscall.ECONNRESET)
	fails(t, s, syscall.ECONNRESET, syscall.ECONNRESET)
	if l.Alive() {
		t.Error("alive")
	}
}

func TestCutAfterIsExact(t *testing.T) {
	for n := 1; n <= 10; n++ {
		c, s, l := connect(t, Listen())
		s.Write([]byte("before "))
		l.CutAfter(int64(n))
		for range 4 {
			s.Write([]byte("0123"))
		}
		got, err := io.ReadAll(c)
		if want := "before " + "0123012301230123"[:n]; string(got) != want || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d: %q %v", n, got, err)
		}
		fails(t, s, syscall.ECONNRESET, syscall.ECONNRESET)
	}
}

func TestCutAfterUp(t *testing.T) {
	c, s, l := connect(t, Listen())
	l.CutAfterUp(3)
	if n, err := c.Write([]byte("01234")); n != 5 || err != nil {
		t.Errorf("the writer is told at once: %d %v", n, err)
	}
	read(t, s, "012")
	fails(t, s, syscall.ECONNRESET, syscall.ECONNRESET)
}

func TestCloseCleanEndsBothSides(t *testing.T) {
	c, s, l := connect(t, Listen())
	s.Write([]byte("last"))
	l.CloseClean()
	read(t, c, "last")
	fails(t, c, io.EOF, syscall.EPIPE)
	fails(t, s, io.EOF, syscall.EPIPE)
}

func TestClose(t *testing.T) {
	c, s, _ := connect(t, Listen())
	s.Write([]byte("last"))
	s.Close()
	read(t, c, "last")
	fails(t, c, io.EOF, syscall.EPIPE)
	fails(t, s, net.ErrClosed, net.ErrClosed)
}

func TestCloseWriteEndsOneDirection(t *testing.T) {
	c, s, _ := connect(t, Listen())
	c.(interface{ CloseWrite() error }).CloseWrite()
	if _, err := s.Read(make([]byte, 1)); err != io.EOF {
		t.Error(err)
	}
	s.Write([]byte("back"))
	read(t, c, "back")
	if _, err := c.Write([]byte("x")); err == nil {
		t.Error("written after CloseWrite")
	}
}

func TestFreezeTellsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, l := connect(t, Listen())
		l.Freeze()
		s.Write([]byte("held"))
		s.Close()
		c.SetReadDeadline(time.Now().Add(time.Hour))
		if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("frozen read: %d %v", n, err)
		}
		if _, err := c.Write([]byte("x")); err != nil {
			t.Errorf("frozen write: %v", err)
		}
		c.SetReadDeadline(time.Time{})
		go func() {
			time.Sleep(time.Minute)
			l.Thaw()
		}()
		read(t, c, "held")
		fails(t, c, io.EOF, syscall.EPIPE)
	})
}

func TestCutOfAFrozenLinkLosesWhatItHeld(t *testing.T) {
	c, s, l := connect(t, Listen())
	s.Write([]byte("arrived"))
	l.Freeze()
	s.Write([]byte("held"))
	l.Cut()
	read(t, c, "arrived")
	fails(t, c, syscall.ECONNRESET, syscall.ECONNRESET)
}

func TestWritersWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s, _ := connect(t, &Net{Buffer: 10, change: make(chan struct{})})
		s.SetWriteDeadline(time.Now().Add(time.Second))
		n, err := s.Write([]byte("0123456789abcdef"))
		if n != 10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d %v", n, err)
		}
		s.SetWriteDeadline(time.Time{})
		go s.Write([]byte("abcdef"))
		read(t, c, "0123456789abcdef")
	})
}

func TestRefuse(t *testing.T) {
	n := Listen()
	n.Refuse(true)
	if _, err := n.Dial(t.Context(), "tcp", "x"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	n.Refuse(false)
	c, _, _ := connect(t, n)
	n.Close()
	n.Close()
	if _, err := n.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := n.Dial(t.Context(), "tcp", "x"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Dial(ctx, "tcp", "x"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// ticks is a handler that writes a line a minute for ever.
func ticks(gone chan<- struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		for {
			io.WriteString(w, "tick\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			select {
			case <-r.Context().Done():
				return
			case <-time.After(time.Minute):
			}
		}
	})
}

func TestHTTPInVirtualTime(t *testing.T) {
	for name, end := range map[string]func(*Net, *http.Response){
		"cut":         func(n *Net, _ *http.Response) { n.Last().Cut() },
		"clean close": func(n *Net, _ *http.Response) { n.Last().CloseClean() },
		"client left": func(_ *Net, r *http.Response) { r.Body.Close() },
		"exact byte":  func(n *Net, _ *http.Response) { n.Last().CutAfter(3) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := make(chan struct{})
				n, client := Serve(t, ticks(gone))
				resp, err := client.Get("http://server/")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				for range 100 {
					if line, err := lines.ReadString('\n'); err != nil || line != "tick\n" {
						t.Fatal(line, err)
					}
				}
				end(n, resp)
				if rest, err := io.ReadAll(lines); err == nil || strings.Contains(string(rest), "tick\n") {
					t.Errorf("%q %v", rest, err)
				}
				<-gone
			})
		})
	}
}
