// Package demo tells the story that Segno is for, with real sockets: a tool
// call reports its progress, the network breaks, the client connects again, and
// every event is accounted for. It can tell it without Segno too.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Options say what is told and where. Zero values mean the defaults named.
type Options struct {
	// URL is the endpoint of a running Segno that stands in front of the
	// example server. Not needed WithoutSegno.
	URL    string
	Header http.Header // sent with every request, for keys

	// WithoutSegno has a server answer that keeps nothing of what it sent.
	WithoutSegno bool

	Out   io.Writer // where the timeline goes
	Color bool      // with terminal colours

	Rows     int           // to export: 40
	Interval time.Duration // between two rows, in whole milliseconds: 150 ms
	Outage   time.Duration // how long the network is away: 1 s

	retry    time.Duration // the client's wait if the server names none
	patience time.Duration // for the outcome, after it was due
}

// Report is what the client counted.
type Report struct {
	Connections int  // that the call's events came over
	Events      int  // with content, the outcome included
	Duplicates  int  // events whose id or row came before
	Missing     int  // rows that no event told of
	Backwards   int  // rows that came after a later one
	Gaps        int  // gap notices
	Outcome     bool // the call was answered
	Checksums   bool // each report's checksum is that of all rows up to it
	Rows        bool // the rows, read afterwards, have the outcome's checksum
}

// Exact tells whether nothing was lost, repeated, or out of order.
func (r *Report) Exact() bool {
	return r.Outcome && r.Checksums && r.Rows && r.Duplicates+r.Missing+r.Backwards+r.Gaps == 0
}

// Where in the export the connection is cut.
const cutPercent = 30

func (o Options) withDefaults() Options {
	if o.Rows <= 0 {
		o.Rows = 40
	}
	if o.Interval <= 0 {
		o.Interval = 150 * time.Millisecond
	}
	if o.Outage <= 0 {
		o.Outage = time.Second
	}
	if o.retry <= 0 {
		o.retry = defaultRetry
	}
	if o.patience <= 0 {
		o.patience = 20 * time.Second
		if o.WithoutSegno { // it may never come
			o.patience = 5 * time.Second
		}
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	return o
}

// Run tells the story and returns what was counted. The error says that it
// could not be told, or that with Segno something was lost or came twice.
// It takes rows times interval and a little more.
func Run(ctx context.Context, o Options) (Report, error) {
	o = o.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Rows)*o.Interval+o.Outage+o.retry+o.patience)
	defer cancel()
	if o.WithoutSegno {
		server, err := startForgetful(ctx)
		if err != nil {
			return Report{}, err
		}
		defer server.close()
		o.URL = server.url
	}
	wire, err := newRelay(o.URL)
	if err != nil {
		return Report{}, err
	}
	defer wire.close()
	s := newStory(&o, wire)
	if err := s.tell(ctx); err != nil {
		return s.count.report, err
	}
	if !o.WithoutSegno && !s.count.report.Exact() {
		return s.count.report, errors.New("telling the story: the client did not get everything exactly once")
	}
	return s.count.report, nil
}

// story is one telling.
type story struct {
	opt    *Options
	wire   *relay
	client *client
	lines  *timeline
	count  *account
	cut    bool
}

func newStory(o *Options, wire *relay) *story {
	return &story{
		opt: o, wire: wire,
		client: newClient(wire.url, o),
		lines:  newTimeline(o),
		count:  newAccount(o.Rows),
	}
}

func (s *story) tell(ctx context.Context) error {
	defer s.client.close()
	s.lines.title(s.opt)
	if err := s.client.initialize(ctx); err != nil {
		return fmt.Errorf("connecting to the server: %w", err)
	}
	s.lines.began()
	out, err := s.client.call(ctx, "export", exportArguments{s.opt.Rows, s.opt.Interval.Milliseconds()}, s)
	if err != nil {
		s.lines.lost(err)
	} else if err := s.fetch(ctx, out); err != nil {
		return err
	}
	s.count.finish()
	s.lines.summary(s.count, s.opt)
	if err != nil && !s.opt.WithoutSegno {
		return fmt.Errorf("calling the tool: %w", err)
	}
	return nil
}

type exportArguments struct {
	Rows       int   `json:"rows"`
	IntervalMS int64 `json:"interval_ms"`
}

// connected is told of each connection that the call's events may come over.
func (s *story) connected(n int, method, lastEventID string) {
	s.count.report.Connections = n
	s.lines.connected(n, method, lastEventID)
}

// arrived takes one event. The network breaks as soon as the client has seen
// its share.
func (s *story) arrived(a arrival) {
	s.count.add(&a)
	s.lines.arrived(&a)
	if !s.cut && a.progress != nil && int(a.progress.Progress)*100 >= cutPercent*s.opt.Rows {
		s.cut = true
		s.lines.cut(s.opt.Outage)
		s.wire.cut(s.opt.Outage)
	}
}

// broke is told why a connection ended, and how long the client waits.
func (s *story) broke(n int, err error, wait time.Duration) { s.lines.broke(n, err, wait) }

// fetch reads the rows apart from the call and compares.
func (s *story) fetch(ctx context.Context, out *outcome) error {
	s.count.report.Outcome = true
	s.count.checksum = out.Checksum
	if out.URI == "" {
		return nil
	}
	text, err := s.client.read(ctx, out.URI)
	if err != nil {
		return fmt.Errorf("reading %s: %w", out.URI, err)
	}
	s.count.fetched(out.URI, text)
	return nil
}
