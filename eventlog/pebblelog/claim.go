package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/cockroachdb/pebble/v2"
	"github.com/segno-mcp/segno/eventlog"
)

// owner is a session as the committer knows it.
type owner struct {
	claim   eventlog.Claim
	streams map[string]struct{} // live ones that have not ended
}

// Claim implements eventlog.Writer.
func (l *Log) Claim(ctx context.Context, session string, create bool) (eventlog.Claim, error) {
	probe := eventlog.Append{Key: eventlog.Key{Session: session}}
	if err := probe.Check(); err != nil {
		return eventlog.Claim{}, err
	}
	var c eventlog.Claim
	o := &op{alone: true}
	o.add = func(g *group) error {
		w, err := l.owner(session)
		if errors.Is(err, eventlog.ErrNoSession) && create {
			w, err = &owner{streams: map[string]struct{}{}}, nil
		}
		if err != nil {
			return err
		}
		l.owners[session] = w
		// What the former owner wrote and waits a sync for has to be visible
		// before the new one looks.
		o.sync = l.pending(session, w)
		c = eventlog.Claim{Fence: l.nextFence(), Term: eventlog.NewTerm()}
		w.claim = c
		v := binary.BigEndian.AppendUint64(nil, c.Fence)
		return g.batch.Set(sessionKey(session, ownKey), append(v, c.Term...), nil)
	}
	err := l.do(ctx, o)
	return c, err
}

// nextFence counts on within this opening of the store. The number of the
// opening comes first, so that a claim of a former one never holds and fences
// rise even if the last claims were lost.
func (l *Log) nextFence() uint64 {
	l.fences++
	return l.boot<<32 | l.fences
}

func (l *Log) pending(session string, w *owner) bool {
	for stream := range w.streams {
		if lv := l.places.find(eventlog.Key{Session: session, Stream: stream}); lv != nil {
			lv.mu.Lock()
			late := lv.late
			lv.mu.Unlock()
			if late > 0 {
				return true
			}
		}
	}
	return false
}

// owner finds a session, in memory or in pebble. It does not keep it in memory:
// that is for sessions with a writer.
func (l *Log) owner(session string) (*owner, error) {
	if w := l.owners[session]; w != nil {
		return w, nil
	}
	v, closer, err := l.db.Get(sessionKey(session, ownKey))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, eventlog.ErrNoSession
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	if len(v) != 8+eventlog.TermLen {
		return nil, errBlock
	}
	w := &owner{streams: map[string]struct{}{}}
	w.claim = eventlog.Claim{Fence: binary.BigEndian.Uint64(v), Term: string(v[8:])}
	return w, nil
}

// owned finds a session if the fence is its newest and of this opening.
func (l *Log) owned(session string, fence uint64) (*owner, error) {
	if !nameable(eventlog.Key{Session: session}) {
		return nil, eventlog.ErrNoSession
	}
	w, err := l.owner(session)
	if err != nil {
		return nil, err
	}
	if w.claim.Fence != fence || fence>>32 != l.boot {
		return nil, eventlog.ErrFenced
	}
	l.owners[session] = w
	return w, nil
}

// Release implements eventlog.Writer. It does not wait.
func (l *Log) Release(session string) {
	o := &op{alone: true, done: make(chan error, 1)}
	o.add = func(*group) error {
		w := l.owners[session]
		if w == nil {
			return nil
		}
		delete(l.owners, session)
		for stream := range w.streams {
			if lv := l.places.find(eventlog.Key{Session: session, Stream: stream}); lv != nil {
				l.places.leave(lv)
			}
		}
		return nil
	}
	_ = l.queue.put(o) // a closed log has forgotten all
}
