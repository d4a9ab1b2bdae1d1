package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/session"
)

// View is a Source that reads a log. Without Live it shows what a stopped Segno
// left behind.
type View struct {
	Log  eventlog.Log
	Live func() map[string]session.Vitals // by the session's name in the log; nil: nothing runs
	Why  func() error                     // why no new work is taken; nil: it is
}

var _ Source = (*View)(nil)

// maxStreams bounds the streams shown of one session.
const maxStreams = 200

// Ready asks the log for anything at all, and whoever else may object.
func (v *View) Ready(ctx context.Context) error {
	if _, err := v.Log.Sessions(ctx, "", 1); err != nil {
		return fmt.Errorf("the store does not answer: %w", err)
	}
	// A log may know more of its health than that it can be read.
	if h, ok := v.Log.(interface{ Healthy() error }); ok {
		if err := h.Healthy(); err != nil {
			return fmt.Errorf("the store takes nothing: %w", err)
		}
	}
	if v.Why != nil {
		return v.Why()
	}
	return nil
}

// Sessions lists live sessions by their last sign of life, then others.
func (v *View) Sessions(ctx context.Context, max int) (sessions []Session, more bool, err error) {
	live := v.live()
	names := make([]string, 0, len(live))
	for name := range live {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return live[b].Seen.Compare(live[a].Seen) })
	err = v.names(ctx, func(name string) bool {
		if _, ok := live[name]; !ok {
			names = append(names, name)
		}
		return len(names) <= max
	})
	if err != nil {
		return nil, false, err
	}
	for _, name := range names[:min(max, len(names))] {
		l, ok := live[name]
		s, err := v.session(ctx, name, l)
		if errors.Is(err, eventlog.ErrNoSession) {
			continue // it ended meanwhile
		}
		if err != nil {
			return nil, false, err
		}
		s.Live = ok
		sessions = append(sessions, *s)
	}
	return sessions, len(names) > max, nil
}

func (v *View) live() map[string]session.Vitals {
	if v.Live == nil {
		return nil
	}
	return v.Live()
}

// Session finds a session by its public id.
func (v *View) Session(ctx context.Context, public string) (*Session, error) {
	var found *Session
	var fault error
	live := v.live()
	err := v.names(ctx, func(name string) bool {
		r, err := v.record(ctx, name)
		if err != nil || r.Public != public {
			return true
		}
		l, ok := live[name]
		if found, fault = v.session(ctx, name, l); found != nil {
			found.Live = ok
		}
		return false
	})
	if err = errors.Join(err, fault); err == nil && found == nil {
		err = eventlog.ErrNoSession
	}
	return found, err
}

// names yields the names of all sessions in the log until yield says no.
func (v *View) names(ctx context.Context, yield func(string) bool) error {
	for after := ""; ; {
		names, err := v.Log.Sessions(ctx, after, 100)
		if err != nil {
			return fmt.Errorf("listing sessions: %w", err)
		}
		for _, name := range names {
			if !yield(name) {
				return nil
			}
			after = name
		}
		if len(names) == 0 {
			return nil
		}
	}
}

// record is what is shown of the session's record in the log.
type record struct {
	Public        string    `json:"public"`
	Principal     string    `json:"principal"`
	Created       time.Time `json:"created"`
	Own           string    `json:"own"`
	Negotiated    string    `json:"negotiated"`
	ClientName    string    `json:"clientName"`
	ClientVersion string    `json:"clientVersion"`
}

func (v *View) record(ctx context.Context, name string) (*record, error) {
	b, err := v.Log.Record(ctx, name)
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil || r.Public == "" {
		return &record{Public: "?"}, nil // of another version: its streams can still be shown
	}
	return r, nil
}

func (v *View) session(ctx context.Context, name string, l session.Vitals) (*Session, error) {
	r, err := v.record(ctx, name)
	if err != nil {
		return nil, err
	}
	s := &Session{
		Session: r.Public, Principal: r.Principal, Revision: r.Negotiated, Created: r.Created,
		Seen: l.Seen, Child: l.Child, Streams: []Stream{},
	}
	if r.ClientName != "" {
		s.Client = r.ClientName + " " + r.ClientVersion
	}
	streams, err := v.Log.Streams(ctx, name, "", maxStreams+1)
	if err != nil {
		return nil, fmt.Errorf("listing the streams of session %s: %w", r.Public, err)
	}
	s.More = len(streams) > maxStreams
	for _, stream := range streams[:min(maxStreams, len(streams))] {
		one, err := v.stream(ctx, eventlog.Key{Session: name, Stream: stream}, r.Own, l)
		if errors.Is(err, eventlog.ErrNoStream) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Bytes += one.Bytes
		s.Streams = append(s.Streams, *one)
	}
	return s, nil
}

func (v *View) stream(ctx context.Context, k eventlog.Key, own string, l session.Vitals) (*Stream, error) {
	i, err := v.Log.Stat(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("looking at stream %s: %w", k.Stream, err)
	}
	s := &Stream{
		Stream: k.Stream, Kind: "call", State: "running",
		Floor: i.Floor, Top: i.Top, Events: i.Events, Bytes: i.Bytes,
	}
	for _, seat := range l.Readers[k.Stream] {
		s.Readers = append(s.Readers, Reader{Cursor: seat.Place, Role: role(seat)})
	}
	if k.Stream == own {
		s.Kind = "own"
	}
	switch {
	case i.Dropped:
		s.State = "dropped"
	case i.Ended:
		s.State = "ended"
	}
	for _, t := range i.Terms {
		s.Terms = append(s.Terms, Term{Term: t.Name, First: t.First})
	}
	return s, nil
}

func role(s session.Seat) string {
	if s.Spare {
		return "spare"
	}
	return "active"
}

// Window finds the stream in whatever session has it.
func (v *View) Window(ctx context.Context, stream string, after uint64, max int) (*Window, error) {
	var found *Window
	var fault error
	live := v.live()
	err := v.names(ctx, func(name string) bool {
		k := eventlog.Key{Session: name, Stream: stream}
		if _, err := v.Log.Stat(ctx, k); err != nil {
			if !errors.Is(err, eventlog.ErrNoStream) && !errors.Is(err, eventlog.ErrNoSession) {
				fault = err
			}
			return fault == nil
		}
		found, fault = v.window(ctx, k, live[name], after, max)
		return false
	})
	if err == nil {
		err = fault
	}
	if err == nil && found == nil {
		err = eventlog.ErrNoStream
	}
	return found, err
}

func (v *View) window(ctx context.Context, k eventlog.Key, l session.Vitals, after uint64, max int) (*Window, error) {
	r, err := v.record(ctx, k.Session)
	if err != nil {
		return nil, err
	}
	s, err := v.stream(ctx, k, r.Own, l)
	if err != nil {
		return nil, err
	}
	w := &Window{Session: r.Public, Stream: *s, Events: []Event{}}
	if s.State == "dropped" {
		return w, nil
	}
	return w, v.fill(ctx, k, w, after, max)
}

// fill reads page after page: one ends where the term or the run of events does.
func (v *View) fill(ctx context.Context, k eventlog.Key, w *Window, after uint64, max int) error {
	for max > 0 {
		page, err := v.Log.Read(ctx, k, after, max)
		if err != nil {
			return fmt.Errorf("reading stream %s: %w", k.Stream, err)
		}
		if len(page.Events) == 0 {
			return nil
		}
		for _, e := range page.Events {
			w.Events = append(w.Events, Event{
				Seq: e.Seq, Kind: kinds[e.Kind], Time: time.Unix(0, e.Time).UTC(), Size: len(e.Data), Term: page.Term, Payload: payload(e.Data),
			})
			after, max = e.Seq, max-len(e.Data)-perEvent
		}
		w.More = after < page.Top
	}
	return nil
}

// perEvent is what an event takes in an answer besides its payload.
const perEvent = 128

// payload is the data as JSON; what is none is shown as a string.
func payload(data []byte) json.RawMessage {
	if json.Valid(data) {
		return data
	}
	b, err := json.Marshal(string(data))
	if err != nil {
		return nil
	}
	return b
}
