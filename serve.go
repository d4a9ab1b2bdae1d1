package segno

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/segno-mcp/segno/internal/listen"
)

const (
	// lastIdle is for idle connections to end once nothing else is to be done.
	lastIdle = time.Second
	// drainSpread spreads the ends of idle connections that other replicas take.
	drainSpread = 2 * time.Second
	// lastCalls is for what still runs at the end, after DrainTimeout.
	lastCalls = 10 * time.Second
)

// ListenAndServe serves on a TCP address, such as 127.0.0.1:8080, with the time
// limits that streams need, until ctx ends; then it drains and closes the
// server. It refuses an address that others can reach if nobody has to say who
// they are, unless Options.Insecure is set.
func (s *Server) ListenAndServe(ctx context.Context, address string) error {
	l, err := listen.Open(ctx, address, listen.Options{Unacknowledged: 3 * s.o.Heartbeat, Logger: s.logger})
	if err != nil {
		return errors.Join(err, s.Close(ctx))
	}
	return s.Serve(ctx, l)
}

// Serve is ListenAndServe on a listener, which it closes.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.exposed(l.Addr()); err != nil {
		return errors.Join(err, l.Close(), s.Close(ctx))
	}
	srv := listen.NewServer(s, s.logger)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	return errors.Join(err, s.end(context.WithoutCancel(ctx), srv))
}

// exposed tells whether anybody could come in from elsewhere.
func (s *Server) exposed(a net.Addr) error {
	tcp, ok := a.(*net.TCPAddr)
	if !ok || tcp.IP.IsLoopback() || !s.o.anonymous() || s.o.Insecure {
		return nil
	}
	return fmt.Errorf("listening on %s: others can reach it, and nobody has to say who they are; give a TokenFile or set Insecure", a)
}

// end lets running calls finish, then ends everything else.
func (s *Server) end(ctx context.Context, srv *http.Server) error {
	drain, cancel := context.WithTimeout(ctx, s.o.DrainTimeout)
	defer cancel()
	if err := s.Drain(drain); err != nil {
		s.logger.Warn("not everything ended in time", "error", err)
	}
	last, cancel := context.WithTimeout(ctx, lastCalls)
	defer cancel()
	// From here on a connection is refused: to clients that is a server which
	// will be back, while an answer would be its word.
	shut := make(chan error, 1)
	go func() { shut <- srv.Shutdown(last) }()
	err := s.Close(last)
	if down := <-shut; down != nil {
		// Whoever does not read its answer keeps nobody from ending.
		s.logger.Warn("connections were cut at the end", "why", down)
		err = errors.Join(err, srv.Close())
	}
	return err
}
