// Package listen opens the sockets that clients come in by: TCP with a bound on
// unacknowledged bytes, TLS with certificates that are read again when they
// change, and the HTTP server with the time limits that streams need.
package listen

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Time limits of the HTTP server. There is none on writing: a stream may be
// open for days, and each of its writes has a deadline of its own.
const (
	readHeader = 10 * time.Second
	idle       = 3 * time.Minute
)

// headerMax is the largest head of a request, in bytes.
const headerMax = 64 << 10

// Options say how to listen. The zero value is plain TCP.
type Options struct {
	// Cert and Key are files in PEM; both or none. They are read again when
	// they change.
	Cert, Key string
	// Unacknowledged is how long bytes may stay unacknowledged before the
	// kernel ends a connection; 0: its default, about 15 minutes. Linux only.
	Unacknowledged time.Duration
	Logger         *slog.Logger
}

// Open listens on a TCP address; port 0 takes any free one.
func Open(ctx context.Context, address string, o Options) (net.Listener, error) {
	conf := net.ListenConfig{
		Control:         userTimeout(o.Unacknowledged),
		KeepAliveConfig: net.KeepAliveConfig{Enable: true},
	}
	certs, err := openCertificates(o)
	if err != nil {
		return nil, err
	}
	l, err := conf.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	if certs == nil {
		return l, nil
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: certs.get,
	}), nil
}

// NewServer makes the server for a handler: HTTP/1.1, HTTP/2 over TLS, and
// HTTP/2 without TLS for proxies that speak it from the first byte on.
func NewServer(h http.Handler, log *slog.Logger) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: readHeader,
		IdleTimeout:       idle,
		MaxHeaderBytes:    headerMax,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
	}
}
