package main

import (
	"log/slog"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/internal/config"
	"github.com/segno-mcp/segno/internal/telemetry"
	upstream "github.com/segno-mcp/segno/internal/upstream/remote"
)

// behindURL is a server that runs already.
func (s *site) behindURL(t target, logger *slog.Logger) (segno.Upstream, error) {
	h, err := headers(t.header, s.getenv)
	if err != nil {
		return nil, err
	}
	up, err := segno.Remote(segno.RemoteOptions{
		URL: t.url, Header: h, UserAgent: "segno/" + version(), MaxMessage: int(s.settings.MaxMessage),
		Proxy: upstream.Proxies(s.getenv), Logger: logger, Trace: counted{s.meter},
	})
	if err != nil {
		return nil, config.Faultf("segno serve [flags] URL, such as: segno serve http://localhost:3000/mcp", "%v", err)
	}
	return up, nil
}

// counted counts what comes from a server behind a URL.
type counted struct{ meter *telemetry.Meter }

func (c counted) Event(e upstream.Event) {
	if e.Duplicate {
		c.meter.Add(telemetry.DuplicatesDropped, "", 1)
		return
	}
	c.meter.Add(telemetry.EventsReceived, "", 1)
}

func (counted) Reconnect(upstream.Reconnect) {}
func (counted) Gap(upstream.Gap)             {}
