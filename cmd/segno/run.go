package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// run serves until a signal, or until one part ends, which ends them all. ready
// is called once everything answers.
func (s *site) run(ctx context.Context, ready func()) error {
	signalled, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.Go(func() error { return unlessClosed(s.web.Serve(s.listener)) })
	if s.watch != nil {
		g.Go(func() error { return unlessClosed(s.watch.Serve(s.admin)) })
	}
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return s.end(0)
		case <-signalled.Done():
		}
		// From here on a second signal does what it always does: it ends the
		// process at once.
		stop()
		for _, one := range s.servers {
			one.refuse()
		}
		s.logger.Info("draining", "limit", s.settings.Drain)
		defer cancel()
		return s.end(s.settings.Drain)
	})
	ready()
	return g.Wait()
}

// unlessClosed leaves out that a server was told to end.
func unlessClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// keptBack is what idle connections, children that do not want to end and the
// last connections may take, one after the other.
const keptBack = 7 * time.Second

// lastSecond is for connections that nobody waits for.
const lastSecond = time.Second

// end drains: no session begins any more and calls that run are waited for.
// Then the listener goes: a connection that is refused is to clients a server
// which will be back, while an answer would be its word. Children are stopped,
// which ends what still runs with an outcome that says so, and connections have
// a second to read theirs. A part of the time is kept back for all that: whoever
// sends SIGTERM waits no longer.
func (s *site) end(limit time.Duration) error {
	back := min(limit/2, keptBack)
	ctx, cancel := context.WithTimeout(context.Background(), limit-back)
	defer cancel()
	if s.each(func(one *served) error { return one.server.Drain(ctx) }) != nil && limit > 0 {
		s.logger.Warn("calls still run at the end of the time to drain", "waited", limit-back)
	}
	ctx, cancel = context.WithTimeout(context.Background(), max(back, 6*time.Second))
	defer cancel()
	last, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	gone := make(chan error, 1)
	go func() { gone <- s.web.Shutdown(last) }()
	err := s.each(func(one *served) error { return one.server.Close(ctx) })
	defer time.AfterFunc(lastSecond, giveUp).Stop()
	if <-gone != nil {
		s.web.Close()
	}
	if s.watch != nil {
		s.watch.Close()
	}
	return err
}

// each does something with all servers at once.
func (s *site) each(do func(*served) error) error {
	var g errgroup.Group
	for _, one := range s.servers {
		g.Go(func() error { return do(one) })
	}
	return g.Wait()
}

func (s *site) closeInto(err *error) { *err = errors.Join(*err, s.close()) }

// close gives back what open took. It may come before, after or without run.
func (s *site) close() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
	defer cancel()
	for _, l := range []net.Listener{s.listener, s.admin} {
		if l != nil {
			l.Close()
		}
	}
	for _, one := range s.servers {
		err = errors.Join(err, one.close(ctx))
	}
	if terr := s.tracer.Close(ctx); terr != nil {
		s.logger.Warn("traces not delivered", "error", terr)
	}
	return err
}
