package admin

import (
	"strings"
	"testing"
	"time"
)

func codes(findings []Finding) (all []string) {
	for _, f := range findings {
		all = append(all, f.Code)
	}
	return all
}

func TestDiagnosisTellsDesignFromCapacity(t *testing.T) {
	type results = map[string]float64
	for _, c := range []struct {
		name    string
		n       Numbers
		fullest float64
		shared  bool
		want    []string
	}{
		{"nothing yet", Numbers{}, 0, false, []string{"few"}},
		{"all well", Numbers{Resumes: results{"exact": 90, "current": 10}}, .9, false, []string{"hits"}},
		{"low hit rate, buffers have room", Numbers{Resumes: results{"exact": 50, "unknown": 50}}, .1, false, []string{"hits", "routing"}},
		{"low hit rate, much evicted", Numbers{Resumes: results{"exact": 50, "evicted": 50}, Evicted: 9000}, 1, false, []string{"hits", "window"}},
		{"foreign, no shared store", Numbers{Resumes: results{"exact": 50, "unknown": 50}, Foreign: 50}, .1, false, []string{"hits", "routing", "affinity"}},
		{"foreign, shared store", Numbers{Resumes: results{"exact": 100}, Foreign: 50}, .1, true, []string{"hits"}},
		{"restored store", Numbers{Resumes: results{"exact": 50, "diverged": 50}}, .1, false, []string{"hits", "store"}},
		{"dropped streams", Numbers{Resumes: results{"exact": 50, "gone": 50}}, .1, false, []string{"hits", "gone"}},
		{"unknown while full", Numbers{Resumes: results{"unknown": 50}}, 1, false, []string{"hits", "routing"}},
		{"of everything a third", Numbers{Resumes: results{"unknown": 20, "gone": 20, "diverged": 20}}, 1, false, []string{"hits", "mixed"}},
		{"few misses are no fault", Numbers{Resumes: results{"exact": 99, "unknown": 1}, Evicted: 1}, 0, false, []string{"hits"}},
		{"slow readers", Numbers{Resumes: results{"exact": 100}, Slow: 3}, 0, false, []string{"hits", "slow"}},
	} {
		got := Diagnose(c.n, c.fullest, c.shared)
		if len(codes(got)) != len(c.want) {
			t.Errorf("%s: %v, want %v", c.name, codes(got), c.want)
			continue
		}
		for i, code := range codes(got) {
			if code != c.want[i] {
				t.Errorf("%s: %v, want %v", c.name, codes(got), c.want)
			}
		}
	}
}

// TestRoomInTheBuffersDecides is about what is advised, and said.
func TestRoomInTheBuffersDecides(t *testing.T) {
	evicted := Numbers{Resumes: map[string]float64{"evicted": 50}, Evicted: 100}
	if got := Diagnose(evicted, 1, false)[1].Action; !strings.Contains(got, "--retain-events") {
		t.Errorf("full streams: %q", got)
	}
	if got := Diagnose(evicted, .1, false)[1].Action; !strings.Contains(got, "--retain-age") {
		t.Errorf("streams with room: %q", got)
	}
	unknown := Numbers{Resumes: map[string]float64{"unknown": 50}}
	if got := Diagnose(unknown, .1, false)[1].Text; !strings.Contains(got, "room") {
		t.Errorf("unknown with room: %q", got)
	}
	if got := Diagnose(unknown, 1, false)[1].Text; strings.Contains(got, "room") {
		t.Errorf("unknown without room: %q", got)
	}
}

func TestHistoryForgetsOldFaults(t *testing.T) {
	start := time.Unix(0, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	count := func(n float64) Numbers { return Numbers{Resumes: map[string]float64{"unknown": n}, Evicted: n} }
	var h history
	for _, c := range []struct {
		look  time.Duration
		n     float64
		want  float64
		since time.Duration
	}{
		{time.Minute, 100, 100, 0},
		{10 * time.Minute, 100, 100, 0},
		{15 * time.Minute, 100, 100, 0},
		{16 * time.Minute, 101, 1, time.Minute},
		{26 * time.Minute, 102, 2, 10 * time.Minute},
		{8 * time.Hour, 110, 8, 26 * time.Minute},
		{8*time.Hour + time.Second, 110, 8, 26 * time.Minute},
	} {
		got, since := h.since(at(c.look), start, count(c.n))
		if got.Resumes["unknown"] != c.want || got.Evicted != c.want || !since.Equal(at(c.since)) {
			t.Errorf("after %v: %v since %v, want %v since %v", c.look, got.Resumes["unknown"], since.Sub(start), c.want, c.since)
		}
	}
	if len(h.samples) > 5 {
		t.Errorf("%d samples are kept", len(h.samples))
	}
}
