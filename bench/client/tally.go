package client

import (
	"bytes"
	"fmt"
)

// Tally counts progress events in a stream of SSE or of lines and checks that
// their serial numbers are 1, 2, 3 … without a hole.
type Tally struct {
	Events  int    // how many came
	Last    int    // the highest serial
	Lost    int    // serials that were jumped over
	Again   int    // serials that came twice or late
	Done    bool   // the call's result came
	Told    int    // notices of a gap
	FirstID string // the first event id, empty if there is none
	Refused string // the error that came in the place of a result

	lines lines
}

var (
	serialKey = []byte(`"progress":`)
	resultKey = []byte(`"result":`)
	gapKey    = []byte(`"gap":`)
	errorKey  = []byte(`"error":`)
	idKey     = []byte("id:")
)

// Feed takes the next bytes of a body. It returns false once the outcome came.
func (t *Tally) Feed(chunk []byte) bool {
	t.lines.feed(chunk, t.block)
	return !t.Done && t.Refused == ""
}

// End says that no bytes follow, and returns what is wrong with a flood of n.
func (t *Tally) End(n int) error {
	t.lines.end(t.block)
	switch {
	case t.Refused != "":
		return fmt.Errorf("after %d of %d events: %s", t.Events, n, t.Refused)
	case !t.Done:
		return fmt.Errorf("no result after %d of %d events", t.Events, n)
	case t.Again > 0:
		return fmt.Errorf("%d events came twice or late", t.Again)
	}
	t.Lost += n - t.Last
	return nil
}

func (t *Tally) block(b []byte) {
	if t.FirstID == "" {
		t.findID(b)
	}
	for {
		i := bytes.Index(b, serialKey)
		if i < 0 {
			break
		}
		b = b[i+len(serialKey):]
		n := 0
		for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
			n, b = n*10+int(b[0]-'0'), b[1:]
		}
		t.serial(n)
	}
	// The result is the last event, so only what follows the last progress is searched.
	t.Done = t.Done || bytes.Contains(b, resultKey)
	if i := bytes.Index(b, errorKey); i >= 0 && !t.Done {
		t.Refused = string(bytes.TrimSpace(b[i:]))
	}
	if t.Lost > 0 || t.Events == 0 {
		t.Told += bytes.Count(b, gapKey)
	}
}

func (t *Tally) serial(n int) {
	t.Events++
	if n <= t.Last {
		t.Again++
		return
	}
	t.Lost += n - t.Last - 1
	t.Last = n
}

func (t *Tally) findID(b []byte) {
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(line, idKey) {
			t.FirstID = string(bytes.TrimSpace(line[len(idKey):]))
			return
		}
	}
}
