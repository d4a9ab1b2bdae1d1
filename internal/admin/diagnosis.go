package admin

import (
	"fmt"
	"sync"
	"time"
)

// Numbers are counts over some time.
type Numbers struct {
	Resumes map[string]float64 // by result
	Evicted float64            // events that retention removed
	Foreign float64            // resumes of sessions of another instance
	Slow    float64            // readers that retention overtook
}

// Diagnosis is what the numbers since a time mean.
type Diagnosis struct {
	Since    time.Time `json:"since"`
	Findings []Finding `json:"findings"`
}

// Finding is one conclusion, and what to do about it.
type Finding struct {
	Level  string `json:"level"` // ok, info, warning
	Code   string `json:"code"`
	Text   string `json:"text"`
	Action string `json:"action,omitempty"`
}

// What counts as few, as low, as much.
const (
	fewResumes  = 10
	goodHitRate = 0.95
	room        = 0.5  // of what a stream may hold
	muchForeign = 0.05 // of all resumes
)

// Diagnose tells a fault of the design from one of capacity. A cursor that is
// not known was never made here, or its session is elsewhere: ids or routing
// are wrong, all the more if the buffers have room. One that is known and whose
// events went is a window too small: in time if there is room, else in size.
func Diagnose(n Numbers, fullest float64, shared bool) []Finding {
	all := 0.0
	for _, v := range n.Resumes {
		all += v
	}
	if all < fewResumes {
		return []Finding{{Level: "info", Code: "few", Text: fmt.Sprintf("%.0f resumes: too few to judge.", all)}}
	}
	hits := n.Resumes["exact"] + n.Resumes["current"]
	found := misses(n, all-hits, fullest)
	if hits/all >= goodHitRate {
		found = nil
	}
	found = append(found, others(n, all, shared)...)
	rate := Finding{Level: "ok", Code: "hits", Text: fmt.Sprintf("%.0f of %.0f resumes (%.0f %%) found everything after their place.", hits, all, 100*hits/all)}
	if hits/all < goodHitRate {
		rate.Level = "warning"
	}
	return append([]Finding{rate}, found...)
}

// misses says why resumes found less than everything. The commonest result
// decides.
func misses(n Numbers, missed, fullest float64) []Finding {
	unknown := n.Resumes["unknown"] + n.Resumes["dead"] + n.Resumes["other"]
	switch most := missed / 2; {
	case n.Resumes["evicted"] >= most:
		action := "Raise --retain-events or --retain-bytes."
		if fullest < room {
			action = "Raise --retain-age: the streams have room, so it was their time that was over."
		}
		return []Finding{{Level: "warning", Code: "window", Action: action,
			Text: fmt.Sprintf("The window is too small: %.0f resumes came after their events had gone, %.0f events were removed.", n.Resumes["evicted"], n.Evicted)}}
	case unknown >= most:
		text := "%.0f resumes had a cursor that is not known here."
		if fullest < room {
			text = "%.0f resumes had a cursor that is not known here, though the buffers have room."
		}
		return []Finding{{Level: "warning", Code: "routing", Text: fmt.Sprintf(text, unknown),
			Action: "Look at whether clients send back the ids they got, and whether requests reach the instance or the store that made them."}}
	case n.Resumes["diverged"] >= most:
		return []Finding{{Level: "warning", Code: "store",
			Text:   fmt.Sprintf("%.0f resumes were beyond what the store holds: it lost events, or was restored from an older state.", n.Resumes["diverged"]),
			Action: "Look at the store's disk, its --sync and where it was restored from."}}
	case n.Resumes["gone"] >= most:
		return []Finding{{Level: "warning", Code: "gone",
			Text:   fmt.Sprintf("%.0f resumes came after their stream had been dropped.", n.Resumes["gone"]),
			Action: "Raise --session-max, --principal-max or --store-max."}}
	}
	return []Finding{{Level: "warning", Code: "mixed", Text: "Resumes miss for several reasons; none is the most of them."}}
}

func others(n Numbers, all float64, shared bool) (found []Finding) {
	if !shared && n.Foreign/all >= muchForeign {
		found = append(found, Finding{Level: "warning", Code: "affinity",
			Text:   fmt.Sprintf("%.0f of %.0f resumes were for sessions of another instance, and the store is not shared.", n.Foreign, all),
			Action: "Route by the Mcp-Session-Id header, so that a session stays with its instance."})
	}
	if n.Slow > 0 {
		found = append(found, Finding{Level: "info", Code: "slow",
			Text:   fmt.Sprintf("%.0f times a connection took nothing for so long that it lost its place in the window.", n.Slow),
			Action: "Look for proxies that hold streams back; --rotate ends old connections."})
	}
	return found
}

// history remembers the counts of the last quarter of an hour, as often as
// somebody looked, so that an old fault does not cover what happens now.
type history struct {
	mu      sync.Mutex
	samples []sample
}

type sample struct {
	at time.Time
	n  Numbers
}

const (
	span  = 15 * time.Minute
	apart = 10 * time.Second
)

// since returns what was counted since the last look that is old enough, and
// when that was: the start, if nobody looked before.
func (h *history) since(now, start time.Time, n Numbers) (Numbers, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.samples) > 1 && now.Sub(h.samples[1].at) >= span {
		h.samples = h.samples[1:]
	}
	base := sample{at: start}
	if len(h.samples) > 0 && now.Sub(h.samples[0].at) >= span {
		base = h.samples[0]
	}
	if last := len(h.samples) - 1; last < 0 || now.Sub(h.samples[last].at) >= apart {
		h.samples = append(h.samples, sample{at: now, n: n})
	}
	return n.less(base.n), base.at
}

func (n Numbers) less(old Numbers) Numbers {
	d := Numbers{Resumes: map[string]float64{}, Evicted: n.Evicted - old.Evicted, Foreign: n.Foreign - old.Foreign, Slow: n.Slow - old.Slow}
	for k, v := range n.Resumes {
		d.Resumes[k] = v - old.Resumes[k]
	}
	return d
}
