package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/machine"
	"github.com/segno-mcp/segno/bench/report"
)

const (
	stalledEvents = 5_000_000 // 1 GB
	stalledFor    = 10 * time.Second
	readFor       = 3 * time.Second
	peakMB        = "MB more than for a reader"
	readMB        = "MB for a reader"
)

// stallTrial: a client asks for 1 GB of events and reads none of them.
func stallTrial() trial {
	return trial{
		name:    "stalled-reader",
		title:   "a client that reads nothing of a 1 GB stream for 10 s, and a call every ms in another session",
		figures: []string{p50, p99, peakMB, readMB},
		skip:    []string{"stdio"},
		notes: []string{
			"Memory is the gateway's highest: while a client reads such a stream for 3 s above what it had before, and while one stalls above that.",
			"The times are those of the other session's calls. A relay holds its tool up instead of using memory.",
		},
		run: func(_ context.Context, t *target) (report.Sample, error) { return stall(t) },
	}
}

func stall(t *target) (report.Sample, error) {
	slow, err := client.Dial(t.addr)
	if err != nil {
		return nil, err
	}
	defer slow.Close()
	other, err := client.Dial(t.addr)
	if err != nil {
		return nil, err
	}
	defer other.Close()
	if _, err := timed(other, 500); err != nil {
		return nil, err
	}
	read, err := readAlong(t)
	if err != nil {
		return nil, err
	}
	if err := machine.ResetPeak(t.pid); err != nil {
		return nil, err
	}
	if err := slow.Post("flood", floodArgs(stalledEvents)); err != nil {
		return nil, err
	}
	sample, err := paced(other, stalledFor)
	if err != nil {
		return nil, fmt.Errorf("in the other session: %w", err)
	}
	_, peak := machine.Memory(t.pid)
	sample[readMB] = float64(read.peak-read.before) / 1e6
	sample[peakMB] = float64(peak-read.peak) / 1e6
	return sample, nil
}

type reading struct{ before, peak int64 }

// readAlong is what a stream costs whose client reads it.
func readAlong(t *target) (r reading, err error) {
	if err = machine.ResetPeak(t.pid); err != nil {
		return r, errors.Join(absent{"this system does not tell a process's highest memory"}, err)
	}
	r.before, _ = machine.Memory(t.pid)
	s, err := client.Dial(t.addr)
	if err != nil {
		return r, err
	}
	defer s.Close()
	n, err := calibrate(s, readFor)
	if err == nil {
		_, _, err = drain(s, n)
	}
	_, r.peak = machine.Memory(t.pid)
	return r, err
}

// paced calls once a millisecond and tells how long the calls took.
func paced(s client.Session, long time.Duration) (report.Sample, error) {
	var took []time.Duration
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); {
		<-pace.C
		begun := time.Now()
		if err := echo(s); err != nil {
			return nil, err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return spread(took), nil
}
