package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// raw speaks Streamable HTTP by hand, to see what a client library hides.
type raw struct {
	t       *testing.T
	url     string
	session string
}

// event is one event of a stream.
type event struct {
	id   string
	data string
}

// rpc is what the tests look at in a message.
type rpc struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    struct {
			Outcome string `json:"outcome"`
		} `json:"data"`
	} `json:"error"`
	Params struct {
		Progress int    `json:"progress"`
		Message  string `json:"message"`
		Logger   string `json:"logger"`
		Data     struct {
			Gap struct {
				Lost int `json:"lost"`
			} `json:"gap"`
		} `json:"data"`
	} `json:"params"`
}

func (e event) rpc(t *testing.T) rpc {
	t.Helper()
	var m rpc
	if err := json.Unmarshal([]byte(e.data), &m); err != nil {
		t.Fatalf("event %s: %v: %s", e.id, err, e.data)
	}
	return m
}

// hello opens a session as a client of the given revision.
func hello(t *testing.T, ctx context.Context, url, version string) *raw {
	t.Helper()
	r := &raw{t: t, url: url}
	answer := r.post(ctx, fmt.Sprintf(`{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"peer-raw","version":"1"}}}`, version))
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("initialize: %s", answer.Status)
	}
	io.Copy(io.Discard, answer.Body)
	r.session = answer.Header.Get("Mcp-Session-Id")
	done := r.post(ctx, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	done.Body.Close()
	if done.StatusCode != http.StatusAccepted {
		t.Fatalf("notifications/initialized: %s", done.Status)
	}
	return r
}

func (r *raw) do(ctx context.Context, method, body string, header http.Header) *http.Response {
	r.t.Helper()
	answer, err := r.try(ctx, method, body, header)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func (r *raw) try(ctx context.Context, method, body string, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, r.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header
	if r.session != "" {
		request.Header.Set("Mcp-Session-Id", r.session)
	}
	return http.DefaultClient.Do(request)
}

func posting() http.Header {
	return http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
}

func (r *raw) post(ctx context.Context, body string) *http.Response {
	r.t.Helper()
	return r.do(ctx, http.MethodPost, body, posting())
}

// resume opens a stream again from an event id.
func (r *raw) resume(ctx context.Context, id string) *http.Response {
	r.t.Helper()
	return r.do(ctx, http.MethodGet, "", http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {id}})
}

// events hands out the events of a body as they come, until it ends.
func events(body io.Reader) func(func(event, error) bool) {
	return func(yield func(event, error) bool) {
		in := bufio.NewReader(body)
		for {
			text, id, err := readEvent(in)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(event{}, err)
				return
			}
			if e := (event{id: id, data: data(text)}); (e.id != "" || e.data != "") && !yield(e, nil) {
				return
			}
		}
	}
}

func data(text []byte) string {
	var lines []string
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			lines = append(lines, strings.TrimPrefix(value, " "))
		}
	}
	return strings.Join(lines, "\n")
}

// outcomes reads a stream to its end and returns the responses on it.
func (r *raw) outcomes(answer *http.Response) (found []rpc) {
	r.t.Helper()
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		r.t.Errorf("resuming: %s", answer.Status)
		return nil
	}
	for e, err := range events(answer.Body) {
		if err != nil {
			r.t.Errorf("reading a resumed stream: %v", err)
			return found
		}
		if e.data == "" {
			continue
		}
		if m := e.rpc(r.t); m.Method == "" {
			found = append(found, m)
		}
	}
	return found
}

// toldAll resumes a stream from the place before its first event: the progress
// that comes and what the gap notices call lost are n together, and a notice
// comes before what follows the gap.
func toldAll(t *testing.T, r *raw, ctx context.Context, id string, n int) {
	t.Helper()
	resumed := r.resume(ctx, id)
	defer resumed.Body.Close()
	came, lost, last := 0, 0, 0
	for e, err := range events(resumed.Body) {
		if err != nil {
			t.Fatal(err)
		}
		if e.data == "" {
			continue
		}
		m := e.rpc(t)
		switch {
		case m.Method == "notifications/message" && m.Params.Logger == "segno":
			lost += m.Params.Data.Gap.Lost
			last += m.Params.Data.Gap.Lost
		case m.Method == "notifications/progress":
			if came++; m.Params.Progress != last+1 {
				t.Errorf("step %d after %d without a notice", m.Params.Progress, last)
			}
			last = m.Params.Progress
		}
	}
	if lost == 0 || came+lost != n {
		t.Errorf("%d steps came, %d were told as lost: want %d together", came, lost, n)
	}
}
