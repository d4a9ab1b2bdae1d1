package segno

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/access"
	"github.com/segno-mcp/segno/internal/front/streamable"
	"github.com/segno-mcp/segno/internal/session"
)

// Server is an MCP server on the network: an http.Handler. It must be closed.
// Its methods may be called from anywhere.
type Server struct {
	o        Options
	handler  http.Handler
	front    *streamable.Front
	sessions *session.Manager
	log      eventlog.Log
	logger   *slog.Logger

	stop    context.CancelFunc
	others  sync.WaitGroup
	closing sync.Once
	closed  error
}

// New makes a server for an upstream. It starts no child before a client asks.
func New(upstream Upstream, o Options) (*Server, error) {
	if upstream == nil {
		return nil, errors.New("making the server: there is no upstream")
	}
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	s := &Server{o: o, log: o.Log, logger: o.Logger}
	keys, err := openKeys(o)
	if err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	door, err := access.New(o.access(keys))
	if err != nil {
		return nil, fmt.Errorf("making the server: %w", err)
	}
	if s.log == nil {
		s.log = memlog.New()
	}
	if err := s.assemble(bound(upstream, o), door); err != nil {
		return nil, errors.Join(fmt.Errorf("making the server: %w", err), s.closeLog())
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	if keys != nil {
		s.others.Go(func() { keys.Watch(ctx) })
	}
	return s, nil
}

func openKeys(o Options) (*access.Keys, error) {
	if o.TokenFile == "" {
		return nil, nil
	}
	return access.OpenKeys(o.TokenFile, o.Logger)
}

// assemble puts the parts together: door, front, sessions, upstream.
func (s *Server) assemble(upstream Upstream, door *access.Door) (err error) {
	s.sessions, err = session.New(session.Options{
		Log: s.log, Upstream: upstream, Limits: s.o.limits(), Shared: s.o.Process == Shared,
		Instance: s.o.Instance, Logger: s.logger, Meter: s.o.Meter, Tracer: s.o.Tracer,
	})
	if err != nil {
		return err
	}
	if s.front, err = streamable.New(s.o.streamable(s.sessions)); err != nil {
		return errors.Join(err, s.sessions.Close(context.Background()))
	}
	s.handler = door.Wrap(newMux(s.o.Path, s.front))
	return nil
}

// ServeHTTP serves the endpoint and what is below it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Vitals is what only the process that runs a session knows of it.
type Vitals = session.Vitals

// Seat is a connection to a stream, as it is shown.
type Seat = session.Seat

// Live tells about the sessions that are in memory, by the name under which the
// Log has them. That name is no secret, and no session id.
func (s *Server) Live() map[string]Vitals { return s.sessions.InMemory() }

// Refuse makes the server take no new sessions: initialize is answered 503.
// What is there goes on.
func (s *Server) Refuse() { s.front.Refuse() }

// Drain prepares for Close: no new sessions; connections of running calls stay
// until the outcome is delivered, or until ctx ends; idle ones end last, each
// told to come back later. With a SharedLog idle ones end at once: another
// replica serves them.
func (s *Server) Drain(ctx context.Context) error {
	s.front.Refuse()
	if s.o.SharedLog {
		s.sessions.Drain()
	}
	err := s.front.Settled(ctx)
	s.sessions.Drain()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastIdle)
	defer cancel()
	if idle := s.front.Empty(last); err == nil {
		err = idle
	}
	return err
}

// Close ends the children and gives calls that still run their outcome, ends
// all connections and then the log, if New made it. It waits for all of that,
// at most until ctx ends; what cannot be waited for is abandoned.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() {
		s.front.Refuse()
		err := s.sessions.Close(ctx)
		err = errors.Join(err, s.front.Close(ctx))
		s.stop()
		s.others.Wait()
		s.closed = errors.Join(err, s.closeLog())
	})
	return s.closed
}

func (s *Server) closeLog() error {
	if s.o.Log != nil {
		return nil
	}
	return s.log.Close()
}
