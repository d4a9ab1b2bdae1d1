package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/report"
)

const (
	p50 = "p50 µs"
	p99 = "p99 µs"
)

// echoTrial: one client, one call after the other.
func echoTrial() trial {
	const calls = 3000
	return trial{
		name:    "latency-call",
		title:   "time of one echo call, nothing else running",
		figures: []string{p50, p99},
		notes:   []string{"What a gateway adds is its figure minus that of stdio."},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			s, err := t.dial()
			if err != nil {
				return nil, err
			}
			defer s.Close()
			return timed(s, calls)
		},
	}
}

func timed(s client.Session, calls int) (report.Sample, error) {
	took := make([]time.Duration, 0, calls)
	for i := range calls + calls/10 {
		begun := time.Now()
		if err := echo(s); err != nil {
			return nil, err
		}
		if i >= calls/10 { // the first ones warm up
			took = append(took, time.Since(begun))
		}
	}
	return spread(took), nil
}

// tickTrial: a progress event every millisecond, each on its own.
func tickTrial() trial {
	const events, every = 2000, 1000
	return trial{
		name:    "latency-event",
		title:   "time of one progress event from the tool's write to the client's read, 1,000 events/s",
		figures: []string{p50, p99, lost},
		skip:    []string{"bare handler"},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			s, err := t.dial()
			if err != nil {
				return nil, err
			}
			defer s.Close()
			var stamps client.Stamps
			args := fmt.Sprintf(`{"n":%d,"every_us":%d}`, events, every)
			if err := s.Call("tick", args, true, stamps.Feed); err != nil {
				return nil, err
			}
			if len(stamps.Took) <= events/2 {
				return nil, fmt.Errorf("%d events of %d came", len(stamps.Took), events)
			}
			sample := spread(stamps.Took[events/10:])
			sample[lost] = float64(events - len(stamps.Took))
			return sample, nil
		},
	}
}

func spread(took []time.Duration) report.Sample {
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))].Nanoseconds()) / 1000
	}
	return report.Sample{p50: at(0.50), p99: at(0.99)}
}
