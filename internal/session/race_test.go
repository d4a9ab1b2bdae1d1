package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/wire"
)

// busyServer answers every call with progress, an echo of its arguments, and
// now and then a question, a list_changed, or its own end.
func busyServer(ctx context.Context, c wire.Conn) {
	defer c.Close()
	rnd := rand.New(rand.NewPCG(1, 2))
	for asks := 0; ; {
		msgs, err := c.Recv(ctx)
		if err != nil {
			return
		}
		for _, m := range msgs {
			if m.Kind != wire.Request {
				continue
			}
			id := m.IDText()
			if m.Method == wire.Initialize {
				c.Send(ctx, wire.AppendResponse(nil, id, []byte(`{"protocolVersion":"2025-11-25","capabilities":{}}`)))
				continue
			}
			for i := range rnd.IntN(5) {
				c.Send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, id, i))
			}
			switch rnd.IntN(100) {
			case 0:
				return
			case 1, 2, 3:
				asks++
				c.Send(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"elicitation/create","params":{}}`, asks))
			case 4, 5:
				c.Send(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))
			case 6:
				continue // never answered
			}
			at, _ := m.Find("params", "arguments")
			c.Send(ctx, wire.AppendResponse(nil, id, m.Text(at)))
		}
	}
}

type busyUpstream struct {
	ctx  context.Context
	ends sync.WaitGroup
}

func (u *busyUpstream) Connect(context.Context, string) (wire.Conn, error) {
	ours, theirs := wire.Pair()
	u.ends.Go(func() { busyServer(u.ctx, theirs) })
	return ours, nil
}

func (*busyUpstream) Fingerprint() string { return "busy" }

// TestEverythingAtOnce: many clients call, cancel, answer, drop, resume, end and
// come back while their servers die; every answer is the caller's own, and in
// the end nothing is left.
func TestEverythingAtOnce(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared=%v", shared), func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			up := &busyUpstream{ctx: ctx}
			n := newTally()
			m, err := New(Options{Log: memlog.New(), Upstream: up, Shared: shared, Meter: n,
				Limits: Limits{RetainEvents: 4, SessionMax: 1 << 20, Grace: 50 * time.Millisecond, Keep: time.Minute, RetainAge: 100 * time.Millisecond, CallTimeout: 200 * time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			var clients sync.WaitGroup
			var answers atomic.Int64
			for i := range 12 {
				clients.Go(func() { busyClient(t, m, i, &answers) })
			}
			clients.Wait()
			if err := m.Close(t.Context()); err != nil {
				t.Error(err)
			}
			cancel()
			up.ends.Wait()
			t.Logf("%d answers", answers.Load())
			if answers.Load() < 20 {
				t.Errorf("only %d answers came", answers.Load())
			}
			for _, g := range []metric.Name{metric.SessionsOpen, metric.StreamsOpen, metric.ChildrenRunning, metric.RetainedEvents} {
				if got := n.of(g); got != 0 {
					t.Errorf("%s is %d", g, got)
				}
			}
		})
	}
}

func busyClient(t *testing.T, m *Manager, who int, answers *atomic.Int64) {
	principal := fmt.Sprint("p", who%3)
	rnd := rand.New(rand.NewPCG(uint64(who), 7))
	until := time.Now().Add(1500 * time.Millisecond)
	for n := 1; time.Now().Before(until); {
		s, c, err := m.Create(t.Context(), principal, message(t, initText), ClientInfo{})
		if err != nil {
			t.Error(err)
			return
		}
		id := s.ID()
		busyRead(s, c, rnd)
		var calls sync.WaitGroup
		for range 10 + rnd.IntN(20) {
			if s, err = m.Open(t.Context(), principal, id); err != nil {
				break // initialize failed, as its server died
			}
			n++
			s, n, seed := s, n, rnd.Uint64()
			calls.Go(func() { busyCall(t, s, n, who, seed, answers) })
			if rnd.IntN(15) == 0 {
				time.Sleep(60 * time.Millisecond)
			}
		}
		calls.Wait()
		if rnd.IntN(2) == 0 {
			s.End(t.Context(), "DELETE")
		}
	}
}

func busyCall(t *testing.T, s *Session, n, who int, seed uint64, answers *atomic.Int64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	mark := fmt.Sprintf(`{"of":"%d-%d"}`, who, n)
	msg := message(t, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"x","arguments":%s,"_meta":{"progressToken":%d}}}`, n, mark, n)
	c, err := s.Call(t.Context(), msg, CallOptions{})
	if err != nil {
		return
	}
	if rnd.IntN(8) == 0 {
		s.Deliver(t.Context(), message(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, n))
	}
	got := busyRead(s, c, rnd)
	if len(got) > 1 {
		t.Errorf("call %d ended with %q", n, got)
	}
	for _, text := range got {
		if strings.Contains(text, `"result"`) {
			answers.Add(1)
			if !strings.Contains(text, mark) || !strings.Contains(text, fmt.Sprintf(`"id":%d,`, n)) {
				t.Errorf("call %d got %s", n, text)
			}
		}
	}
}

// busyRead reads a call to its end over connections that break, and returns its
// outcomes.
func busyRead(s *Session, c *Call, rnd *rand.Rand) (outcomes []string) {
	r := s.AttachCall(c, []Policy{Oldest, Live}[rnd.IntN(2)])
	defer func() { r.Close() }()
	cursor := ""
	for {
		d, err := r.Next(context.Background())
		if err != nil {
			return outcomes
		}
		for _, e := range d.Events {
			switch e.Kind {
			case eventlog.Outcome:
				outcomes = append(outcomes, string(e.Data))
			case eventlog.Request:
				if m, err := wire.Parse(e.Data); err == nil && rnd.IntN(2) == 0 {
					a, _ := wire.Parse(wire.AppendResponse(nil, m.IDText(), []byte("{}")))
					s.Deliver(context.Background(), &a)
				}
			}
			r.Sent(e.Seq, true)
			cursor = string(r.AppendID(nil, d.Term, e.Seq))
		}
		switch {
		case d.Ended, d.Retired:
			return outcomes
		case cursor != "" && rnd.IntN(4) == 0:
			r.Close()
			res, err := s.Resume(context.Background(), cursor, Oldest)
			if err != nil || res.Reader == nil {
				return outcomes
			}
			r = res.Reader
		case d.Wait, d.Spare:
			if why := busyWait(r); why != "" {
				return append(outcomes, why, c.Stream)
			}
		}
	}
}

// woken counts how often readers were woken, all of them together.
var woken atomic.Int64

// busyWait waits for the reader to be woken, as long as others still are: on a
// busy machine that may take.
func busyWait(r *Reader) (stuck string) {
	for at := woken.Load(); ; at = woken.Load() {
		select {
		case <-r.C():
			woken.Add(1)
			return ""
		case <-time.After(5 * time.Second):
		}
		if woken.Load() > at {
			continue
		}
		if d, err := r.Next(context.Background()); err == nil && (d.Wait || d.Spare) {
			return "nothing comes any more"
		}
		return "a wake-up was lost"
	}
}
