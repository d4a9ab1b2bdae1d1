package session

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// A request that comes again is not run again: with the same id and bytes it
// attaches to the stream of the first, with the same idempotency key it gets
// the outcome of the first.

// remember notes a request by its id and bytes. first is false if it is a
// repost; then the stream of the first is returned. A client that was seen to
// use an id for different requests is never attached to anything.
func (s *Session) remember(c *call, raw []byte) (k *kept, first bool) {
	digest := sha256.Sum256(raw)
	id := string(c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byID[id]; old != nil && !s.rec.ReusesIDs {
		if old.digest != digest {
			s.rec.ReusesIDs = true
			s.log.Info("the client uses request ids again; reposts are not recognised from now on", "request", id)
		} else if !old.gone && s.answersAgain(old) {
			return old, false
		}
	}
	k = s.keep(newStreamName())
	k.id, k.digest = id, digest
	s.byID[id] = k
	return k, true
}

// answersAgain tells whether a repost may attach: while the first runs, and
// for a while after its end unless the client proved that it has the outcome.
func (s *Session) answersAgain(k *kept) bool {
	if !k.ended {
		return true
	}
	return !k.proven.Load() && time.Since(time.Unix(0, k.endedAt)) <= s.m.lim.Repost
}

// rememberBatch notes a batch, which is not looked for again.
func (s *Session) rememberBatch() *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keep(newStreamName())
}

// keep makes the note of a stream; the lock is held.
func (s *Session) keep(stream string) *kept {
	k := &kept{stream: stream, born: make(chan struct{})}
	s.kept[stream] = k
	return k
}

// forget takes the note of a stream away that is not, or no longer, in the log.
func (s *Session) forget(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.gone = true
	delete(s.kept, k.stream)
	if s.byID[k.id] == k {
		delete(s.byID, k.id)
	}
}

func (s *Session) attachTo(k *kept) (*Call, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k.gone {
		return nil, refuse("store", time.Second, "the request this one repeats could not be recorded; it was not executed")
	}
	s.m.meter.Add(Dropped, "repost", 1)
	return &Call{Stream: k.stream}, nil
}

// maxKey is the longest idempotency key, in bytes.
const maxKey = 256

// idempotencyKey is the key of a tools/call: of _meta, or else of the header.
func idempotencyKey(msg *wire.Message, header string) (string, error) {
	if msg.Method != wire.ToolsCall {
		return "", nil
	}
	at, err := msg.Find("params", "_meta", "segno/idempotencyKey")
	if err != nil {
		return "", invalid(msg, err.Error())
	}
	key := header
	if at.Ok() {
		var ok bool
		if key, ok = wire.Unquote(msg.Text(at)); !ok {
			return "", invalid(msg, "segno/idempotencyKey must be a string")
		}
	}
	if len(key) > maxKey {
		return "", invalid(msg, "the idempotency key is longer than 256 bytes")
	}
	return key, nil
}

// bindName is what a call is bound to in the log, "" without a key.
func (s *Session) bindName(msg *wire.Message, key string) string {
	if key == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{s.rec.Principal, msg.StringAt("params", "name"), key}, "\x00")))
	return b64.EncodeToString(sum[:])
}

// sameArguments refuses a key that was used with other arguments.
func (s *Session) sameArguments(ctx context.Context, holder eventlog.Key, msg *wire.Message) error {
	page, err := s.m.log.Read(ctx, holder, 0, 1)
	if err != nil || len(page.Events) == 0 || page.Events[0].Kind != eventlog.Opening {
		return refuse("idempotency-key", time.Second, "the call that used this idempotency key is just being dropped")
	}
	was, perr := wire.Parse(page.Events[0].Data)
	if perr == nil && reflect.DeepEqual(arguments(&was), arguments(msg)) {
		return nil
	}
	return &wire.Error{Code: wire.CodeInvalid, ID: append([]byte(nil), msg.IDText()...),
		Message: "this idempotency key was used for a call with other arguments"}
}

func arguments(msg *wire.Message) any {
	at, err := msg.Find("params", "arguments")
	if err != nil || !at.Ok() {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(msg.Text(at))))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// copyOutcome gives a call the outcome of the one that holds its idempotency
// key, when that is there, with the call's own id in it.
func (s *Session) copyOutcome(c *call, holder eventlog.Key) {
	if err := s.m.recoverHolder(holder.Session); err != nil {
		s.log.Warn("looking for the call of an idempotency key", "error", err)
	}
	hint := make(chan struct{}, 1)
	f := eventlog.Follow(s.m.log, holder, 0, hint)
	defer f.Close()
	for {
		step, err := f.Next(s.m.ctx, pageBytes)
		switch {
		case errors.Is(err, eventlog.ErrNoStream) || step.Page.Ended && len(step.Page.Events) == 0 && step.Gap == nil:
			s.settle(c, notice.UnknownOutcome(c.id, "the call with this idempotency key ended without an outcome", ""), "unknown")
			return
		case err != nil:
			return
		case step.Gap == nil && len(step.Page.Events) == 0:
			select {
			case <-hint:
			case <-s.m.ctx.Done():
				return
			}
		}
		for i := range step.Page.Events {
			if e := &step.Page.Events[i]; e.Kind == eventlog.Outcome {
				s.settle(c, withID(e.Data, c.id), "result")
				return
			}
		}
	}
}

// withID is a response with another id.
func withID(raw, id []byte) []byte {
	msg, err := wire.Parse(raw)
	if err != nil {
		return raw
	}
	return wire.AppendSplice(nil, raw, wire.Edit{Span: msg.ID, With: id})
}
