// Package bridge joins a client and a server that speak MCP on two connections:
// what one says the other hears, byte for byte and in order.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// Linger is how long answers are waited for that are still due when the client
// has said all it had to say. A client that is gone reads none; one that only
// closed its output, as in a shell's pipe, gets them.
const Linger = 2 * time.Second

// Run copies messages between a client and a server until the client's side
// ends, the server's does, or ctx does. It closes both connections and returns
// when nothing is left of either. That the client is done is no error.
func Run(ctx context.Context, client, server wire.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := &bridge{due: map[string]int{}, none: make(chan struct{}, 1)}
	up, down := make(chan error, 1), make(chan error, 1)
	var both sync.WaitGroup
	ignore := func(*wire.Message) {}
	both.Go(func() { up <- b.copy(ctx, server, client, b.asked, ignore) })
	both.Go(func() { down <- b.copy(ctx, client, server, ignore, b.answered) })
	var err error
	select {
	case err = <-up:
		if ended(err) {
			b.linger(ctx, down)
		}
	case err = <-down:
	case <-ctx.Done():
	}
	over := server.Close()
	cancel()
	client.Close()
	both.Wait()
	if err == nil || ended(err) || errors.Is(err, context.Canceled) {
		err = over
	}
	return err
}

// side is the end of a connection, and whose it is.
type side struct {
	reading bool
	err     error
}

func (s *side) Error() string { return s.err.Error() }
func (s *side) Unwrap() error { return s.err }

// ended tells whether the side that was read from has nothing more to say.
func ended(err error) bool {
	var s *side
	var gone *wire.Gone
	return errors.As(err, &s) && s.reading && errors.As(err, &gone)
}

type bridge struct {
	mu   sync.Mutex
	due  map[string]int // requests of the client without an answer, by id
	none chan struct{}  // has a value when there are none any more
}

// copy moves messages in one direction until an end, and shows each before and
// after it is handed on.
func (b *bridge) copy(ctx context.Context, to, from wire.Conn, before, after func(*wire.Message)) error {
	for {
		msgs, err := from.Recv(ctx)
		if err != nil {
			return &side{true, err}
		}
		for i := range msgs {
			before(&msgs[i])
			if err := to.Send(ctx, msgs[i].Raw); err != nil {
				return &side{false, fmt.Errorf("handing a message on: %w", err)}
			}
			after(&msgs[i])
		}
	}
}

func (b *bridge) asked(m *wire.Message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case m.Kind == wire.Request:
		b.due[string(m.IDText())]++
	case m.Method == wire.Cancelled:
		if at, err := m.Find("params", "requestId"); err == nil {
			b.drop(string(m.Text(at)))
		}
	}
}

func (b *bridge) answered(m *wire.Message) {
	if m.Kind != wire.Result && m.Kind != wire.Failure {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drop(string(m.IDText()))
}

// drop takes a request off what is due; b.mu is held.
func (b *bridge) drop(id string) {
	if b.due[id]--; b.due[id] <= 0 {
		delete(b.due, id)
	}
	if len(b.due) == 0 {
		select {
		case b.none <- struct{}{}:
		default:
		}
	}
}

func (b *bridge) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.due) == 0
}

// linger waits for the answers that are due.
func (b *bridge) linger(ctx context.Context, down <-chan error) {
	late := time.NewTimer(Linger)
	defer late.Stop()
	for !b.empty() {
		select {
		case <-b.none:
		case <-down:
			return
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
