package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/demo"
	"github.com/segno-mcp/segno/internal/example"
	"github.com/segno-mcp/segno/internal/telemetry"
)

type demoCommand struct {
	WithoutSegno bool          `name:"without-segno" help:"Show what the same client sees of a server that keeps nothing."`
	Rows         int           `default:"40" placeholder:"N" help:"Rows to export. Default ${default}."`
	Interval     time.Duration `default:"150ms" placeholder:"TIME" help:"Time between two rows. Default ${default}."`
	Outage       time.Duration `default:"1s" placeholder:"TIME" help:"How long the network is away. Default ${default}."`
}

func (demoCommand) Help() string {
	return `Everything runs on this machine, on free ports, and is gone afterwards.

Examples:

  segno demo
  segno demo --without-segno`
}

// Run tells the story, and fails if something was lost or came twice.
func (c *demoCommand) Run(ctx context.Context, sys system) error {
	if err := c.check(); err != nil {
		return err
	}
	o := demo.Options{
		WithoutSegno: c.WithoutSegno, Out: sys.out, Color: colours(sys),
		Rows: c.Rows, Interval: c.Interval, Outage: c.Outage,
	}
	if c.WithoutSegno {
		_, err := demo.Run(ctx, o)
		return err
	}
	return withExample(ctx, sys, func(ctx context.Context, url string) error {
		o.URL = url
		_, err := demo.Run(ctx, o)
		return err
	})
}

func (c *demoCommand) check() error {
	switch {
	case c.Rows < 2 || c.Rows > example.MaxRows:
		return config.Faultf("one row comes before the cut and one after it", "--rows is %d: must be from 2 to %d", c.Rows, example.MaxRows)
	case c.Interval < time.Millisecond:
		return config.Faultf("", "--interval is %v: must be at least %v", c.Interval, time.Millisecond)
	case c.Outage < time.Millisecond:
		return config.Faultf("", "--outage is %v: must be at least %v", c.Outage, time.Millisecond)
	}
	return nil
}

func colours(sys system) bool {
	f, ok := sys.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && sys.getenv("NO_COLOR") == ""
}

// withExample serves the example server on a free port while do runs.
func withExample(ctx context.Context, sys system, do func(ctx context.Context, url string) error) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	settings, err := defaults()
	if err != nil {
		return err
	}
	settings.Listen, settings.Admin, settings.Store, settings.Drain = "127.0.0.1:0", "off", "memory:", 0
	logger, err := telemetry.NewLogger(sys.err, "text", "warn")
	if err != nil {
		return err
	}
	s := newSite(settings, sys, logger, nil)
	defer s.closeInto(&err)
	if err := s.open(ctx, []target{{path: settings.Path, argv: []string{self, "example-server"}}}); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready := make(chan struct{})
	g.Go(func() error { return s.run(ctx, func() { close(ready) }) })
	g.Go(func() error {
		defer cancel()
		<-ready
		return do(ctx, s.url(s.servers[0]))
	})
	return g.Wait()
}

// defaults are the settings of a line without flags.
func defaults() (*config.Serve, error) {
	s := new(config.Serve)
	parser, err := kong.New(s)
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse(nil)
	return s, err
}
