// Package eventlog is the contract of Segno's log: streams of events that are
// appended once and read by anyone from any place.
//
// A stream belongs to a session and is written by one owner at a time. An event
// is first appended and then read back, so a live reader and a resuming one are
// the same reader at different places. The package knows nothing of MCP and
// imports nothing but the standard library; memlog and pebblelog keep the
// streams, logtest says in runnable rules what every back end must do.
package eventlog

import (
	"context"
	"time"
)

// Kind says what an event is for, as far as keeping it is concerned.
type Kind uint8

// The kinds. Opening and End are records of the stream itself and are never
// delivered to a client; retention drops Progress and Other first.
const (
	Opening  Kind = iota + 1 // what opened the stream, always seq 1
	Progress                 // worth nothing once a later one is there
	Request                  // the server asks the client for something
	Other                    // any other message
	Outcome                  // the one answer of a call
	End                      // nothing follows
)

// Kinds is a set of kinds.
type Kinds uint8

// Of makes a set.
func Of(kinds ...Kind) Kinds {
	var s Kinds
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has tells whether k is in the set.
func (s Kinds) Has(k Kind) bool { return s&(1<<k) != 0 }

// Pinned are the kinds that retention by count, bytes and age leaves alone.
const Pinned = Kinds(1<<Opening | 1<<Request | 1<<Outcome | 1<<End)

// Event is one record of a stream. Seqs of a stream are 1, 2, 3 …; 0 is the
// place before the first. Data is shared and must not be changed by anyone
// once the event was handed to Append.
type Event struct {
	Seq  uint64
	Time int64 // Unix time in nanoseconds
	Kind Kind
	Data []byte
}

// Key names a stream within its session. A stream of another session is absent
// by construction, whatever its name.
type Key struct {
	Session string
	Stream  string
}

// Claim is what makes a process the owner of a session. It ends with the next
// claim of the session, and with the process that made it.
type Claim struct {
	Fence uint64 // rises with every claim; an older one cannot append any more
	Term  string // six random characters; marks what is written under the claim
}

// Append is one step of the owner: all of it happens, or nothing.
type Append struct {
	Key
	Fence   uint64
	After   uint64    // the seq that the events follow; 0 opens the stream
	Events  []Event   // Seq is ignored and counted on from After; the log keeps Data
	Durable bool      // on disk before it counts, where the policy of the store makes a difference
	Record  []byte    // if not nil, becomes the session's record in the same step
	Bind    string    // if not empty, a name to bind to this stream; see TakenError
	New     bool      // opens a stream whose name was made for it just now, so the store need not look for one
	Due     time.Time // if not zero, arms the stream: Due lists it from then on
}

// Term is the start of one writer's part of a stream.
type Term struct {
	Name  string
	First uint64 // first seq written in it
}

// Info tells about a stream without reading it.
type Info struct {
	Top    uint64 // newest durable seq, kept apart from what is still there
	Ended  bool   // an End is at Top
	Terms  []Term // rising, at least one
	Floor  uint64 // of the kinds not Pinned, all up to here are gone
	Events int64  // kept
	Bytes  int64  // kept, payload only
	// Dropped says that the stream is gone and only Memo is left of it.
	Dropped bool
	Memo    []byte
}

// Page is a run of events of one term.
type Page struct {
	Term   string  // of the events; of the newest one if there are none
	Events []Event // rising; a jump means that events are gone
	Top    uint64  // durable top at the time of reading
	Ended  bool    // an End is at Top
}

// Writer is how an owner writes. All methods may be called from many
// goroutines; appends to one stream must not overlap.
type Writer interface {
	// Claim makes the caller the owner of a session, creating it if create is
	// set. It mints a term. ErrNoSession if there is none to claim.
	Claim(ctx context.Context, session string, create bool) (Claim, error)
	// Append returns when the events are as durable as asked and visible to
	// every reader; once it has begun to write it waits for that, whatever
	// becomes of ctx. ErrNoSession. ErrFenced: another owner claimed the
	// session. *AfterError: After is not the top. ErrEnded: an End is at the
	// top. *TakenError: Bind belongs to another stream. ErrUnavailable: the
	// store takes nothing now, nothing was written, try again. ErrNoStream:
	// the stream is gone (After is not 0 or a memo is left of it), or an append
	// without events names one that never was. A stream that was dropped
	// without a memo leaves nothing that could refuse its name, so names of
	// streams must never be used twice.
	Append(ctx context.Context, a Append) error
	// Release forgets what is kept in memory for a session that has no writer
	// any more. It loses nothing.
	Release(session string)
}

// Reader is how anyone reads. A reader never passes the durable top.
type Reader interface {
	// Read returns events after the place, at least one if there is any, and
	// about max bytes of them, at most those of one term. An empty page means:
	// nothing new. ErrNoStream, of a dropped stream too.
	Read(ctx context.Context, k Key, after uint64, max int) (Page, error)
	// Stat tells about a stream. ErrNoStream if there is none and no memo.
	Stat(ctx context.Context, k Key) (Info, error)
	// Watch sends on hint, without waiting, whenever the stream may have
	// changed, until stop is called; the stream need not be there yet. A hint
	// may be false and hints may be merged: register first, then read. hint
	// must have room for one. stop may be called more than once.
	Watch(k Key, hint chan<- struct{}) (stop func())
}

// Keeper is how an owner forgets. What is not there gives ErrNoSession or
// ErrNoStream, a fence that is not the session's ErrFenced.
type Keeper interface {
	// Trim removes the events up to and including through whose kind is not
	// in keep. The newest event of a stream always stays.
	Trim(ctx context.Context, k Key, fence, through uint64, keep Kinds) (Trimmed, error)
	// Drop removes a stream, its date and the names bound to it. With a memo
	// it is remembered as dropped; a session remembers its last Remembered
	// ones.
	Drop(ctx context.Context, k Key, fence uint64, memo []byte) error
	// DropSession removes a session with all that is under it, in one step.
	DropSession(ctx context.Context, session string, fence uint64) error
	// Arm makes Due list the stream, or the session if k.Stream is empty,
	// from at on, instead of any earlier date. A zero time disarms it.
	Arm(ctx context.Context, k Key, at time.Time) error
	// Due lists up to max keys armed for now or earlier, earliest first. They
	// stay armed.
	Due(ctx context.Context, now time.Time, max int) ([]Key, error)
}

// Lister is how sessions and streams are found.
type Lister interface {
	// Record returns a session's record, as Append last set it, nil if it
	// never did. ErrNoSession.
	Record(ctx context.Context, session string) ([]byte, error)
	// Sessions lists up to max session names after the given one, in order.
	Sessions(ctx context.Context, after string, max int) ([]string, error)
	// Streams lists up to max streams of a session after the given name, in
	// order, remembered ones too. None of an unknown session.
	Streams(ctx context.Context, session, after string, max int) ([]string, error)
	// Lookup returns the stream that a name is bound to. ErrNoStream.
	Lookup(ctx context.Context, name string) (Key, error)
}

// Log is a whole back end. After Close every method that can fail gives
// ErrClosed.
type Log interface {
	Writer
	Reader
	Keeper
	Lister
	Closer
}

// Closer ends the use of a log and tells its size.
type Closer interface {
	// Size is the space the log takes, in bytes: of memory or of the disk.
	Size() int64
	// Close waits for what is being written and makes all of it durable.
	Close() error
}

// Trimmed is what a Trim removed.
type Trimmed struct {
	Events int64
	Bytes  int64
}

// Remembered is how many dropped streams of a session keep their memo.
const Remembered = 10000
