package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/segno-mcp/segno/eventlog"
)

// Source tells about the sessions of one MCP server. It may be asked from
// several goroutines at once and must not be held up by clients.
type Source interface {
	// Ready returns nil while new work is taken, else why it is not.
	Ready(ctx context.Context) error
	// Sessions returns up to max sessions, live ones first, and whether there
	// are more.
	Sessions(ctx context.Context, max int) (sessions []Session, more bool, err error)
	// Session returns the session with a public id; eventlog.ErrNoSession if
	// there is none.
	Session(ctx context.Context, public string) (*Session, error)
	// Window returns a stream and up to max bytes of its events after a place.
	// eventlog.ErrNoStream if no session has it.
	Window(ctx context.Context, stream string, after uint64, max int) (*Window, error)
}

// Session is one session as it is shown. Its secret is not part of it.
type Session struct {
	Session   string    `json:"session"` // the public id
	Principal string    `json:"principal"`
	Client    string    `json:"client,omitempty"` // name and version
	Revision  string    `json:"revision,omitempty"`
	Created   time.Time `json:"created,omitzero"`
	Seen      time.Time `json:"seen,omitzero"` // last sign of life, of live ones
	Live      bool      `json:"live"`          // in memory; else only kept in the log
	Child     bool      `json:"child"`         // its server process runs
	Bytes     int64     `json:"bytes"`
	Streams   []Stream  `json:"streams"`
	More      bool      `json:"more,omitempty"` // it has more streams than are shown
}

// Stream is the window of a stream that is kept: of the events after Floor all,
// up to Floor only those that are never dropped first.
type Stream struct {
	Stream  string   `json:"stream"`
	Kind    string   `json:"kind"`  // call, or own: what belongs to no call
	State   string   `json:"state"` // running, ended, dropped
	Floor   uint64   `json:"floor"`
	Top     uint64   `json:"top"`
	Events  int64    `json:"events"`
	Bytes   int64    `json:"bytes"`
	Terms   []Term   `json:"terms,omitempty"`
	Readers []Reader `json:"readers,omitempty"`
}

// Term is the start of one writer's part.
type Term struct {
	Term  string `json:"term"`
	First uint64 `json:"first"`
}

// Reader is a connection to a stream.
type Reader struct {
	Cursor uint64 `json:"cursor"`
	Role   string `json:"role"` // active, or spare
}

// Window is a part of a stream.
type Window struct {
	Session string  `json:"session"`
	Stream  Stream  `json:"stream"`
	Events  []Event `json:"events"`
	More    bool    `json:"more,omitempty"`
}

// Event is one event. Payload is left out unless payloads are shown.
type Event struct {
	Seq     uint64          `json:"seq"`
	Kind    string          `json:"kind"`
	Time    time.Time       `json:"time"`
	Size    int             `json:"size"`
	Term    string          `json:"term"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

var kinds = map[eventlog.Kind]string{
	eventlog.Opening: "opening", eventlog.Progress: "progress", eventlog.Request: "request",
	eventlog.Other: "other", eventlog.Outcome: "outcome", eventlog.End: "end",
}
