package session

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

// A client's timer of 60 s is set back only by progress with its own token; who
// gave none gets none.
func TestField50_ProgressCarriesTheClientsOwnToken(t *testing.T) {
	for _, token := range []string{`7`, `"7"`, `"tok-é"`} {
		t.Run(token, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := newBench(t, Options{})
				s, srv := b.open()
				c := b.call(s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"progressToken":%s}}}`, token)
				m := srv.recv()
				r := s.AttachCall(c, Oldest)
				defer r.Close()
				now(t, r)
				for i := range 7 {
					time.Sleep(20 * time.Second)
					srv.progress(m, i)
					synctest.Wait()
					got, _ := now(t, r)
					same(t, got, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%d}}`, token, i))
				}
				srv.answer(m, `{}`)
				same(t, collect(t, r), `{"jsonrpc":"2.0","id":1,"result":{}}`)
			})
		})
	}
	t.Run("none", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			count := newTally()
			b := newBench(t, Options{Meter: count})
			s, srv := b.open()
			c := b.call(s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
			m := srv.recv()
			srv.progress(m, 1)
			srv.answer(m, `{}`)
			same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{}}`)
			if n := count.of(metric.Dropped); n != 1 {
				t.Errorf("%d messages were counted as dropped, want the progress nobody asked for", n)
			}
		})
	})
}

// A server that does one thing at a time is busy, not dead: nobody pings it, a
// client's ping does not reach it, and it is not restarted.
func TestField54_ABusyServerIsLeftAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{Limits: Limits{Grace: time.Minute}})
		s, srv := b.open()
		c := b.tool(s, `1`)
		m := srv.recv()
		for range 60 {
			time.Sleep(30 * time.Second)
			a := b.call(s, `{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			same(t, []string{string(a.Answer)}, `{"jsonrpc":"2.0","id":"p","result":{}}`)
		}
		if got := srv.pending(); got != nil {
			t.Errorf("the busy server got %s", got)
		}
		srv.answer(m, `{"took":"30m"}`)
		same(t, b.answers(s, c), `{"jsonrpc":"2.0","id":1,"result":{"took":"30m"}}`)
		if n := len(b.d.conns); n != 0 {
			t.Errorf("%d more servers were started", n)
		}
	})
}

// Two clients at once, one that comes and goes, and one whose server breaks
// down: nobody notices anybody else.
func TestField70_ClientsAreIndependent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBench(t, Options{})
		s1, srv1 := b.open()
		s2, srv2 := b.open()
		c1, c2 := b.tool(s1, `1`), b.tool(s2, `1`)
		m1, m2 := srv1.recv(), srv2.recv()
		for range 5 {
			s2.AttachCall(c2, Oldest).Close()
			s2.AttachOwn(Oldest).Close()
		}
		srv2.c.Close()
		got := b.answers(s2, c2)
		contains(t, got[len(got)-1], `"outcome":"unknown"`)
		if err := s2.End(t.Context(), "DELETE"); err != nil {
			t.Fatal(err)
		}
		_ = m2
		srv1.progress(m1, 1)
		srv1.answer(m1, `{"fine":true}`)
		got = b.answers(s1, c1)
		same(t, got[len(got)-1:], `{"jsonrpc":"2.0","id":1,"result":{"fine":true}}`)
	})
}
