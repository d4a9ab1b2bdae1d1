package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/machine"
	"github.com/segno-mcp/segno/bench/report"
)

const (
	callers  = 32
	echoArgs = `{"text":"hello"}`
)

const (
	callsPerSecond = "calls/s"
	cpuCall        = "gateway CPU µs/call"
)

// crowdTrial: clients that each have a session and a child of their own.
func crowdTrial(long time.Duration) trial {
	return trial{
		name:    "calls",
		title:   fmt.Sprintf("echo calls, %d sessions, one call at a time in each", callers),
		figures: []string{callsPerSecond, cpuCall},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			return callRate(t.pid, long, func(int) (client.Session, error) { return t.dial() })
		},
	}
}

// flightTrial: one session with many calls in flight.
func flightTrial(long time.Duration) trial {
	return trial{
		name:    "calls-in-one",
		title:   fmt.Sprintf("echo calls, one session, %d in flight", callers),
		figures: []string{callsPerSecond, cpuCall},
		skip:    []string{"stdio"}, // one pipe has no connections to share
		run: func(_ context.Context, t *target) (report.Sample, error) {
			first, err := client.Dial(t.addr)
			if err != nil {
				return nil, err
			}
			defer first.Close()
			const apart = 10_000_000 // ids of the callers do not meet
			return callRate(t.pid, long, func(i int) (client.Session, error) { return first.Join((i + 1) * apart) })
		},
	}
}

func callRate(pid int, long time.Duration, open func(i int) (client.Session, error)) (report.Sample, error) {
	sessions := make([]client.Session, callers)
	for i := range sessions {
		s, err := open(i)
		if err != nil {
			return nil, err
		}
		defer s.Close()
		sessions[i] = s
	}
	if _, err := callAll(sessions, long/10); err != nil {
		return nil, err
	}
	before, begun := machine.CPU(pid), time.Now()
	n, err := callAll(sessions, long)
	if err != nil {
		return nil, err
	}
	sample := report.Sample{callsPerSecond: float64(n) / time.Since(begun).Seconds()}
	if pid != 0 && machine.Known() {
		sample[cpuCall] = float64((machine.CPU(pid) - before).Microseconds()) / float64(n)
	}
	return sample, nil
}

// callAll lets each session call in a loop and returns how many calls were answered.
func callAll(sessions []client.Session, long time.Duration) (int64, error) {
	var (
		n      atomic.Int64
		wg     sync.WaitGroup
		end    = time.Now().Add(long)
		failed = make(chan error, len(sessions))
	)
	for _, s := range sessions {
		wg.Go(func() {
			for time.Now().Before(end) {
				if err := echo(s); err != nil {
					failed <- err
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return 0, err
	default:
		return n.Load(), nil
	}
}

// echo makes one call and checks that a result came.
func echo(s client.Session) error {
	var answer client.Tally
	err := s.Call("echo", echoArgs, false, func(b []byte) bool {
		answer.Feed(b)
		return true
	})
	if err == nil {
		err = answer.End(0)
	}
	return err
}
