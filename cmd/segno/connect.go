package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/segno-mcp/segno/internal/bridge"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/telemetry"
	upstream "github.com/segno-mcp/segno/internal/upstream/remote"
	"github.com/segno-mcp/segno/internal/wire"
)

type connectCommand struct {
	URL        string        `arg:"" help:"The endpoint of the MCP server, http or https."`
	Header     []string      `sep:"none" placeholder:"'K: V'" group:"remote" help:"Header for every request to the server; may be repeated. $${NAME} stands for that variable of the environment, so that secrets need not be written on the line."`
	GiveUp     time.Duration `name:"give-up" default:"10m" placeholder:"TIME" group:"remote" help:"A request waits this long for a server that cannot be reached, and then ends with an error. Default ${default}."`
	OnGap      string        `name:"on-gap" default:"continue" enum:"continue,fail,reissue" placeholder:"HOW" group:"remote" help:"Where events of a call are lost go on and warn, cancel the call and end it with an error, or cancel it and call again if --replay-safe allows it: ${enum}. Default ${default}."`
	ReplaySafe bool          `name:"replay-safe" group:"remote" help:"Send a call twice if need be, if the server calls its tool read-only or idempotent."`
	Heartbeat  time.Duration `default:"0s" placeholder:"TIME" group:"remote" help:"How often the server says something on a silent stream: silent for two and a half times that, the connection is dead. 0: learned from what it sends. Default ${default}."`
	CAFile     string        `name:"ca-file" placeholder:"FILE" group:"remote" help:"Certificates in PEM of authorities to trust besides the system's."`
	ClientCert string        `name:"client-cert" placeholder:"FILE" group:"remote" help:"Certificate chain in PEM to show to the server."`
	ClientKey  string        `name:"client-key" placeholder:"FILE" group:"remote" help:"Its private key in PEM."`
	LogFormat  string        `name:"log-format" default:"text" enum:"text,json" placeholder:"FORMAT" group:"watch" help:"Form of the log on stderr: ${enum}. Default ${default}."`
	LogLevel   string        `name:"log-level" default:"info" enum:"debug,info,warn,error" placeholder:"LEVEL" group:"watch" help:"Least level that is logged: ${enum}. Default ${default}."`
}

func (connectCommand) Help() string {
	return `Examples:

  segno connect https://example.com/mcp
  segno connect --header 'Authorization: Bearer ${TOKEN}' https://example.com/mcp

It is a stdio server for a program that starts its MCP servers itself. Every request gets exactly one answer: streams that break are resumed, what is asked for in an outage waits, and if nobody knows whether a tool ran, the answer says so. Proxies are those of HTTPS_PROXY, HTTP_PROXY and ALL_PROXY, but for what NO_PROXY lists and for this machine. Only messages are written to stdout.`
}

// Run speaks MCP over stdio until the input ends, or whoever started it does.
func (c *connectCommand) Run(ctx context.Context, sys system) error {
	logger, err := telemetry.NewLogger(sys.err, c.LogFormat, c.LogLevel)
	if err != nil {
		return err
	}
	seen := upstream.NewRecord()
	o, err := c.options(sys.getenv)
	if err != nil {
		return err
	}
	o.Logger, o.Trace = logger, seen
	server, err := upstream.New(o)
	if err != nil {
		return config.Faultf("segno connect [flags] URL, such as: segno connect https://example.com/mcp", "%v", err)
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGPIPE)
	defer stop()
	ctx, free := bridge.WithParent(ctx)
	defer free()
	conn, err := server.Connect(ctx, "")
	if err != nil {
		return err
	}
	if err := bridge.Run(ctx, onStdio(sys, logger), conn); err != nil {
		return err
	}
	logger.Debug("ended", "seen", seen.Sums())
	return nil
}

// onStdio is the client's side.
func onStdio(sys system, logger *slog.Logger) wire.Conn {
	out := &oneByOne{to: sys.out}
	return wire.NewLineConn(closer(sys.in), out, wire.LineOptions{Bad: func(line []byte, why *wire.Error) {
		logger.Warn("a line on stdin is no message", "error", why, "bytes", len(line))
		out.Write(append(why.AppendTo(nil), '\n'))
	}})
}

// oneByOne lets the answers to bad lines and the messages of the server be
// written one at a time.
type oneByOne struct {
	mu sync.Mutex
	to io.Writer
}

func (w *oneByOne) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// Close leaves the output to the process.
func (w *oneByOne) Close() error { return nil }

func closer(r io.Reader) io.ReadCloser {
	if c, ok := r.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(r)
}

// options are the flags in the words of the client.
func (c *connectCommand) options(getenv func(string) string) (upstream.Options, error) {
	o := upstream.Options{
		URL: c.URL, UserAgent: "segno/" + version(), GiveUp: c.GiveUp, OnGap: c.OnGap, ReplaySafe: c.ReplaySafe,
		Heartbeat: c.Heartbeat, Proxy: upstream.Proxies(getenv),
	}
	var err error
	if o.Header, err = headers(c.Header, getenv); err != nil {
		return o, err
	}
	o.TLS, err = tlsConfig(c.CAFile, c.ClientCert, c.ClientKey)
	return o, err
}

var (
	variable   = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)
	headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$") // RFC 9110, section 5.6.2
)

// headers reads lines of the form NAME: VALUE, with or without blanks behind
// the colon.
func headers(lines []string, getenv func(string) string) (http.Header, error) {
	const hint = "write --header 'NAME: VALUE'"
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !ok || !headerName.MatchString(name) {
			return nil, config.Faultf(hint, "--header %q is no header", beforeColon(line))
		}
		var missing string
		value = variable.ReplaceAllStringFunc(strings.TrimSpace(value), func(found string) string {
			v := getenv(found[2 : len(found)-1])
			if v == "" {
				missing = found[2 : len(found)-1]
			}
			return v
		})
		if missing != "" {
			return nil, config.Faultf("set it where this command is started", "--header %s: the variable %s is not set", name, missing)
		}
		if strings.ContainsAny(value, "\r\n\x00") {
			return nil, config.Faultf("a secret read from a file may end with a line break: take that away", "--header %s: the value has a line break in it", name)
		}
		h.Add(name, value)
	}
	return h, nil
}

// beforeColon keeps secrets out of errors.
func beforeColon(line string) string {
	name, _, found := strings.Cut(line, ":")
	if !found {
		return line[:min(len(line), 12)]
	}
	return name
}

// tlsConfig is nil where nothing differs from the system's.
func tlsConfig(ca, cert, key string) (*tls.Config, error) {
	if ca == "" && cert == "" && key == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("reading --ca-file: %w", err)
		}
		if c.RootCAs, err = x509.SystemCertPool(); err != nil {
			c.RootCAs = x509.NewCertPool()
		}
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, config.Faultf("it must hold blocks that begin with -----BEGIN CERTIFICATE-----", "--ca-file %s: there is no certificate in it", ca)
		}
	}
	if cert == "" && key == "" {
		return c, nil
	}
	if cert == "" || key == "" {
		return nil, errors.New("--client-cert and --client-key belong together: one is missing")
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("reading --client-cert and --client-key: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
