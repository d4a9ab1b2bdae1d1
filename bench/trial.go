package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segno-mcp/segno/bench/machine"
	"github.com/segno-mcp/segno/bench/profile"
	"github.com/segno-mcp/segno/bench/report"
)

// trial is one measurement: what it asks of a subject, and how it takes one
// sample of a subject that was just started for it.
type trial struct {
	name    string
	title   string
	figures []string // columns; the first one is compared
	need    need
	skip    []string // subjects that have no place in it
	notes   []string
	run     func(ctx context.Context, t *target) (report.Sample, error)
}

// runner goes through the subjects in turn, round after round, so that what
// changes on the machine meanwhile meets all of them.
type runner struct {
	subjects []subject
	rounds   int
	quiet    time.Duration // how long to wait at most for a quiet machine
	long     time.Duration // how long a sample of a rate lasts
	profiles string        // folder for profiles of subjects that give them; empty: none
	log      io.Writer
}

func (r *runner) measure(ctx context.Context, t trial) *report.Measurement {
	m := &report.Measurement{Name: t.name, Title: t.title, Figures: t.figures, Notes: t.notes}
	out := map[string]bool{}
	for round := range r.rounds {
		for _, s := range r.subjects {
			if _, static := s.(files); static && t.name != "resume" {
				continue
			}
			if out[s.name()] || slices.Contains(t.skip, s.name()) || ctx.Err() != nil {
				continue
			}
			fmt.Fprintf(r.log, "\r\x1b[K%s %d/%d: %s", t.name, round+1, r.rounds, s.name())
			if err := r.sample(ctx, t, s, m); err != nil {
				m.Fail(s.name(), err)
				out[s.name()] = errors.As(err, &absent{})
			}
		}
	}
	fmt.Fprint(r.log, "\r\x1b[K")
	return m
}

func (r *runner) sample(ctx context.Context, t trial, s subject, m *report.Measurement) error {
	machine.Quiet(r.quiet)
	w := machine.Begin()
	on, err := s.start(ctx, t.need)
	if err != nil {
		return err
	}
	sample, err := r.run(ctx, t, s, on)
	on.stop()
	if err == nil {
		m.Add(s.name(), sample, w.Foreign())
	}
	return err
}

// run takes the sample, with a profile beside it if there is to be one.
func (r *runner) run(ctx context.Context, t trial, s subject, on *target) (report.Sample, error) {
	if r.profiles == "" || on.admin == "" {
		return t.run(ctx, on)
	}
	p, err := profile.Start(ctx, on.admin, r.profiles, t.name+"-"+s.name(), r.long)
	if err != nil {
		return nil, err
	}
	sample, err := t.run(ctx, on)
	return sample, errors.Join(err, p.End(ctx))
}

// trials are all measurements, in the order of the report.
// A sample of a rate lasts as long as it is told.
func trials(long time.Duration) []trial {
	return []trial{
		floodTrial(long), crowdTrial(long), flightTrial(long), echoTrial(), tickTrial(),
		idleTrial(), asleepTrial(), resumeTrial(), stallTrial(),
	}
}
