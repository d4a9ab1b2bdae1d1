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

// bindName is what a call is bound to in the log, "" without a key. The
// principal is part of it, so keys of different ones never meet.
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
		return s.m.refuse("idempotency-key", time.Second, "the call that used this idempotency key is just being dropped")
	}
	was, perr := wire.Parse(page.Events[0].Data)
	if perr == nil && reflect.DeepEqual(arguments(&was), arguments(msg)) {
		return nil
	}
	return invalid(msg, "this idempotency key was used for a call with other arguments")
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
	// If nobody works on the holder's session, loading it ends what another
	// process left running there.
	_, err := s.m.byName(s.m.ctx, holder.Session)
	if err == nil {
		err = s.followOutcome(c, holder)
	}
	if err == nil || s.m.ctx.Err() != nil {
		return
	}
	s.log.Warn("waiting for the call of an idempotency key", "error", err)
	s.settle(c, notice.UnknownOutcome(c.id, "the call with this idempotency key ended without an outcome", ""), "unknown")
}

var errNoOutcome = errors.New("it ended without an outcome")

// followOutcome returns nil when the call is settled.
func (s *Session) followOutcome(c *call, holder eventlog.Key) error {
	hint := make(chan struct{}, 1)
	f := eventlog.Follow(s.m.log, holder, 0, hint)
	defer f.Close()
	for {
		step, err := f.Next(s.m.ctx, pageBytes)
		switch {
		case errors.Is(err, eventlog.ErrUnavailable):
			if !s.pause(c, nil) {
				return nil
			}
			continue
		case err != nil:
			return err
		case step.Gap != nil:
			continue
		case len(step.Page.Events) == 0 && step.Page.Ended:
			return errNoOutcome
		case len(step.Page.Events) == 0:
			if !s.pause(c, hint) {
				return nil
			}
		}
		for i := range step.Page.Events {
			if e := &step.Page.Events[i]; e.Kind == eventlog.Outcome {
				s.settle(c, withID(e.Data, c.id), "result")
				return nil
			}
		}
	}
}

// pause waits for a hint, or a second at most if the store is away; false if
// the call has ended meanwhile or nobody is left to end it.
func (s *Session) pause(c *call, hint <-chan struct{}) bool {
	var again <-chan time.Time
	if hint == nil {
		again = time.After(time.Second)
	}
	select {
	case <-hint:
	case <-again:
	case <-c.quit:
		return false
	case <-s.m.ctx.Done():
		return false
	}
	return true
}

// withID is a response with another id.
func withID(raw, id []byte) []byte {
	msg, err := wire.Parse(raw)
	if err != nil {
		return raw
	}
	return wire.AppendSplice(nil, raw, wire.Edit{Span: msg.ID, With: id})
}
