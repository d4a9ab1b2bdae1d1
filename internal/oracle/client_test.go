package oracle

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/segno-mcp/segno/internal/fakemcp"
	"github.com/segno-mcp/segno/internal/wire"
)

// client is one session of a principal, as a client that follows the
// specification to the letter has it.
type client struct {
	w      *world
	name   string
	who    string
	asked  string
	sloppy bool // uses the same id for several requests
	id     string
	own    chain
	calls  []*call
	ended  *moment
	asks   map[string]*asking // by id
	taken  map[string]moment  // ids last cancelled, and when
	unsure bool               // a DELETE was lost on its way
	mute   bool               // answers nothing that the server asks
}

// chain is a stream as a client follows it over many connections.
type chain struct {
	last string // the newest event id
	conn *conn  // the newest connection
	dead bool   // there is nothing to come for
}

// cursor is where a chain stands.
func (w *world) cursor(ch *chain) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return ch.last
}

// call is a request of the client with all that it heard of it.
type call struct {
	c         *client
	n         int
	key       string
	id        string // JSON text
	token     string
	tool      string
	body      string
	chain     chain
	posts     []*conn
	cancelled *moment
	outcomes  []string // seen, with an event id or as JSON
}

// asking is a request of the server that the client saw.
type asking struct {
	id       string // JSON text
	first    moment
	answered *moment
	conn     *conn // of the answer
}

func newClient(w *world, p person) *client {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &client{
		w: w, name: fmt.Sprintf("%s%d", p.who, len(w.clients)), who: p.who, asked: p.asked, sloppy: p.sloppy,
		asks: map[string]*asking{}, taken: map[string]moment{},
	}
	w.clients = append(w.clients, c)
	return c
}

// live tells whether the session is known to be there.
func (c *client) live() bool { return c.id != "" && c.ended == nil }

func (c *client) opening(kind, method string) opening {
	o := opening{kind: kind, method: method, path: "/mcp", session: c.id, who: c.who, version: c.asked, expect: "live"}
	if c.ended != nil {
		o.expect = "gone"
	}
	return o
}

// initialize opens the session and waits for its answer.
func (c *client) initialize() {
	body := strings.Replace(string(fakemcp.Init(`"init"`, c.asked)), `"name":"test"`, `"name":"`+c.name+`"`, 1)
	o := c.opening("initialize", http.MethodPost)
	o.session, o.version, o.body, o.expect = "", "", body, "none"
	x := c.open(o)
	<-x.done
	if x.status != http.StatusOK || !strings.Contains(x.body+lastData(x), `"result"`) {
		return
	}
	c.id = x.session
	c.post("initialized", string(fakemcp.Ready()))
}

func lastData(x *conn) string {
	if len(x.events) == 0 {
		return ""
	}
	return x.events[len(x.events)-1].data
}

// post sends what is no request.
func (c *client) post(kind, body string) *conn {
	o := c.opening(kind, http.MethodPost)
	o.body = body
	return c.open(o)
}

// request sends a call, for the first time or again.
func (c *client) request(k *call, kind string, how cut, policy string) *conn {
	o := c.opening(kind+" "+k.key+" "+k.tool+" id "+k.id, http.MethodPost)
	o.body, o.call, o.cut, o.policy = k.body, k, how, policy
	o.chain = &k.chain
	x := c.open(o)
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	k.posts = append(k.posts, x)
	return x
}

// resume goes on where a chain stopped; without a cursor it opens the session's
// own stream.
func (c *client) resume(ch *chain, kind string, how cut, policy string) *conn {
	o := c.opening(kind, http.MethodGet)
	o.cut, o.policy, o.chain, o.cursor = how, policy, ch, c.w.cursor(ch)
	if o.cursor != "" {
		o.kind += " from " + c.w.place(o.cursor)
	}
	return c.open(o)
}

// probe resumes from any cursor, beside the client's own connections.
func (c *client) probe(kind, cursor string, how cut, policy string) *conn {
	o := c.opening(kind+" from "+c.w.place(cursor), http.MethodGet)
	o.cut, o.policy, o.cursor = how, policy, cursor
	return c.open(o)
}

// take does what a client does with an event, or with a JSON answer.
func (c *client) take(x *conn, e seen) {
	w := c.w
	w.mu.Lock()
	if ch := x.o.chain; ch != nil && ch.conn == x && e.id != "" {
		ch.last = e.id
	}
	w.mu.Unlock()
	if e.data == "" || e.data[0] != '{' {
		return
	}
	m, err := wire.Parse([]byte(e.data))
	if err != nil {
		w.broken(c.name, "json", "#%d: %v in %s", x.n, err, short(e.data))
		return
	}
	switch m.Kind {
	case wire.Result, wire.Failure:
		c.answered(x, string(m.IDText()), e.data)
	case wire.Request:
		c.wasAsked(string(m.IDText()), e.at)
	}
}

func (c *client) answered(x *conn, id, data string) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	k := x.o.call
	if k == nil && x.o.chain != nil {
		for _, other := range c.calls {
			if &other.chain == x.o.chain {
				k = other
			}
		}
	}
	if k != nil && k.id == id {
		k.outcomes = append(k.outcomes, data)
	}
}

// wasAsked answers what the server asks: most at once, some only in the end.
func (c *client) wasAsked(id string, at moment) {
	c.w.mu.Lock()
	a := c.asks[id]
	fresh := a == nil
	if fresh {
		a = &asking{id: id, first: at}
		c.asks[id] = a
	}
	later := c.mute || fresh && len(c.asks)%3 == 0
	c.w.mu.Unlock()
	if !later {
		c.answer(a)
	}
}

// answer answers a request of the server, again if the answer was lost.
func (c *client) answer(a *asking) {
	c.w.mu.Lock()
	lost := a.conn != nil && a.conn.over() && a.conn.status == 0
	due := (a.answered == nil || lost) && c.ended == nil
	if due {
		m := c.w.tick()
		a.answered = &m
	}
	c.w.mu.Unlock()
	if !due {
		return
	}
	x := c.post("answer to "+a.id, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"for":%s}}}`, a.id, a.id))
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	a.conn = x
}

// answerAll answers what is left.
func (c *client) answerAll() {
	c.w.mu.Lock()
	var all []*asking
	for _, a := range c.asks {
		all = append(all, a)
	}
	c.w.mu.Unlock()
	for _, a := range all {
		c.answer(a)
	}
}

// openConns are the connections that have not ended.
func (c *client) openConns() (open []*conn) {
	c.w.mu.Lock()
	all := append([]*conn(nil), c.w.conns...)
	c.w.mu.Unlock()
	for _, x := range all {
		if x.c == c && !x.over() && x.raw != nil {
			open = append(open, x)
		}
	}
	return open
}
