package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/segno-mcp/segno/internal/sse"
)

// client speaks MCP 2025-11-25 over Streamable HTTP as a plain client would: it
// remembers the last event id of a stream and, when the connection breaks, asks
// for what comes after it (Transports, Resumability and Redelivery).
type client struct {
	url     string
	http    *http.Client
	header  http.Header
	session string
	version string
	ids     int
	retry   time.Duration
}

const revision = "2025-11-25"

// defaultRetry is for servers that do not say how long to wait.
const defaultRetry = 2 * time.Second

// maxTries bounds how often a lost stream is asked for in a row.
const maxTries = 8

func newClient(url string, o *Options) *client {
	return &client{url: url, header: o.Header, retry: o.retry, http: &http.Client{Transport: &http.Transport{}}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// message is any JSON-RPC message, as far as the story needs it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (m *message) answers(id int) bool { return m.Method == "" && string(m.ID) == strconv.Itoa(id) }

// progress is what the example server tells of each row.
type progress struct {
	Progress float64 `json:"progress"`
	Message  string  `json:"message"`
	Meta     struct {
		Checksum string `json:"checksum"`
	} `json:"_meta"`
}

// outcome is the tool's structured result.
type outcome struct {
	URI      string `json:"uri"`
	Rows     int    `json:"rows"`
	Checksum string `json:"checksum"`
}

// arrival is one event that came.
type arrival struct {
	conn     int
	id       string // of the event
	msg      *message
	progress *progress
}

// witness sees what happens to a call.
type witness interface {
	connected(n int, method, lastEventID string)
	arrived(arrival)
	broke(n int, err error, wait time.Duration)
}

func (c *client) request(ctx context.Context, method string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.header)
	req.Header.Set("Accept", "text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	if c.session != "" {
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.version != "" {
		req.Header.Set("MCP-Protocol-Version", c.version)
	}
	return req, nil
}

// post sends one message; the caller closes the body.
func (c *client) post(ctx context.Context, id int, method string, params any) (*http.Response, error) {
	body := map[string]any{"jsonrpc": "2.0", "method": method}
	if id > 0 {
		body["id"] = id
	}
	if params != nil {
		body["params"] = params
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	req, err := c.request(ctx, http.MethodPost, b)
	if err != nil {
		return nil, err
	}
	return c.do(req)
}

func (c *client) do(req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 || resp.StatusCode == http.StatusNoContent {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, fmt.Errorf("the server answered %s %s", resp.Status, bytes.TrimSpace(text))
	}
	return resp, nil
}

// ask sends a request and returns its result, for what is answered at once.
func (c *client) ask(ctx context.Context, method string, params, result any) (http.Header, error) {
	c.ids++
	resp, err := c.post(ctx, c.ids, method, params)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m, err := c.answer(resp, c.ids)
	if err != nil {
		return nil, err
	}
	return resp.Header, json.Unmarshal(m.Result, result)
}

// answer reads a response in either form.
func (c *client) answer(resp *http.Response, id int) (*message, error) {
	m := new(message)
	if !streams(resp) {
		if err := json.NewDecoder(resp.Body).Decode(m); err != nil {
			return nil, err
		}
		return m, m.err()
	}
	r := sse.NewReader(resp.Body)
	for {
		ev, err := r.Next()
		if err != nil {
			return nil, err
		}
		*m = message{}
		if len(ev.Data) > 0 && json.Unmarshal(ev.Data, m) == nil && m.answers(id) {
			return m, m.err()
		}
	}
}

func streams(resp *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return kind == "text/event-stream"
}

func (m *message) err() error {
	if m.Error != nil {
		return fmt.Errorf("%s (%d)", m.Error.Message, m.Error.Code)
	}
	return nil
}

func (c *client) initialize(ctx context.Context) error {
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	header, err := c.ask(ctx, "initialize", map[string]any{
		"protocolVersion": revision,
		"capabilities":    map[string]any{},
		"clientInfo":      map[string]any{"name": "segno-demo", "version": "1"},
	}, &result)
	if err != nil {
		return err
	}
	c.session, c.version = header.Get("Mcp-Session-Id"), result.ProtocolVersion
	resp, err := c.post(ctx, 0, "notifications/initialized", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// read fetches a resource's text.
func (c *client) read(ctx context.Context, uri string) (string, error) {
	var result struct {
		Contents []struct {
			Text string `json:"text"`
		} `json:"contents"`
	}
	if _, err := c.ask(ctx, "resources/read", map[string]any{"uri": uri}, &result); err != nil {
		return "", err
	}
	if len(result.Contents) == 0 {
		return "", errors.New("the resource is empty")
	}
	return result.Contents[0].Text, nil
}

// call runs a tool and stays with its stream over as many connections as it
// takes.
func (c *client) call(ctx context.Context, tool string, args any, w witness) (*outcome, error) {
	c.ids++
	f := &following{client: c, id: c.ids, witness: w, retry: c.retry, conn: 1}
	resp, err := c.post(ctx, f.id, "tools/call", map[string]any{
		"name": tool, "arguments": args, "_meta": map[string]any{"progressToken": f.id},
	})
	if err != nil {
		return nil, err
	}
	w.connected(1, http.MethodPost, "")
	for {
		m, err := f.follow(resp)
		if m != nil {
			return toolOutcome(m)
		}
		w.broke(f.conn, err, f.retry)
		if resp, err = f.reconnect(ctx); err != nil {
			return nil, err
		}
	}
}

func toolOutcome(m *message) (*outcome, error) {
	if err := m.err(); err != nil {
		return nil, err
	}
	var result struct {
		IsError    bool    `json:"isError"`
		Structured outcome `json:"structuredContent"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return nil, err
	}
	if result.IsError {
		return nil, errors.New("the tool failed")
	}
	return &result.Structured, nil
}

// following is a call's stream and the client's place in it.
type following struct {
	client  *client
	witness witness
	id      int
	conn    int
	last    string // event id
	retry   time.Duration
}

// follow takes events until the call's outcome, or until the connection ends.
func (f *following) follow(resp *http.Response) (*message, error) {
	defer resp.Body.Close()
	if !streams(resp) {
		m, err := f.client.answer(resp, f.id)
		if m != nil {
			f.witness.arrived(arrival{conn: f.conn, msg: m})
		}
		return m, err
	}
	r := sse.NewReader(resp.Body)
	for {
		ev, err := r.Next()
		if wait, ok := r.Retry(); ok {
			f.retry = wait
		}
		if id := r.LastID(); id != "" {
			f.last = id
		}
		if err != nil {
			return nil, err
		}
		if m := f.take(ev); m != nil && m.answers(f.id) {
			return m, nil
		}
	}
}

func (f *following) take(ev sse.Event) *message {
	a := arrival{conn: f.conn, id: ev.ID}
	if len(ev.Data) > 0 {
		a.msg = new(message)
		if json.Unmarshal(ev.Data, a.msg) != nil {
			return nil
		}
		if a.msg.Method == "notifications/progress" {
			a.progress = new(progress)
			_ = json.Unmarshal(a.msg.Params, a.progress)
		}
	}
	f.witness.arrived(a)
	return a.msg
}

// reconnect waits as long as the server asked and then asks for what comes
// after the last event.
func (f *following) reconnect(ctx context.Context) (*http.Response, error) {
	var err error
	for range maxTries {
		select {
		case <-time.After(f.retry):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		var req *http.Request
		if req, err = f.client.request(ctx, http.MethodGet, nil); err != nil {
			return nil, err
		}
		if f.last != "" {
			req.Header.Set("Last-Event-ID", f.last)
		}
		var resp *http.Response
		if resp, err = f.client.do(req); err == nil {
			f.conn++
			f.witness.connected(f.conn, http.MethodGet, f.last)
			return resp, nil
		}
		f.witness.broke(f.conn+1, err, f.retry)
	}
	return nil, fmt.Errorf("connecting again: %w", err)
}
