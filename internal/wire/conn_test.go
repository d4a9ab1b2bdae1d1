package wire

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func note(n int) []byte {
	return AppendNotification(nil, "x", []byte(`{"n":`+strconv.Itoa(n)+`}`))
}

// pipes is a pair whose carriers are pipes.
func pipes() (Conn, Conn) {
	ar, bw := io.Pipe()
	br, aw := io.Pipe()
	return NewLineConn(ar, aw, LineOptions{}), NewLineConn(br, bw, LineOptions{})
}

var conns = map[string]func() (Conn, Conn){"pair": Pair, "lines": pipes}

func TestConnKeepsOrderAndLosesNothing(t *testing.T) {
	for name, make := range conns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := make()
				go func() {
					for n := range 5000 {
						if err := a.Send(t.Context(), note(n)); err != nil {
							t.Error(err)
						}
					}
				}()
				for n := 0; n < 5000; {
					msgs, err := b.Recv(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range msgs {
						if string(m.Raw) != string(note(n)) {
							t.Fatalf("got %s at %d", m.Raw, n)
						}
						n++
					}
				}
				closeBoth(t, a, b)
			})
		})
	}
}

func closeBoth(t *testing.T, a, b Conn) {
	t.Helper()
	for _, c := range []Conn{a, b, a} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConnTellsThatTheOtherSideIsGone(t *testing.T) {
	for name, make := range conns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := make()
				sent := make2(func() error { return a.Send(t.Context(), note(1)) })
				msgs, err := b.Recv(t.Context())
				if err != nil || len(msgs) != 1 || <-sent != nil {
					t.Fatal(msgs, err)
				}
				a.Close()
				var gone *Gone
				if _, err := b.Recv(t.Context()); !errors.As(err, &gone) {
					t.Errorf("recv: %v", err)
				}
				if err := b.Send(t.Context(), note(2)); !errors.As(err, &gone) {
					t.Errorf("send: %v", err)
				}
				if _, err := a.Recv(t.Context()); !errors.As(err, &gone) {
					t.Errorf("recv on the closed end: %v", err)
				}
				if err := a.Send(t.Context(), note(2)); !errors.As(err, &gone) {
					t.Errorf("send on the closed end: %v", err)
				}
				closeBoth(t, a, b)
			})
		})
	}
}

func make2(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

func TestConnRecvEndsWithItsContextAndLosesNothing(t *testing.T) {
	for name, make := range conns {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := make()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := b.Recv(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				sent := make2(func() error { return a.Send(t.Context(), note(1)) })
				if msgs, err := b.Recv(t.Context()); err != nil || string(msgs[0].Raw) != string(note(1)) {
					t.Fatal(msgs, err)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
				closeBoth(t, a, b)
			})
		})
	}
}

func TestPairHoldsBackAFastSender(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pair()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		sent := 0
		for ; ; sent++ {
			if err := a.Send(ctx, note(sent)); err != nil {
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				break
			}
		}
		if size := sent * len(note(1)); size > pairRoom {
			t.Errorf("%d bytes wait", size)
		}
		a.Close()
		got := 0
		for {
			msgs, err := b.Recv(t.Context())
			if err != nil {
				break
			}
			got += len(msgs)
		}
		if got != sent {
			t.Errorf("%d of %d", got, sent)
		}
	})
}

func TestPairRefusesWhatIsNoMessage(t *testing.T) {
	a, b := Pair()
	var bad *Error
	if err := a.Send(t.Context(), []byte(`{"id":1}`)); !errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
	closeBoth(t, a, b)
}

// Field case 67: messages of many senders do not mix.
func TestField67_ConcurrentSendsStayWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipes()
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				if err := a.Send(t.Context(), note(n)); err != nil {
					t.Error(err)
				}
			})
		}
		seen := map[string]bool{}
		for len(seen) < 50 {
			msgs, err := b.Recv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range msgs {
				seen[string(m.Raw)] = true
			}
		}
		all.Wait()
		closeBoth(t, a, b)
	})
}

func TestLineConnSendsSpreadMessagesAsOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipes()
		sent := make2(func() error { return a.Send(t.Context(), []byte("{\n\"jsonrpc\":\"2.0\",\r\n\"method\":\"x\"}")) })
		msgs, err := b.Recv(t.Context())
		if err != nil || len(msgs) != 1 || string(msgs[0].Raw) != `{"jsonrpc":"2.0","method":"x"}` || <-sent != nil {
			t.Errorf("%v %v", msgs, err)
		}
		closeBoth(t, a, b)
	})
}
