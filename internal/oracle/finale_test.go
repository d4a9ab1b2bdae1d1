package oracle

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/memnet"
)

// finale ends a run: the network heals, every client comes back and follows
// what it has begun to its end, the sessions end, Segno ends. Then everything
// that was seen and said is checked.
func (w *world) finale(ending string) {
	w.seg.gate.fuse.Store(0)
	w.revive()
	w.tell("", "the network heals, and every client comes back")
	w.mu.Lock()
	w.last = w.tick()
	w.mu.Unlock()
	w.hangUp()
	for range rounds {
		if w.round() == 0 {
			break
		}
		time.Sleep(10 * time.Second)
	}
	w.checkFollowed()
	w.hangUp()
	w.tell("", "the sessions end: %s", ending)
	if ending == "delete" {
		for _, c := range w.clients {
			if c.live() {
				c.delete()
			}
		}
		time.Sleep(3 * time.Second) // a server that reads nothing for a while knows by then
	} else {
		time.Sleep(w.knobs.grace + w.knobs.orphan + keep + time.Minute)
		for _, c := range w.clients {
			if c.live() {
				w.expired(c)
			}
		}
	}
	w.checkNothingLeft(ending)
	time.Sleep(time.Millisecond)
	w.end(0)
	for _, k := range w.allKids() {
		<-k.ended
	}
	for _, x := range w.conns {
		<-x.done
	}
	w.store.forget()
	synctest.Wait()
	w.checkGoroutines()
	w.checkSaid()
	w.checkSeen()
}

// rounds is how often a client comes back at the end.
const rounds = 8

// hangUp ends all connections, those of dead cables too.
func (w *world) hangUp() {
	for _, c := range w.clients {
		for _, x := range c.openConns() {
			x.drop("is given up", (*memnet.Link).Thaw)
			x.close()
			x.link.Cut()
		}
	}
	synctest.Wait()
}

// round lets every client go on with what is not at its end, and tells how much
// that was.
func (w *world) round() (open int) {
	for _, c := range w.clients {
		if !c.live() {
			continue
		}
		if w.idle(&c.own) {
			c.resume(&c.own, "own stream at last", cut{}, "oldest")
		}
		c.answerAll()
		for _, k := range c.calls {
			if !k.followed() {
				open++
				k.follow()
			}
		}
	}
	return open
}

func (w *world) idle(ch *chain) bool { return ch.conn == nil || ch.conn.over() }

// followed tells whether a call's newest connection ended as a connection does
// that has nothing more to say.
func (k *call) followed() bool {
	x := k.chain.conn
	if x == nil || !x.over() {
		return false
	}
	whole := x.err == nil && x.status != 0 && (k.c.w.seg == nil || !k.c.w.offBetween(x.opened, x.closed))
	return whole || k.lost()
}

// lost: a client that reuses ids and has no cursor cannot ask for the call again.
func (k *call) lost() bool { return k.c.w.cursor(&k.chain) == "" && k.c.reuses() }

// reuses tells whether the client used an id for more than one request.
func (c *client) reuses() bool {
	ids := map[string]bool{}
	for _, k := range c.calls {
		if ids[k.id] {
			return true
		}
		ids[k.id] = true
	}
	return false
}

func (k *call) follow() {
	if k.tool == "hang" {
		k.cancel()
	}
	switch {
	case !k.c.w.idle(&k.chain):
	case k.c.w.cursor(&k.chain) != "":
		k.c.resume(&k.chain, "resume at last of "+k.key, cut{}, "oldest")
	case !k.lost():
		k.c.request(k, "repost at last of", cut{}, "")
	}
}

// checkFollowed: who comes back gets to the end.
func (w *world) checkFollowed() {
	for _, c := range w.clients {
		for _, k := range c.calls {
			if c.live() && !k.followed() && !k.refused() {
				w.broken(c.name, "unanswered", "call %s (%s) has no end after %d rounds", k.key, k.tool, rounds)
			}
		}
	}
}

func (k *call) refused() bool {
	for _, o := range k.outcomes {
		if strings.Contains(o, `"code":-32000`) {
			return true
		}
	}
	return false
}

// expired: a session whose time is over is one that never was.
func (w *world) expired(c *client) {
	o := c.opening("GET after the session's time", http.MethodGet)
	o.expect = "gone"
	x := c.open(o)
	<-x.done
	m := w.now()
	w.mu.Lock()
	c.ended = &m
	w.mu.Unlock()
}

// checkNothingLeft: what belonged to a session goes with it (promise 8).
func (w *world) checkNothingLeft(ending string) {
	if w.seg.gate.dead.Load() {
		return
	}
	unsure := 0
	for _, c := range w.clients {
		if c.id == "" && ending == "delete" {
			unsure++ // initialize may have counted though its answer was lost
		}
	}
	kids := 0
	for _, k := range w.allKids() {
		if k.alive() {
			kids++
		}
	}
	mem := w.seg.srv.Live()
	names, err := w.seg.gate.Sessions(context.Background(), "", 1000)
	if kids > unsure || len(mem) > unsure || len(names) > unsure || err != nil {
		w.broken("", "left over", "after all sessions ended there are %d servers, %d sessions in memory, %d in the log (%v)", kids, len(mem), len(names), err)
	}
	for name, v := range mem {
		if len(v.Readers) > 0 {
			w.broken("", "left over", "session %s has readers: %v", name, v.Readers)
		}
	}
}

// checkGoroutines: nothing runs after the end.
func (w *world) checkGoroutines() {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	all := strings.Split(string(stacks), "\n\n")
	mine := all[0]
	_, bubble, ok := strings.Cut(mine[:strings.IndexByte(mine, '\n')], "synctest bubble ")
	if !ok {
		panic(fmt.Sprintf("not in a bubble: %s", mine))
	}
	bubble = "synctest bubble " + strings.TrimSuffix(bubble, "]:") + "]"
	for _, g := range all[1:] {
		head, _, _ := strings.Cut(g, "\n")
		if strings.Contains(head, bubble) && !strings.Contains(g, "testingSynctestTest(") && !strings.Contains(head, "[synctest.Run") {
			w.broken("", "goroutine", "still runs:\n%s", g)
			// The bubble is about to panic for it, which would hide the seed.
			fmt.Fprintf(os.Stderr, "seed %d: a goroutine still runs:\n%s\n%s", w.seed, g, w.tale(""))
		}
	}
}
