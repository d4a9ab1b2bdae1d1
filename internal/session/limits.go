package session

import (
	"cmp"
	"fmt"
	"time"
)

// Limits are the clocks and bounds of sessions. A zero field means its default;
// a negative duration means never.
type Limits struct {
	Grace        time.Duration // without a sign of life for so long, the child is stopped
	Keep         time.Duration // after that, the session is kept for so long
	RetainAge    time.Duration // after a stream's end, its progress is kept for so long
	Orphan       time.Duration // a running call nobody was connected to for so long is cancelled
	AskTimeout   time.Duration // a request of the server waits so long for an absent client
	Repost       time.Duration // a finished call answers the same request again for so long
	CallTimeout  time.Duration // a call may run so long; 0 means without end
	StartTimeout time.Duration // a child must have answered initialize by then
	WriteTimeout time.Duration // a reader that took nothing for so long has stalled

	RetainEvents int64 // kept of a stream, not counting what is pinned
	RetainBytes  int64
	SessionMax   int64 // bytes in the log of a session
	PrincipalMax int64 // of all sessions of a principal
	StoreMax     int64 // of the whole log
	HeldMax      int64 // of a child's output that the log has not taken yet

	Sessions             int // in memory, in all
	SessionsPerPrincipal int
	Children             int
	ChildrenPerPrincipal int
	MaxBatch             int // requests in a batch of 2025-03-26
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	l.Grace = cmp.Or(l.Grace, 5*time.Minute)
	l.Keep = cmp.Or(l.Keep, time.Hour)
	l.RetainAge = cmp.Or(l.RetainAge, 15*time.Minute)
	l.Orphan = cmp.Or(l.Orphan, time.Hour)
	l.AskTimeout = cmp.Or(l.AskTimeout, 10*time.Minute)
	l.Repost = cmp.Or(l.Repost, time.Minute)
	l.StartTimeout = cmp.Or(l.StartTimeout, time.Minute)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 30*time.Second)
	l.RetainEvents = cmp.Or(l.RetainEvents, 10000)
	l.RetainBytes = cmp.Or(l.RetainBytes, 16<<20)
	l.SessionMax = cmp.Or(l.SessionMax, 256<<20)
	l.PrincipalMax = cmp.Or(l.PrincipalMax, 1<<30)
	l.StoreMax = cmp.Or(l.StoreMax, 4<<30)
	l.HeldMax = cmp.Or(l.HeldMax, 8<<20)
	l.Sessions = cmp.Or(l.Sessions, 10000)
	l.SessionsPerPrincipal = cmp.Or(l.SessionsPerPrincipal, 1000)
	l.Children = cmp.Or(l.Children, 256)
	l.ChildrenPerPrincipal = cmp.Or(l.ChildrenPerPrincipal, 128)
	l.MaxBatch = cmp.Or(l.MaxBatch, 100)
	return l
}

// Check refuses limits that contradict each other.
func (l Limits) Check() error {
	if l.Keep >= 0 && l.Keep < l.RetainAge {
		return fmt.Errorf("keep (%v) must not be shorter than retain-age (%v): a session would end before its streams do", l.Keep, l.RetainAge)
	}
	return nil
}

// Refusal is a request that was refused and not executed. In a live session it
// is answered in-band: error -32000 with data {limit, retryAfterMs}.
type Refusal struct {
	Limit      string // the name of the flag that was reached
	Message    string
	RetryAfter time.Duration
	Detail     string // what the server last said, if that helps
}

func (r *Refusal) Error() string { return r.Message }

func refuse(limit string, after time.Duration, format string, a ...any) *Refusal {
	return &Refusal{Limit: limit, Message: fmt.Sprintf(format, a...), RetryAfter: after}
}
