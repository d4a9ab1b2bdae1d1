package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/machine"
	"github.com/segno-mcp/segno/bench/report"
)

const (
	eventBytes = 200
	floodMost  = 50_000_000
)

const (
	perSecond = "events/s"
	cpuEvent  = "gateway CPU µs/event"
	lost      = "lost"
	told      = "told as lost"
)

// floodTrial: one call that reports as fast as the tool can write.
func floodTrial(long time.Duration) trial {
	return trial{
		name:    "events",
		title:   fmt.Sprintf("progress events of %d bytes from one call to one client", eventBytes),
		figures: []string{perSecond, cpuEvent, lost, told},
		need:    need{ahead: true},
		notes: []string{
			"The tool outruns every reader, so Segno runs with --session-max 8GiB: what waits for the reader is kept, not told as lost.",
		},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			s, err := t.dial()
			if err != nil {
				return nil, err
			}
			defer s.Close()
			n, err := calibrate(s, long)
			if err != nil {
				return nil, err
			}
			return floodOnce(s, n, t.pid)
		},
	}
}

// calibrate finds how many events last about so long, and warms up.
func calibrate(s client.Session, long time.Duration) (int, error) {
	for n := 2000; ; {
		_, took, err := drain(s, n)
		if err != nil {
			return 0, err
		}
		want := int(float64(n) * float64(long) / float64(took))
		if took > long/10 || n >= floodMost {
			return min(floodMost, want), nil
		}
		n = min(floodMost, 10*n, want)
	}
}

func floodOnce(s client.Session, n, pid int) (report.Sample, error) {
	before := machine.CPU(pid)
	tally, took, err := drain(s, n)
	if err != nil {
		return nil, err
	}
	sample := report.Sample{
		perSecond: float64(tally.Events) / took.Seconds(),
		lost:      float64(tally.Lost),
		told:      float64(tally.Told),
	}
	if pid != 0 && machine.Known() {
		sample[cpuEvent] = float64((machine.CPU(pid) - before).Microseconds()) / float64(n)
	}
	return sample, nil
}

// drain calls flood and reads the answer to its end.
func drain(s client.Session, n int) (*client.Tally, time.Duration, error) {
	tally := &client.Tally{}
	begun := time.Now()
	err := s.Call("flood", floodArgs(n), true, func(b []byte) bool {
		tally.Feed(b)
		return true
	})
	took := time.Since(begun)
	if err == nil {
		err = tally.End(n)
	}
	return tally, took, err
}

func floodArgs(n int) string { return fmt.Sprintf(`{"n":%d,"bytes":%d}`, n, eventBytes) }
