package remote

import (
	"log/slog"
	"sync"
)

// Record keeps what a client should watch of its streams: it is a Trace. The
// lists hold the newest entries, the counters everything. Use NewRecord.
type Record struct {
	mu     sync.Mutex
	events []Event
	back   []Reconnect
	gaps   []Gap
	sums   Sums
}

// Sums are what a Record counted.
type Sums struct {
	Events     int // that arrived, without the dropped ones
	Duplicates int // dropped
	Reconnects int // attempts to resume
	Empty      int // of those, how many brought no event though the call ran
	Gaps       int
	Lost       uint64 // events in them, as far as that was told
}

// recordMax is how many entries each list of a Record holds.
const recordMax = 10000

// NewRecord makes an empty one.
func NewRecord() *Record { return &Record{} }

func keep[T any](list []T, one T) []T {
	if len(list) >= 2*recordMax {
		list = append(list[:0], list[recordMax:]...)
	}
	return append(list, one)
}

// Event is a part of Trace.
func (r *Record) Event(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = keep(r.events, e)
	if e.Duplicate {
		r.sums.Duplicates++
		return
	}
	r.sums.Events++
}

// Reconnect is a part of Trace.
func (r *Record) Reconnect(one Reconnect) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = keep(r.back, one)
	r.sums.Reconnects++
	if one.Events == 0 && one.Running {
		r.sums.Empty++
	}
}

// Gap is a part of Trace.
func (r *Record) Gap(g Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps = keep(r.gaps, g)
	r.sums.Gaps++
	r.sums.Lost += g.Lost
}

// Sums are the counters as they are now.
func (r *Record) Sums() Sums {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sums
}

// Events, Reconnects and Gaps are the newest ones, in order.
func (r *Record) Events() []Event { return listOf(r, &r.events) }

// Reconnects are the newest ones, in order.
func (r *Record) Reconnects() []Reconnect { return listOf(r, &r.back) }

// Gaps are the newest ones, in order.
func (r *Record) Gaps() []Gap { return listOf(r, &r.gaps) }

func listOf[T any](r *Record, from *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]T(nil), *from...)
}

// LogValue is the counters, for a log line.
func (s Sums) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("events", s.Events), slog.Int("duplicates", s.Duplicates), slog.Int("reconnects", s.Reconnects),
		slog.Int("empty_reconnects", s.Empty), slog.Int("gaps", s.Gaps), slog.Uint64("lost", s.Lost))
}
