package bridge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/segno-mcp/segno/internal/wire"
)

func TestMain(m *testing.M) {
	play()
	goleak.VerifyTestMain(m)
}

// ends are the two outer ends of a bridge that runs.
type ends struct {
	t              *testing.T
	client, server wire.Conn
	done           chan error
	stop           context.CancelFunc
}

func bridged(t *testing.T) *ends {
	client, near := wire.Pair()
	far, server := wire.Pair()
	ctx, stop := context.WithCancel(t.Context())
	e := &ends{t: t, client: client, server: server, done: make(chan error, 1), stop: stop}
	go func() { e.done <- Run(ctx, near, far) }()
	return e
}

func (e *ends) pass(from, to wire.Conn, msg string) {
	e.t.Helper()
	if err := from.Send(e.t.Context(), []byte(msg)); err != nil {
		e.t.Fatal(err)
	}
	got, err := to.Recv(e.t.Context())
	if err != nil || string(got[0].Raw) != msg {
		e.t.Fatalf("%v arrived as %v", msg, err)
	}
}

const request, answer = `{"jsonrpc":"2.0","id":1.0,"method":"x", "y":[ 1 ]}`, `{"result":{},"id":1.0,"jsonrpc":"2.0"}`

func TestMessagesPassAsTheyAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bridged(t)
		e.pass(e.client, e.server, request)
		e.pass(e.server, e.client, answer)
		for n := range 1000 {
			e.client.Send(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n","params":{"n":%d}}`, n))
		}
		for n := 0; n < 1000; {
			msgs, err := e.server.Recv(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range msgs {
				if !strings.Contains(string(msgs[i].Raw), fmt.Sprintf(`"n":%d}`, n)) {
					t.Fatalf("%s came in place %d", msgs[i].Raw, n)
				}
				n++
			}
		}
		began := time.Now()
		e.client.Close()
		if err := <-e.done; err != nil || time.Since(began) != 0 {
			t.Errorf("ended with %v after %v", err, time.Since(began))
		}
		var gone *wire.Gone
		if _, err := e.server.Recv(t.Context()); !errors.As(err, &gone) {
			t.Errorf("the server's side: %v", err)
		}
	})
}

// TestEndOfInput: answers that come soon still reach the client.
func TestEndOfInput(t *testing.T) {
	for _, after := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			near, out := wire.Pair()
			far, server := wire.Pair()
			done := make(chan error, 1)
			go func() { done <- Run(t.Context(), &deaf{Conn: near, first: []byte(request)}, far) }()
			server.Recv(t.Context())
			timer := time.AfterFunc(after, func() { server.Send(context.Background(), []byte(answer)) })
			defer timer.Stop()
			began := time.Now()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d != min(after, Linger) {
				t.Errorf("ended after %v", d)
			}
			msgs, err := out.Recv(t.Context())
			if (err == nil && len(msgs) == 1) != (after == time.Second) {
				t.Errorf("the client got %d messages, %v", len(msgs), err)
			}
		})
	}
}

// deaf is a client that says one thing and then no more, and still listens.
type deaf struct {
	wire.Conn
	first []byte
}

func (d *deaf) Recv(context.Context) ([]wire.Message, error) {
	if d.first == nil {
		return nil, &wire.Gone{Reason: "end of input"}
	}
	m, bad := wire.Parse(d.first)
	if bad != nil {
		return nil, bad
	}
	d.first = nil
	return []wire.Message{m}, nil
}

func TestOtherEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := bridged(t)
		e.server.Close()
		<-e.done
		e = bridged(t)
		e.pass(e.client, e.server, request)
		e.stop()
		if err := <-e.done; err != nil {
			t.Errorf("stopped: %v", err)
		}
	})
}

func TestParentThatDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var parent atomic.Int64
		parent.Store(7)
		ctx, stop := withParent(t.Context(), func() int { return int(parent.Load()) }, time.Second)
		defer stop()
		time.Sleep(time.Minute)
		if ctx.Err() != nil {
			t.Fatal("ended while the parent lived")
		}
		parent.Store(1)
		time.Sleep(2 * time.Second)
		if context.Cause(ctx) != errOrphan {
			t.Errorf("the context says %v", context.Cause(ctx))
		}
	})
}
