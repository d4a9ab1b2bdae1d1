package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/report"
)

const (
	resumed  = 10_000
	resumeMS = "ms"
)

// resumeTrial: a client comes back to a call that ended, with the cursor it got first.
func resumeTrial() trial {
	return trial{
		name:    "resume",
		title:   fmt.Sprintf("time to get %d events of %d bytes again, from the GET to the last event", resumed, eventBytes),
		figures: []string{resumeMS, lost},
		need:    need{deep: true},
		skip:    []string{"stdio", "bare relay", "bare handler"}, // they store nothing
		notes:   []string{"The median of ten resumes in each round. http.FileServer sends the same bytes as one file."},
		run: func(_ context.Context, t *target) (report.Sample, error) {
			if t.static {
				return again(func() (time.Duration, int, error) { return fetchFile(t.addr) })
			}
			s, err := client.Dial(t.addr)
			if err != nil {
				return nil, err
			}
			defer s.Close()
			tally, _, err := drain(s, resumed)
			if err == nil && tally.FirstID == "" {
				err = errors.New("events have no id")
			}
			if err != nil {
				return nil, err
			}
			return again(func() (time.Duration, int, error) { return replay(s, tally.FirstID) })
		},
	}
}

// again takes the median time of a few fetches, and the most events one lost.
func again(once func() (time.Duration, int, error)) (report.Sample, error) {
	const times = 10
	var took []time.Duration
	most := 0
	for range times {
		d, missing, err := once()
		if err != nil {
			return nil, err
		}
		took, most = append(took, d), max(most, missing)
	}
	return report.Sample{resumeMS: spread(took)[p50] / 1000, lost: float64(most)}, nil
}

// replay resumes on a connection of its own: a server may leave it open.
func replay(s *client.HTTP, after string) (time.Duration, int, error) {
	c, err := s.Join(0)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	return fetch(c, after)
}

func fetchFile(addr string) (time.Duration, int, error) {
	c, err := client.At(addr)
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	return fetch(c, "")
}

func fetch(c *client.HTTP, after string) (took time.Duration, missing int, err error) {
	var tally client.Tally
	begun := time.Now()
	err = c.Resume(after, tally.Feed)
	took = time.Since(begun)
	if err == nil {
		err = tally.End(resumed)
	}
	return took, tally.Lost, err
}

func (f files) start(ctx context.Context, n need) (*target, error) {
	dir, err := os.MkdirTemp("", "segno-bench-")
	if err != nil {
		return nil, err
	}
	if err = writeFrames(dir, resumed, eventBytes); err == nil {
		var t *target
		if t, err = launch(ctx, self("files", dir)...); err == nil {
			t.static, t.tidy = true, func() { os.RemoveAll(dir) }
			return t, nil
		}
	}
	os.RemoveAll(dir)
	return nil, err
}
