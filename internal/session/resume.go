package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
)

// How a resume was understood.
const (
	Exact    = "exact"    // everything after the cursor is there
	Current  = "current"  // there is nothing after it
	Evicted  = "evicted"  // some of it is gone
	Diverged = "diverged" // the store's history is another one than the client's
	GoneCall = "gone"     // the stream is dropped, its call is remembered
	Unknown  = "unknown"  // never was, another session's, or no cursor at all
	Dead     = "dead"     // the id of a notice that nothing follows
)

// Resumption is what a connection that comes with a cursor is to do.
type Resumption struct {
	Result string
	// Reader continues the stream. It is nil for gone, unknown and dead, and
	// for the current place of a stream that has ended: there is nothing to
	// come, so the answer is 204.
	Reader    *Reader
	PrimingID string
	// Without a Reader: the notice and, for gone, an error for each request of
	// the stream whose outcome the client is not known to have, all of them with
	// the same id.
	Notice   []byte
	NoticeID string
	AnswerID string
	Answers  [][]byte
	// For the log line.
	Stream  string
	After   uint64 // the cursor's place
	First   uint64 // the first event after it that is kept and will be sent, 0 if there is none yet
	Top     uint64
	Evicted uint64 // how many events after the cursor retention dropped
	Oldest  uint64 // the first of them, 0 if there is none
	Floor   uint64 // of what retention may drop, all up to here is gone
	Owner   string // the instance that the session was with until now
}

// Resume attaches a connection at the place its cursor names. A cursor that
// means nothing here is not an error: the answer says so in-band, as clients
// throw a session away on any HTTP error.
func (s *Session) Resume(ctx context.Context, lastEventID string, p Policy) (*Resumption, error) {
	r, err := s.resume(ctx, lastEventID, p)
	if err != nil {
		return nil, err
	}
	s.m.meter.Add(metric.Resumes, r.Result, 1)
	s.mu.Lock()
	r.Owner, s.from = s.from, s.m.inst
	s.mu.Unlock()
	if r.Owner != s.m.inst {
		s.m.meter.Add(metric.ForeignResumes, "", 1)
	}
	return r, nil
}

func (s *Session) resume(ctx context.Context, lastEventID string, p Policy) (*Resumption, error) {
	if strings.HasSuffix(lastEventID, deadSuffix) {
		return &Resumption{Result: Dead}, nil
	}
	c, err := eventlog.ParseCursor(lastEventID)
	if err != nil {
		return s.unknown(), nil
	}
	info, err := s.m.log.Stat(ctx, eventlog.Key{Session: s.name, Stream: c.Stream})
	switch {
	case errors.Is(err, eventlog.ErrNoStream) || errors.Is(err, eventlog.ErrNoSession):
		return s.unknown(), nil
	case err != nil:
		return nil, err
	case info.Dropped:
		return s.dropped(c, info), nil
	}
	return s.resumeAt(ctx, c, info, p)
}

func (s *Session) unknown() *Resumption {
	s.m.meter.Add(metric.Gaps, notice.Unknown, 1)
	return &Resumption{
		Result: Unknown, PrimingID: deadID(), NoticeID: deadID(),
		Notice: notice.Gap(s.Level(), "", notice.Unknown, eventlog.Gap{}),
	}
}

func (s *Session) dropped(c eventlog.Cursor, info eventlog.Info) *Resumption {
	s.m.meter.Add(metric.Gaps, notice.Gone, 1)
	r := &Resumption{
		Result: GoneCall, Stream: c.Stream, After: c.Seq, PrimingID: deadID(),
		Notice: notice.Gap(s.Level(), c.Stream, notice.Gone, eventlog.Gap{}), NoticeID: deadID(),
		AnswerID: deadID(),
	}
	if bytes.HasPrefix(info.Memo, []byte(provenMark)) {
		return r
	}
	for _, id := range elements(info.Memo) {
		r.Answers = append(r.Answers, notice.UnknownOutcome(id, "the events of this call are no longer kept", ""))
	}
	return r
}

func (s *Session) resumeAt(ctx context.Context, c eventlog.Cursor, info eventlog.Info, p Policy) (*Resumption, error) {
	place, holds := info.Place(c)
	r := &Resumption{Stream: c.Stream, After: place, Top: info.Top, Floor: info.Floor}
	if holds {
		s.proves(c.Stream, place, info)
	}
	if holds && info.Ended && place+1 >= info.Top {
		r.Result = Current
		return r, nil
	}
	reader := s.attach(s.streamFor(c.Stream), place, p, false)
	r.PrimingID = idAt(info, c.Stream, place, random(eventlog.AgainLen))
	reader.handsOut(true)
	var first *Delivery
	var err error
	if !holds {
		err = reader.missed(ctx, eventlog.Gap{After: place, Next: place + 1, Lost: c.Seq - min(c.Seq, place)}, notice.Store)
	}
	if err == nil {
		first, err = reader.peek(ctx)
	}
	if err == nil && first.Ended && len(first.Events) == 0 {
		return s.nothing(ctx, r, reader, c)
	}
	if err == nil {
		r.First, r.Reader = reader.upcoming(), reader
		err = s.judge(ctx, r, holds, info)
	}
	if err != nil {
		reader.Close()
		return nil, err
	}
	return r, nil
}

// nothing is the answer where a stream has ended and what follows the cursor is
// not for clients, or where it was dropped just now. An empty stream would be
// asked for again and again.
func (s *Session) nothing(ctx context.Context, r *Resumption, reader *Reader, c eventlog.Cursor) (*Resumption, error) {
	reader.Close()
	info, err := s.m.log.Stat(ctx, eventlog.Key{Session: s.name, Stream: c.Stream})
	switch {
	case err == nil && info.Dropped:
		return s.dropped(c, info), nil
	case errors.Is(err, eventlog.ErrNoStream):
		return s.unknown(), nil
	}
	r.Result = Current
	return r, err
}

// judge names the result and counts what is missing and what is replayed.
func (s *Session) judge(ctx context.Context, r *Resumption, holds bool, info eventlog.Info) (err error) {
	r.Evicted, r.Oldest, err = s.holes(ctx, eventlog.Key{Session: s.name, Stream: r.Stream}, r.After, info)
	if err != nil {
		return err
	}
	switch {
	case !holds:
		r.Result = Diverged
	case r.Evicted > 0:
		r.Result = Evicted
	case r.First == 0:
		r.Result = Current
		return nil
	default:
		r.Result = Exact
	}
	replayed := info.Top - min(info.Top, r.After+r.Evicted)
	if r.Result != Exact && r.Reader.policy != Oldest {
		replayed = 0
	}
	s.m.meter.Observe(metric.ResumeReplayed, "", float64(replayed))
	return nil
}

// holes counts what is missing after a place and names the first of it. All
// holes lie before the floor, where only what is pinned is left, so this reads
// little.
func (s *Session) holes(ctx context.Context, k eventlog.Key, place uint64, info eventlog.Info) (lost, first uint64, err error) {
	for place < info.Floor {
		page, err := s.m.log.Read(ctx, k, place, pageBytes)
		if err != nil || len(page.Events) == 0 {
			return lost, first, err
		}
		for i := range page.Events {
			if n := page.Events[i].Seq - place - 1; n > 0 {
				lost += n
				first = cmp.Or(first, place+1)
			}
			if place = page.Events[i].Seq; place >= info.Floor {
				break
			}
		}
	}
	return lost, first, nil
}

// proves takes a cursor as the proof that the client has what is before it.
func (s *Session) proves(stream string, place uint64, info eventlog.Info) {
	if stream == s.rec.Own {
		s.handed(place)
		return
	}
	k := s.keptOf(stream)
	if k == nil {
		return
	}
	k.idsOut.Store(true)
	if info.Ended && place+1 >= info.Top {
		k.proven.Store(true)
	}
}

// Ack takes the client's word that it has everything up to the cursor.
// eventlog.ErrCursor if the id is none of this session.
func (s *Session) Ack(ctx context.Context, lastEventID string) error {
	s.posted()
	c, err := eventlog.ParseCursor(lastEventID)
	if err != nil {
		return eventlog.ErrCursor
	}
	info, err := s.m.log.Stat(ctx, eventlog.Key{Session: s.name, Stream: c.Stream})
	switch {
	case errors.Is(err, eventlog.ErrNoStream) || err == nil && info.Dropped:
		return eventlog.ErrCursor
	case err != nil:
		return err
	}
	place, holds := info.Place(c)
	if !holds {
		return eventlog.ErrCursor
	}
	s.proves(c.Stream, place, info)
	if st := s.liveStream(c.Stream); st != nil {
		st.received(place)
	}
	return nil
}

// received lets go what the client has.
func (st *stream) received(place uint64) {
	st.mu.Lock()
	through := st.window.Through(min(place, st.overtakable()))
	st.mu.Unlock()
	if through > 0 {
		st.trim(through)
	}
	st.s.release(st)
}
