package eventlog

import (
	"errors"
	"fmt"
)

// What a caller decides on.
var (
	ErrNoSession   = errors.New("no such session")
	ErrNoStream    = errors.New("no such stream")
	ErrEnded       = errors.New("the stream has ended")
	ErrFenced      = errors.New("another owner holds the session")
	ErrUnavailable = errors.New("the store takes nothing at the moment")
	ErrDamaged     = errors.New("a part of the store is damaged and cannot be read")
	ErrClosed      = errors.New("the log is closed")
	ErrCursor      = errors.New("not a cursor of this log")
)

// AfterError says that an append did not follow the stream's top: an event was
// lost by the store, or the writer counts wrongly.
type AfterError struct {
	After, Top uint64
}

func (e *AfterError) Error() string {
	return fmt.Sprintf("append after %d, but the stream's top is %d", e.After, e.Top)
}

// TakenError says that the name is bound to another stream, Holder.
type TakenError struct {
	Name   string
	Holder Key
}

func (e *TakenError) Error() string { return fmt.Sprintf("name %q is taken", e.Name) }
