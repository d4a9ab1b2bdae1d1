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
	crowd     = 5000
	perStream = "KB/connection"
	perIdle   = "KB/session"
	settle    = 3 * time.Second
)

// idleTrial: sessions that each hold an SSE connection on which nothing happens.
func idleTrial() trial {
	return trial{
		name:    "memory-idle",
		title:   fmt.Sprintf("memory of the gateway for %d sessions, each with an idle SSE connection", crowd),
		figures: []string{perStream, perIdle},
		need:    need{crowd: true},
		skip:    []string{"stdio", "bare relay"}, // no gateway; a child for each session
		notes: []string{
			"Resident memory of the gateway alone, before and after; KB/session is what a session took whose client is not connected.",
			"Segno runs with --process shared, so that no child belongs to a session.",
		},
		run: func(_ context.Context, t *target) (report.Sample, error) { return idleMemory(t) },
	}
}

func idleMemory(t *target) (report.Sample, error) {
	if err := warm(t); err != nil {
		return nil, err
	}
	start := resident(t.pid)
	sessions, err := openAll(t.addr)
	if err != nil {
		return nil, err
	}
	idle := resident(t.pid)
	for i, s := range sessions {
		c, err := s.Join(0)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		if err := c.Listen(); err != nil {
			return nil, fmt.Errorf("opening stream %d: %w", i, err)
		}
	}
	full := resident(t.pid)
	const kb = 1000 * crowd
	return report.Sample{perStream: float64(full-idle) / kb, perIdle: float64(idle-start) / kb}, nil
}

// asleepTrial: sessions without a connection and without a child of their own.
func asleepTrial() trial {
	return trial{
		name:    "memory-asleep",
		title:   fmt.Sprintf("memory of the gateway for %d sessions whose clients are gone and whose children are stopped", crowd),
		figures: []string{perIdle},
		need:    need{crowd: true, asleep: true},
		skip:    []string{"stdio", "bare relay", "bare handler"},
		notes:   []string{"Segno runs with --grace 1s; the others keep what they keep."},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			if err := warm(t); err != nil {
				return nil, err
			}
			start := resident(t.pid)
			if _, err := openAll(t.addr); err != nil {
				return nil, err
			}
			return report.Sample{perIdle: float64(resident(t.pid)-start) / (1000 * crowd)}, nil
		},
	}
}

// warm lets a few sessions come and go, so that what is allocated once is there.
func warm(t *target) error {
	for range 50 {
		s, err := client.Dial(t.addr)
		if err != nil {
			return err
		}
		if err := s.Listen(); err != nil {
			return err
		}
		s.Close()
	}
	return nil
}

// openAll opens the sessions one after the other and ends each one's
// connection, so that what they take is the sessions' alone.
func openAll(addr string) ([]*client.HTTP, error) {
	sessions := make([]*client.HTTP, 0, crowd)
	for i := range crowd {
		s, err := client.Dial(addr)
		if err != nil {
			return nil, fmt.Errorf("opening session %d: %w", i, err)
		}
		s.Close()
		sessions = append(sessions, s)
	}
	return sessions, nil
}

// resident is the memory after the process had time to come to rest.
func resident(pid int) int64 {
	time.Sleep(settle)
	now, _ := machine.Memory(pid)
	return now
}
