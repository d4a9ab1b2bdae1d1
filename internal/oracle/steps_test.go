package oracle

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/memnet"
)

// step is something that may happen. If there is nothing it could happen to,
// nothing does.
type step struct {
	name   string
	weight int
	do     func(*world, *rand.Rand)
}

var steps = []step{
	{"call", 30, (*world).stepCall},
	{"request", 4, (*world).stepRequest},
	{"drop", 12, (*world).stepDrop},
	{"resume", 16, (*world).stepResume},
	{"spare", 4, (*world).stepSpare},
	{"own", 6, (*world).stepOwn},
	{"odd cursor", 8, (*world).stepOddCursor},
	{"older cursor", 5, (*world).stepOlderCursor},
	{"foreign session", 3, (*world).stepForeignSession},
	{"repost", 5, (*world).stepRepost},
	{"cancel", 5, (*world).stepCancel},
	{"ack", 4, (*world).stepAck},
	{"server speaks", 4, (*world).stepServerSpeaks},
	{"server ends", 2, (*world).stepServerEnds},
	{"freeze", 3, (*world).stepFreeze},
	{"restart", 2, (*world).stepRestart},
	{"kill", 2, (*world).stepKill},
	{"fuse", 3, (*world).stepFuse},
	{"away", 2, (*world).stepAway},
	{"delete", 1, (*world).stepDelete},
	{"new session", 2, (*world).stepNewSession},
}

func chooseStep(r *rand.Rand) *step {
	sum := 0
	for i := range steps {
		sum += steps[i].weight
	}
	n := r.IntN(sum)
	for i := range steps {
		if n -= steps[i].weight; n < 0 {
			return &steps[i]
		}
	}
	panic("unreachable: the weights are summed above")
}

// someClient is a session that is there.
func (w *world) someClient(r *rand.Rand) *client {
	var live []*client
	for _, c := range w.clients {
		if c.live() {
			live = append(live, c)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return pick(r, live...)
}

// someCall is a call for which ok is true.
func (w *world) someCall(r *rand.Rand, ok func(*call) bool) *call {
	var found []*call
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clients {
		for _, k := range c.calls {
			if c.live() && ok(k) {
				found = append(found, k)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return pick(r, found...)
}

func randomPolicy(r *rand.Rand) string { return pick(r, "", "", "", "", "oldest", "live", "error") }

func (w *world) stepCall(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	k := c.newCall(r)
	tool, args := randomTool(r, k.n)
	k.tool = tool
	k.body = string(fakemcp.Call(k.id, tool, `{"key":"`+k.key+`",`+args+`}`, k.token))
	c.request(k, "call", randomCut(r), "")
}

// stepRequest makes a request that is no tool.
func (w *world) stepRequest(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	k := c.newCall(r)
	k.token = ""
	k.tool = pick(r, "tools/list", "resources/list", "prompts/list", "no/such")
	k.body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{"key":"%s"}}}`, k.id, k.tool, k.key)
	c.request(k, "request", randomCut(r), "")
}

func (c *client) newCall(r *rand.Rand) *call {
	n := 0
	for _, other := range c.w.clients {
		n += len(other.calls)
	}
	k := &call{c: c, n: n, key: fmt.Sprintf("%s-%d", c.name, n)}
	switch {
	case c.sloppy && r.IntN(2) == 0:
		k.id = "1"
	default:
		k.id = pick(r, fmt.Sprint(n+2), fmt.Sprintf(`"%s"`, k.key), fmt.Sprintf("%d.0", n+2), fmt.Sprint(9007199254740993+n))
	}
	if r.IntN(4) > 0 {
		k.token = pick(r, fmt.Sprintf(`"t%d"`, n), fmt.Sprint(n), "1", k.id)
	}
	c.w.mu.Lock()
	if m, ok := c.taken[k.id]; ok && m.at == c.w.tick().at {
		k.cancelled = &m // perhaps: the cancel is on its way
	}
	c.calls = append(c.calls, k)
	c.w.mu.Unlock()
	return k
}

// randomTool is a tool with arguments that make what it says its own.
func randomTool(r *rand.Rand, n int) (name, args string) {
	switch pick(r, "count", "count", "count", "quiet", "ask", "log", "flood", "big", "late", "twice", "hang", "die", "fail", "changed", "updated", "echo", "stall") {
	case "count":
		return "count", fmt.Sprintf(`"n":%d,"interval_ms":%d,"pad":%d`, 1+r.IntN(20), pick(r, 0, 0, 7, 130, 900), n)
	case "quiet":
		return "quiet", fmt.Sprintf(`"ms":%d`, pick(r, 0, 20, 300, 5000))
	case "ask":
		return "ask", fmt.Sprintf(`"method":"elicitation/create","params":"{\"message\":\"%d?\"}"`, n)
	case "log":
		return "log", fmt.Sprintf(`"n":%d,"pad":%d`, 1+r.IntN(5), n)
	case "flood":
		return "flood", fmt.Sprintf(`"n":%d,"size":%d`, 10+r.IntN(150), pick(r, 0, 200, 800)+n)
	case "big":
		return "big", fmt.Sprintf(`"size":%d`, pick(r, 100, 5000, 40000)+n)
	case "late":
		return "late", fmt.Sprintf(`"n":%d,"pad":%d`, 1+r.IntN(3), n)
	case "twice":
		return "twice", fmt.Sprintf(`"n":%d`, n)
	case "hang":
		return "hang", fmt.Sprintf(`"n":%d`, n)
	case "die":
		return "die", fmt.Sprintf(`"ms":%d`, pick(r, 0, 0, 50, 1500))
	case "fail":
		return "fail", fmt.Sprintf(`"text":"no %d"`, n)
	case "changed":
		return "changed", `"text":"tools"`
	case "updated":
		return "updated", fmt.Sprintf(`"text":"fake://%d"`, n)
	case "stall":
		return "stall", fmt.Sprintf(`"ms":%d`, pick(r, 10, 2000))
	}
	return "echo", fmt.Sprintf(`"n":%d`, n)
}

// stepDrop ends a connection: by the client, by the network, or by a proxy.
func (w *world) stepDrop(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	open := c.openConns()
	if len(open) == 0 {
		return
	}
	x := pick(r, open...)
	switch r.IntN(3) {
	case 0:
		x.drop("is closed by the client", nil)
	case 1:
		x.drop("is reset", (*memnet.Link).Cut)
	case 2:
		x.drop("is ended by a proxy", (*memnet.Link).CloseClean)
	}
}

// stepFreeze pulls a cable for a while.
func (w *world) stepFreeze(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	open := c.openConns()
	if len(open) == 0 {
		return
	}
	x := pick(r, open...)
	x.frozen = true
	x.drop("is frozen", (*memnet.Link).Freeze)
	time.Sleep(pick(r, 100*time.Millisecond, 20*time.Second))
	x.drop("is thawed", (*memnet.Link).Thaw)
}

func resumable(k *call) bool { return k.chain.last != "" && !k.chain.dead }

func (w *world) stepResume(r *rand.Rand) {
	k := w.someCall(r, func(k *call) bool { return resumable(k) && len(k.outcomes) == 0 && k.chain.conn.over() })
	if k == nil {
		k = w.someCall(r, func(k *call) bool { return resumable(k) && k.chain.conn.over() })
	}
	if k != nil {
		k.c.resume(&k.chain, "resume of "+k.key, randomCut(r), randomPolicy(r))
	}
}

// stepSpare opens one more connection to a stream that has one.
func (w *world) stepSpare(r *rand.Rand) {
	k := w.someCall(r, func(k *call) bool { return resumable(k) && !k.chain.conn.over() })
	if k != nil {
		k.c.resume(&k.chain, "second connection to "+k.key, randomCut(r), "")
	}
}

func (w *world) stepOwn(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	if r.IntN(3) == 0 {
		w.mu.Lock()
		c.own.last = ""
		w.mu.Unlock()
	}
	c.resume(&c.own, "own stream", randomCut(r), randomPolicy(r))
}

// stepOddCursor resumes where there is nothing, or nothing of this client's.
func (w *world) stepOddCursor(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	cursor := pick(r, "nonsense", "0", "AAAAAAAAAAAAAAAAAAAAAA.abcdef.3", strings.Repeat("x", 300), "a.b.c.d.e")
	if k := w.someCall(r, func(k *call) bool { return resumable(k) && strings.Count(k.chain.last, ".") > 1 }); k != nil {
		id := w.cursor(&k.chain)
		parts := strings.Split(id, ".")
		switch r.IntN(6) {
		case 0, 1: // of whoever it is
			cursor = id
		case 2:
			parts[2] = fmt.Sprint(1 + r.IntN(400))
			cursor = strings.Join(parts[:3], ".")
		case 3:
			parts[1] = "zzzzzz"
			cursor = strings.Join(parts, ".")
		case 4:
			cursor = id + "0"
		case 5:
			cursor = parts[0] + ".x"
		}
	}
	c.probe("odd cursor", cursor, cut{}, randomPolicy(r))
}

// stepOlderCursor resumes a stream from a place that the client left behind.
func (w *world) stepOlderCursor(r *rand.Rand) {
	var ids []seen
	var of []*conn
	w.mu.Lock()
	for _, x := range w.conns {
		for _, e := range x.events {
			if x.c.live() && !strings.HasSuffix(e.id, ".x") {
				ids, of = append(ids, e), append(of, x)
			}
		}
	}
	w.mu.Unlock()
	if len(ids) == 0 {
		return
	}
	n := r.IntN(len(ids))
	of[n].c.probe("older cursor", ids[n].id, randomCut(r), randomPolicy(r))
}

// stepForeignSession tries the session of another principal.
func (w *world) stepForeignSession(r *rand.Rand) {
	c := w.someClient(r)
	if c == nil {
		return
	}
	o := c.opening("foreign session", pick(r, http.MethodGet, http.MethodPost, http.MethodDelete))
	o.expect, o.who = "gone", "eve"
	if r.IntN(2) == 0 && w.clients[0].who != c.who {
		o.who = w.clients[0].who
	}
	if o.method == http.MethodPost {
		o.body = string(fakemcp.Call("1", "echo", `{"key":"stolen"}`, ""))
	}
	if o.method == http.MethodGet {
		o.cursor = w.cursor(&c.own)
	}
	c.open(o)
}

func (w *world) stepRepost(r *rand.Rand) {
	if k := w.someCall(r, func(*call) bool { return true }); k != nil {
		k.c.request(k, "repost of", randomCut(r), "")
	}
}

func (w *world) stepCancel(r *rand.Rand) {
	k := w.someCall(r, func(k *call) bool { return len(k.outcomes) == 0 && k.cancelled == nil })
	if k == nil {
		k = w.someCall(r, func(k *call) bool { return k.cancelled == nil })
	}
	if k != nil {
		k.cancel()
	}
}

// cancel takes the call back, and all that have the same id.
func (k *call) cancel() {
	w := k.c.w
	w.mu.Lock()
	m := w.tick()
	k.c.taken[k.id] = m
	for _, other := range k.c.calls {
		if other.id == k.id && other.cancelled == nil {
			other.cancelled = &m
		}
	}
	w.mu.Unlock()
	k.c.post("cancel of id "+k.id, string(fakemcp.Cancel(k.id)))
}

func (w *world) stepAck(r *rand.Rand) {
	k := w.someCall(r, func(k *call) bool { return resumable(k) && !strings.HasSuffix(k.chain.last, ".x") })
	if k == nil {
		return
	}
	last := w.cursor(&k.chain)
	c, ok := parseCursor(last)
	p := w.hist.of(c.stream)
	if !ok || p == nil || p.key.Session != k.c.sessionName() || !w.hist.ack(p) {
		return
	}
	o := k.c.opening("ack of "+w.place(last), http.MethodPost)
	o.path, o.body = "/mcp/ack", fmt.Sprintf(`{"lastEventId":%q}`, last)
	k.c.open(o)
}

// someKid is a server that runs.
func (w *world) someKid(r *rand.Rand) *kid {
	var live []*kid
	for _, k := range w.allKids() {
		if k.alive() {
			live = append(live, k)
		}
	}
	if len(live) == 0 {
		return nil
	}
	return pick(r, live...)
}

func (w *world) stepServerSpeaks(r *rand.Rand) {
	k := w.someKid(r)
	if k == nil {
		return
	}
	n := w.now().n
	w.tell(k.label, "server %d speaks", k.n)
	// A server that ends at this instant has said nothing.
	switch r.IntN(3) {
	case 0:
		_ = k.server.Changed("tools")
	case 1:
		_ = k.server.Notify("notifications/resources/updated", fmt.Sprintf(`{"uri":"fake://s%d"}`, n))
	case 2:
		_ = k.server.Notify("notifications/message", fmt.Sprintf(`{"level":"error","data":"by itself %d"}`, n))
	}
}

func (w *world) stepServerEnds(r *rand.Rand) {
	if k := w.someKid(r); k != nil {
		w.tell(k.label, "server %d exits", k.n)
		k.server.Hangup()
		k.Close()
	}
}

func (w *world) stepRestart(r *rand.Rand) {
	w.end(pick(r, 0, time.Second, 10*time.Second))
	time.Sleep(pick(r, 0, time.Second))
	w.start()
	w.tell("", "segno is started again")
}

func (w *world) stepKill(r *rand.Rand) {
	w.crash(w.seg)
	synctest.Wait()
	time.Sleep(pick(r, 0, time.Second))
	w.revive()
}

// stepFuse lets Segno crash at one of its next appends.
func (w *world) stepFuse(r *rand.Rand) {
	w.seg.gate.after.Store(r.IntN(2) == 0)
	w.seg.gate.fuse.Store(1 + r.Int64N(pick[int64](r, 4, 40)))
}

// stepAway leaves everything alone until servers without a sign of life stop.
func (w *world) stepAway(r *rand.Rand) {
	w.tell("", "everybody is away")
	for _, c := range w.clients {
		for _, x := range c.openConns() {
			x.drop("is closed by the client", nil)
		}
	}
	time.Sleep(pick(r, 31*time.Second, 70*time.Second))
}

func (w *world) stepDelete(r *rand.Rand) {
	if c := w.someClient(r); c != nil && len(w.clients) > 1 {
		c.delete()
	}
}

func (c *client) delete() {
	o := c.opening("DELETE", http.MethodDelete)
	x := c.open(o)
	<-x.done
	synctest.Wait()
	c.unsure = c.unsure || x.status == 0
	if x.status == http.StatusNoContent {
		m := c.w.now()
		c.w.mu.Lock()
		c.ended = &m
		c.w.mu.Unlock()
	}
}

func (w *world) stepNewSession(r *rand.Rand) {
	newClient(w, randomPerson(r, pick(r, "ann", "bob"))).initialize()
}
