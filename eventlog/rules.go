package eventlog

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// MaxName is the longest session, stream or bound name, in bytes.
const MaxName = 1024

// NewTerm mints a term: six random characters of base64url.
func NewTerm() string {
	var b [5]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])[:TermLen]
}

// Check tells what is wrong with an append, whatever the state of its stream.
// Every back end calls it first. An append without events changes the record,
// the name and the date alone; without a stream too, the record and the
// session's own date.
func (a *Append) Check() error {
	if a.Session == "" {
		return errors.New("append: no session named")
	}
	for _, name := range []string{a.Session, a.Stream, a.Bind} {
		if len(name) > MaxName || strings.IndexByte(name, 0) >= 0 {
			return errors.New("append: a name is too long or has a zero byte")
		}
	}
	if a.Stream == "" && (len(a.Events) > 0 || a.Bind != "") {
		return errors.New("append: no stream named")
	}
	for i := range a.Events {
		if err := a.checkKind(i); err != nil {
			return err
		}
	}
	return nil
}

func (a *Append) checkKind(i int) error {
	switch k := a.Events[i].Kind; {
	case k < Opening || k > End:
		return fmt.Errorf("append: no such kind: %d", k)
	case k == Opening && (i > 0 || a.After > 0):
		return errors.New("append: an opening that is not the first event")
	case k == End && i < len(a.Events)-1:
		return errors.New("append: events after the end")
	}
	return nil
}
