package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/telemetry"
)

type serveCommand struct {
	Command []string `arg:"" optional:"" help:"The stdio MCP server and its arguments, after --; no shell is involved. Or the URL of a server that runs already."`
	Config  string   `placeholder:"FILE" help:"Read settings and servers from a file: {\"mcpServers\": {NAME: {\"command\": …}}, \"segno\": {FLAG: value}}. Each server is at /servers/NAME and the path."`
	config.Serve
}

func (serveCommand) Help() string {
	return `Examples:

  segno serve -- npx -y @modelcontextprotocol/server-everything
  segno serve --listen :8080 --token-file keys -- uvx mcp-server-time
  segno serve http://localhost:3000/mcp
  segno serve --config segno.json

Every flag is also a variable (--retain-age is SEGNO_RETAIN_AGE) and a key of the file ("retain-age"). Flags come before variables, variables before the file, the file before the default. Sizes are written as 16MiB, times as 90s, 15m, 1h30m.`
}

// Run serves until a signal, or until something it needs ends.
func (c *serveCommand) Run(ctx context.Context, sys system, layers *config.Layers) error {
	if err := c.Check(layers.Where); err != nil {
		return err
	}
	targets, err := c.targets(layers.File())
	if err != nil {
		return err
	}
	logger, err := telemetry.NewLogger(sys.err, c.LogFormat, c.LogLevel)
	if err != nil {
		return err
	}
	for _, w := range c.Warnings(layers.Where) {
		logger.Warn(w)
	}
	tellFile(layers.File(), logger)
	logger.Debug("settings", "given", given(layers))
	return c.serve(ctx, sys, layers, targets, logger)
}

// tellFile says what of the file has no effect.
func tellFile(file *config.File, logger *slog.Logger) {
	if file == nil {
		return
	}
	if len(file.Ignored) > 0 {
		logger.Info("keys of other programs are ignored", "file", file.Path, "keys", strings.Join(file.Ignored, " "))
	}
	if len(file.Disabled) > 0 {
		logger.Info("servers that are disabled are not served", "file", file.Path, "servers", strings.Join(file.Disabled, " "))
	}
}

// given lists the settings that are not at their defaults, with their sources.
func given(l *config.Layers) (all []string) {
	for name, source := range l.Sources() {
		all = append(all, name+" from "+string(source))
	}
	return all
}

// serve opens everything, runs it, and closes it again in the opposite order.
func (c *serveCommand) serve(ctx context.Context, sys system, layers *config.Layers, targets []target, logger *slog.Logger) (err error) {
	tracer, err := telemetry.NewTracer(ctx, sys.getenv, version(), logger)
	if err != nil {
		return err
	}
	s := newSite(&c.Serve, sys, logger, tracer)
	s.where = layers.Where
	ran := false
	defer func() {
		if s.closeInto(&err); ran {
			s.logger.Info("stopped")
		}
	}()
	if err := s.open(ctx, targets); err != nil {
		return err
	}
	ran = true
	return s.run(ctx, func() { s.announce(ctx) })
}

// target is an MCP server that is to be served.
type target struct {
	name string // empty if it comes from the command line
	path string
	argv []string
	env  []string
	dir  string

	url    string   // instead of argv: a server that runs already
	header []string // for it
}

// targets are the server of the command line, or those of the file.
func (c *serveCommand) targets(file *config.File) ([]target, error) {
	several := file != nil && len(file.Servers) > 0
	switch {
	case len(c.Command) > 0 && several:
		return nil, config.Faultf("leave out the command, or the servers of the file", "a command is given, and %s has servers too", file.Path)
	case len(c.Command) > 0:
		return c.fromCommand()
	case several:
		return c.fromFile(file), nil
	}
	if file != nil && len(file.Disabled) > 0 {
		return nil, config.Faultf("set \"disabled\" of one to false", "all servers of %s are disabled", file.Path)
	}
	return nil, config.Faultf("segno serve -- COMMAND [ARG…], such as: segno serve -- npx -y @modelcontextprotocol/server-everything",
		"there is no MCP server to serve")
}

func (c *serveCommand) fromCommand() ([]target, error) {
	first := c.Command[0]
	if !strings.HasPrefix(first, "http://") && !strings.HasPrefix(first, "https://") {
		return []target{{path: c.Path, argv: c.Command}}, nil
	}
	if len(c.Command) > 1 {
		return nil, config.Faultf("segno serve [flags] URL", "a URL is given, and then %q", c.Command[1])
	}
	return []target{{path: c.Path, url: first, header: c.Header}}, nil
}

func (c *serveCommand) fromFile(file *config.File) (all []target) {
	for _, s := range file.Servers {
		t := target{name: s.Name, path: "/servers/" + s.Name + c.Path, argv: append([]string{s.Command}, s.Args...), dir: s.Cwd}
		if s.URL != "" {
			t.argv, t.url = nil, s.URL
		}
		for k, v := range s.Headers {
			t.header = append(t.header, k+": "+v)
		}
		for k, v := range s.Env {
			t.env = append(t.env, k+"="+v)
		}
		slices.Sort(t.env)
		slices.Sort(t.header)
		all = append(all, t)
	}
	return all
}
