package streamable

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
)

// bulk is a message of n bytes, roughly.
func bulk(n int) string {
	return `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", n) + `"}}`
}

// stalled opens a session's own stream and reads no more of it.
func (r *rig) stalled(session string) *memnet.Link {
	r.t.Helper()
	r.stream(r.resume(session, "")).next()
	synctest.Wait()
	link := r.net.Last()
	link.Freeze()
	return link
}

func TestRetiredConnectionEndsInTheMidstOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		began := time.Now()
		for range 8 {
			defer r.stalled(id).Cut()
			child.send("%s", bulk(600<<10))
			synctest.Wait()
		}
		if got := r.logs.lines("connection ended", "why=superseded"); len(got) != 5 || time.Since(began) > time.Second {
			t.Errorf("%d of 8 connections ended within %v, want all but the newest and two spares", len(got), time.Since(began))
		}
	})
}

func TestStreamHoldsOneLargePageAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		defer r.stalled(id).Cut()
		child.send("%s", bulk(5<<20))
		synctest.Wait()
		if held := r.front.large.inUse(); held < 5<<20 {
			t.Errorf("%d bytes are counted", held)
		}
		for range 30 {
			defer r.stalled(id).Cut()
			synctest.Wait()
			if held := r.front.large.inUse(); held > 6<<20 {
				t.Fatalf("%d bytes are held for one stream", held)
			}
		}
	})
}

func TestLargePagesOfManyStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{InflightMax: 48 << 20, Heartbeat: 10 * time.Second}})
		var children []*child
		for range 6 {
			id, c := r.open("2025-11-25")
			defer r.stalled(id).Cut()
			children = append(children, c)
		}
		id, c := r.open("2025-11-25")
		reads := r.stream(r.resume(id, ""))
		reads.next()
		for _, c := range children {
			c.send("%s", bulk(3<<20))
		}
		synctest.Wait()
		if held := r.front.large.inUse(); held < 3<<20 || held > 6<<20 {
			t.Errorf("%d bytes are held of %d, of which one principal has a half", held, 12<<20)
		}
		c.send("%s", bulk(4<<20))
		began := time.Now()
		if e := reads.next(); len(e.Data) < 4<<20 || time.Since(began) < 20*time.Second || time.Since(began) > 3*time.Minute {
			t.Errorf("after %v there came %d bytes", time.Since(began), len(e.Data))
		}
		c.send("%s", bulk(10))
		if e := reads.next(); len(e.Data) > 200 {
			t.Errorf("the large event came twice")
		}
		time.Sleep(5 * time.Minute)
		if held := r.front.large.inUse(); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

func TestSlowReaderOfALargeEventEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{net: memnet.Listen()})
		id, child := r.open("2025-11-25")
		conn, err := r.net.Dial(t.Context(), "tcp", "segno")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /mcp HTTP/1.1\r\nHost: segno\r\nAccept: text/event-stream\r\nMcp-Session-Id: %s\r\n\r\n", id)
		began := time.Now()
		child.send("%s", bulk(8<<20))
		buf := make([]byte, 5<<10)
		for range 300 {
			time.Sleep(time.Second)
			if _, err := conn.Read(buf); err != nil {
				break
			}
		}
		got := r.logs.lines("connection ended", "why=write_timeout")
		if lived := time.Since(began); len(got) != 1 || !strings.Contains(got[0], "duration=2m3") {
			t.Errorf("8 MiB at 5 KiB/s ended after %v: %q", lived, got)
		}
	})
}

func TestCloseCutsWhoDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, child := r.open("2025-11-25")
		link := r.stalled(id)
		child.send("%s", bulk(2<<20))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		if err := r.front.Close(ctx); err != nil || time.Since(began) > 4*time.Second {
			t.Errorf("closing took %v: %v", time.Since(began), err)
		}
		if got := r.logs.lines("were cut", "connections=1"); len(got) != 1 {
			t.Errorf("%d lines tell of the cut", len(got))
		}
		link.Cut()
	})
}

func TestDamagedStoreIsNoHTTPErrorOfALiveSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := &atomic.Bool{}
		r := newRig(t, setup{damage: broken})
		id, child := r.open("2025-11-25")
		s := r.stream(r.post(id, callTool, `1`))
		m := child.recv()
		cursor := s.next().ID
		broken.Store(true)
		for _, given := range []string{cursor, ""} {
			res := r.resume(id, given)
			if got := text(t, res); res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" || !strings.Contains(got, "retry: ") {
				t.Errorf("cursor %q: %s %q", given, res.Status, got)
			}
		}
		broken.Store(false)
		child.answer(&m, `{}`)
		if rest := r.stream(r.resume(id, cursor)).rest(); len(rest) != 2 {
			t.Errorf("the rest is %q", rest)
		}
	})
}
