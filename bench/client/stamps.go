package client

import (
	"bytes"
	"time"
)

// Stamps gathers how long stamped events were on their way.
type Stamps struct {
	Took []time.Duration

	lines lines
	now   int64
}

var stampKey = []byte(`"t=`)

// Feed takes the next bytes of a body.
func (s *Stamps) Feed(chunk []byte) bool {
	s.now = time.Now().UnixNano()
	s.lines.feed(chunk, s.block)
	return true
}

func (s *Stamps) block(b []byte) {
	for {
		i := bytes.Index(b, stampKey)
		if i < 0 {
			return
		}
		b = b[i+len(stampKey):]
		at := int64(0)
		for len(b) > 0 && b[0] >= '0' && b[0] <= '9' {
			at, b = at*10+int64(b[0]-'0'), b[1:]
		}
		s.Took = append(s.Took, time.Duration(s.now-at))
	}
}
