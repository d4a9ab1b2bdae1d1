package remote_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno"
	"github.com/segno-mcp/segno/eventlog/memlog"
	"github.com/segno-mcp/segno/internal/memnet"
	"github.com/segno-mcp/segno/internal/upstream/remote"
)

// TestBehindSegno: a Segno before a server behind a URL. The networks on both
// sides are cut, by turns and together, and the client sees nothing of it.
func TestBehindSegno(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := newHouse(t, segno.Options{})
		front := back.before()
		c := front.client(remote.Options{})
		c.init()
		if got := c.answer(`"init"`); strings.Count(got, `"segno":`) != 1 {
			t.Errorf("initialize: %s", got)
		}
		c.count("7", 100, 1000)
		for n := range 6 {
			time.Sleep(10 * time.Second)
			if n%3 != 0 {
				back.net.Cut()
			}
			if n%3 != 1 {
				front.net.Cut()
			}
		}
		c.once(back, "7", "counted to 100", 100, 1)
	})
}

// TestBehindSegnoTheServerRestarts: what ran ends as unknown, what comes
// meanwhile waits, and later calls work.
func TestBehindSegnoTheServerRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := newHouse(t, segno.Options{})
		front := back.before()
		c := front.client(remote.Options{})
		c.init()
		c.count("7", 100, 1000)
		time.Sleep(5 * time.Second)
		time.AfterFunc(time.Second, func() { c.quick("8") })
		back.restart(10*time.Second, memlog.New())
		if got := c.answer("7"); !strings.Contains(got, `"outcome":"unknown"`) {
			t.Errorf("got %s", got)
		}
		c.once(back, "8", `"key"`, 0, 1)
		c.quick("9")
		c.once(back, "9", `"key"`, 0, 1)
		if n := back.fakes.runs("k7"); n != 1 {
			t.Errorf("ran %d times", n)
		}
	})
}

// TestNothingOfTheClientIsPassedOn: neither its credentials nor anything else
// that it sends beside its messages.
func TestNothingOfTheClientIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := newHouse(t, segno.Options{})
		seen := make(chan http.Header, 1000)
		net := memnet.Listen()
		memnet.Run(t, net, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen <- r.Header.Clone()
			back.ServeHTTP(w, r)
		})})
		up, err := segno.Remote(segno.RemoteOptions{URL: "http://segno.test/mcp", Dial: net.Dial, Header: http.Header{"Authorization": {"Bearer server"}}})
		if err != nil {
			t.Fatal(err)
		}
		front := houseBefore(t, up, segno.Options{})
		c := front.client(remote.Options{Header: http.Header{"Authorization": {"Bearer client"}, "X-Own": {"1"}, "Cookie": {"a=b"}}})
		c.init()
		c.quick("7")
		c.answer("7")
		c.close()
		synctest.Wait()
		close(seen)
		n := 0
		for h := range seen {
			n++
			if h.Get("Authorization") != "Bearer server" || h.Get("X-Own") != "" || h.Get("Cookie") != "" {
				t.Errorf("the server saw %v", h)
			}
		}
		if n < 3 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestTwoClientsHaveASessionEach: nothing is shared at the server.
func TestTwoClientsHaveASessionEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := newHouse(t, segno.Options{})
		front := back.before()
		var all []*client
		for range 2 {
			c := front.client(remote.Options{})
			c.init()
			all = append(all, c)
		}
		for _, c := range all {
			c.count("7", 3, 1000)
		}
		for _, c := range all {
			c.answer("7")
			if list, steps := c.answers("7"); len(list) != 1 || steps != 3 {
				t.Errorf("%d answers, %d progress", len(list), steps)
			}
		}
		if n := len(back.fakes.s); n != 2 || back.fakes.runs("k7") != 2 {
			t.Errorf("%d servers, %d runs", n, back.fakes.runs("k7"))
		}
	})
}
