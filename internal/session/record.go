package session

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/notice"
	"github.com/segno-mcp/segno/internal/wire"
)

// record is what a session needs to live on in another process, kept in the log.
type record struct {
	Version    int             `json:"v"`
	Public     string          `json:"public"`
	Owner      string          `json:"owner,omitempty"` // the instance that it is with; empty: that made it
	Principal  string          `json:"principal"`
	Created    time.Time       `json:"created"`
	Own        string          `json:"own"`  // the session's own stream
	Init       json.RawMessage `json:"init"` // the client's initialize, repeated to every new child
	Asked      string          `json:"asked"`
	Negotiated string          `json:"negotiated,omitempty"` // empty until initialize is answered
	ClientName string          `json:"clientName,omitempty"`
	ClientVer  string          `json:"clientVersion,omitempty"`
	UserAgent  string          `json:"userAgent,omitempty"`

	Initialized bool     `json:"initialized,omitempty"` // the client said so
	AddLogging  bool     `json:"addLogging,omitempty"`  // the server has none, Segno answers for it
	Level       string   `json:"level,omitempty"`       // as the client set it
	Subscribed  []string `json:"subscribed,omitempty"`  // uris, repeated to every new child
	ReusesIDs   bool     `json:"reusesIds,omitempty"`
	Handed      uint64   `json:"handed,omitempty"` // place in Own up to which the client has seen everything
}

const recordVersion = 1

func (r *record) owner() string { return cmp.Or(r.Owner, r.Public[:instanceLen]) }

func (r *record) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // a record is made of strings and valid JSON
	}
	return b
}

func decodeRecord(b []byte) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("reading a session's record: %w", err)
	}
	if r.Version != recordVersion {
		return nil, fmt.Errorf("reading a session's record: version %d is not known here", r.Version)
	}
	return r, nil
}

func (r *record) subscribe(uri string, on bool) {
	i := slices.Index(r.Subscribed, uri)
	switch {
	case on && i < 0:
		r.Subscribed = append(r.Subscribed, uri)
	case !on && i >= 0:
		r.Subscribed = slices.Delete(r.Subscribed, i, i+1)
	}
}

// A session id is <instance 4><public 8>-<secret 22>. Logs, traces and the
// dashboard show the part before the dash only.
const (
	instanceLen = 4
	publicLen   = 8
	secretLen   = 22
)

var b64 = base64.RawURLEncoding

// random returns n characters of base64url.
func random(n int) string {
	b := make([]byte, (n*3+3)/4)
	rand.Read(b)
	return b64.EncodeToString(b)[:n]
}

// word returns n random characters of [0-9a-z].
func word(n int) string {
	const letters = "0123456789abcdefghijklmnopqrstuv"
	b := make([]byte, n)
	rand.Read(b)
	for i := range b {
		b[i] = letters[b[i]%32]
	}
	return string(b)
}

func newID(instance string) string { return instance + word(publicLen) + "-" + random(secretLen) }

// NewInstance mints the name of a process, as it starts its sessions' ids.
func NewInstance() string { return word(instanceLen) }

func publicOf(id string) string { return id[:instanceLen+publicLen] }

func plausibleID(id string) bool {
	if len(id) != instanceLen+publicLen+1+secretLen || id[instanceLen+publicLen] != '-' {
		return false
	}
	inWord := func(r rune) bool { return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' }
	return strings.TrimFunc(publicOf(id), inWord) == ""
}

// nameOf is a session's name in the log. It holds the principal, so a session
// of another principal is not found rather than refused: one look-up, one
// answer, and the log never holds the secret.
func nameOf(principal, id string) string {
	sum := sha256.Sum256([]byte("segno session\x00" + principal + "\x00" + id))
	return b64.EncodeToString(sum[:16])
}

func newStreamName() string { return random(eventlog.StreamLen) }

// deadSuffix ends the id of a notice that nothing can be resumed from.
const deadSuffix = ".x"

func deadID() string { return random(eventlog.StreamLen) + deadSuffix }

// initialized takes the answer to the client's initialize: what the session is
// from now on. It returns what the client hears of it; the record is to be
// written with that.
func (s *Session) initialized(ch *child, raw []byte) (answer []byte) {
	msg, err := wire.Parse(raw)
	if err != nil || msg.Kind != wire.Result {
		s.doom()
		ch.settleReady(errNoInit)
		return raw
	}
	version := msg.StringAt("result", "protocolVersion")
	answer, addLogging := advertise(&msg, version)
	s.mu.Lock()
	s.rec.Negotiated = legacy(version)
	s.rec.AddLogging = addLogging
	s.mu.Unlock()
	ch.met(raw)
	ch.settleReady(nil)
	s.m.meter.Add(metric.Clients, s.rec.ClientName, 1)
	return answer
}

var errNoInit = errors.New("initialize did not succeed")

// legacy is the version that a session can have: a server that answers
// initialize with one that has no sessions is taken at its newest that has.
func legacy(version string) string {
	if wire.Modern(version) {
		return wire.Rev2025
	}
	return version
}

// advertise adds to the result of initialize what Segno does by itself: gap
// notices are log messages, so there must be logging, and what
// experimental.segno tells. It says whether logging had to be added.
func advertise(msg *wire.Message, version string) (raw []byte, addLogging bool) {
	var edits []wire.Edit
	if wire.Modern(version) {
		at, _ := msg.Find("result", "protocolVersion")
		edits = append(edits, wire.Edit{Span: at, With: []byte(`"` + wire.Rev2025 + `"`)})
	}
	caps, err := msg.Find("result", "capabilities")
	if err != nil || !caps.Ok() || msg.Raw[caps.From] != '{' {
		return wire.AppendSplice(nil, msg.Raw, edits...), false
	}
	var members []string
	if logging, _ := msg.Find("result", "capabilities", "logging"); !logging.Ok() {
		addLogging = true
		members = append(members, `"logging":{}`)
	}
	const can = `{"onGap":["oldest","live","error"],"ack":true,"keep":true}`
	const segno = `"segno":` + can
	exp, _ := msg.Find("result", "capabilities", "experimental")
	other, _ := msg.Find("result", "capabilities", "experimental", "segno")
	switch {
	case other.Ok(): // another Segno behind this one
		edits = append(edits, wire.Edit{Span: other, With: []byte(can)})
	case exp.Ok() && msg.Raw[exp.From] == '{':
		edits = append(edits, insert(msg.Raw, exp, segno))
	case !exp.Ok():
		members = append(members, `"experimental":{`+segno+`}`)
	}
	if len(members) > 0 {
		edits = append(edits, insert(msg.Raw, caps, strings.Join(members, ",")))
	}
	return wire.AppendSplice(nil, msg.Raw, edits...), addLogging
}

// insert puts a member first into the object at a place.
func insert(raw []byte, object wire.Span, member string) wire.Edit {
	if rest := bytes.TrimLeft(raw[object.From+1:object.To], " \t\r\n"); rest[0] != '}' {
		member += ","
	}
	return wire.Edit{Span: wire.Span{From: object.From + 1, To: object.From + 1}, With: []byte(member)}
}

// met notes the answer to the handshake: others may use the child too now.
func (ch *child) met(raw []byte) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.initDone = raw
}

// isHello tells whether a response is to the initialize of a session that is
// over. Others may share the child.
func (ch *child) isHello(msg *wire.Message) bool {
	n, ok := wire.IntID(msg.IDText())
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return ok && n > 0 && n == ch.hello
}

// shake is the handshake of a child that is not a session's first: initialize
// as the client sent it, then what the client set since.
func (ch *child) shake(ctx context.Context, rec *record) error {
	init, perr := wire.Parse(rec.Init)
	if perr != nil {
		return perr
	}
	raw, err := ch.exchange(ctx, &init)
	if err != nil {
		return err
	}
	ch.met(raw)
	if rec.Initialized && ch.greet() {
		if err := ch.conn.Send(ctx, wire.AppendNotification(nil, wire.Initialized, nil)); err != nil {
			return err
		}
	}
	if rec.Level != "" && !rec.AddLogging {
		ch.repeat(ctx, wire.SetLevel, "level", rec.Level)
	}
	for _, uri := range rec.Subscribed {
		ch.repeat(ctx, wire.Subscribe, "uri", uri)
	}
	return nil
}

// repeat sets again what a client set before; that it fails now is no reason
// to do without the server.
func (ch *child) repeat(ctx context.Context, method, name, value string) {
	params := append([]byte(`{"`+name+`":`), wire.AppendQuoted(nil, value)...)
	raw := wire.AppendRequest(nil, []byte("0"), method, append(params, '}'))
	msg, _ := wire.Parse(raw)
	if _, err := ch.exchange(ctx, &msg); err != nil {
		ch.first.log.Warn("repeating what the client set", "method", method, "error", err)
	}
}

// greet tells whether the child is still to be told that the client is
// initialized, which is said once.
func (ch *child) greet() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	first := !ch.greeted
	ch.greeted = true
	return first
}

// exchange sends a request of Segno's own and waits for its result.
func (ch *child) exchange(ctx context.Context, msg *wire.Message) ([]byte, error) {
	answer := make(chan []byte, 1)
	ch.mu.Lock()
	ch.next++
	id := ch.next
	ch.shaking[id] = answer
	ch.mu.Unlock()
	defer func() {
		ch.mu.Lock()
		delete(ch.shaking, id)
		ch.mu.Unlock()
	}()
	c, err := newCall(msg)
	if err != nil {
		return nil, err
	}
	if err := ch.conn.Send(ctx, spliceCall(msg, c, id)); err != nil {
		return nil, err
	}
	select {
	case raw := <-answer:
		got, perr := wire.Parse(raw)
		if perr != nil {
			return nil, perr
		}
		if got.Kind == wire.Failure {
			return nil, fmt.Errorf("the MCP server refused %s: %s", msg.Method, got.Text(got.Error))
		}
		return raw, nil
	case <-ch.ready:
		return nil, ch.err
	case <-ctx.Done():
		return nil, fmt.Errorf("the MCP server did not answer %s in time", msg.Method)
	}
}

// learn notes what a finished request set at the server, so that the next child
// can be told.
func (s *Session) learn(c *call, kind wire.Kind) {
	if c.set == "" || kind != wire.Result {
		return
	}
	switch c.method {
	case wire.SetLevel:
		s.change(func(r *record) { r.Level = c.set })
	case wire.Subscribe, wire.Unsubscribe:
		s.change(func(r *record) { r.subscribe(c.set, c.method == wire.Subscribe) })
	}
}

// answer is Segno's own answer to what needs no server: ping, and the log level
// where the server has no logging.
func (s *Session) answer(msg *wire.Message) []byte {
	switch msg.Method {
	case wire.Ping:
		return wire.AppendResponse(nil, msg.IDText(), []byte("{}"))
	case wire.SetLevel:
		if !s.addsLogging() {
			return nil
		}
		level := msg.StringAt("params", "level")
		if notice.Rank(level) < 0 {
			return wire.AppendError(nil, msg.IDText(), wire.CodeParams, "unknown log level: the levels are debug to emergency", nil)
		}
		s.change(func(r *record) { r.Level = level })
		return wire.AppendResponse(nil, msg.IDText(), []byte("{}"))
	}
	return nil
}
