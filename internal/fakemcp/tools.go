package fakemcp

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// Tools are the tools with what they do. All take the argument "key", under
// which Runs counts them.
var Tools = map[string]string{
	"echo":    "returns its arguments",
	"count":   "{n, interval_ms, pad} sends n progress events with serial numbers, then its result",
	"quiet":   "{ms} says nothing for a while, then its result",
	"ask":     "{method, params} sends a request during the call (elicitation/create if none is named) and returns the whole answer",
	"log":     "{n, level} sends n log messages, then its result",
	"flood":   "{n, size} sends n events of size bytes as fast as it can: progress with a token, else log messages",
	"big":     "{size} returns a text of so many bytes",
	"late":    "{n} sends its result and then n progress events",
	"twice":   "answers two times",
	"batch":   "sends a log message and its result in one array",
	"hang":    "never answers; ends when it is cancelled",
	"die":     "{ms, code, text} exits after a while in mid-call, having written text to stdout",
	"fail":    "{code, text} answers with a JSON-RPC error",
	"wrong":   "{text} returns a result that says isError",
	"changed": "{text} says that the list of tools, resources or prompts has changed, then its result",
	"updated": "{text} says that a resource was updated, then its result",
	"garbage": "{text} writes text to stdout as it is, then its result",
	"stderr":  "{n, text} writes text to stderr n times, then its result",
	"stall":   "{ms} answers and then reads nothing for a while",
	"runs":    "{key} returns how often the tool or key ran",
	"env":     "{text} returns the environment variable of that name, or the process id for none",
}

var tools = map[string]func(context.Context, *call) answer{
	"echo": echo, "count": count, "quiet": quiet, "ask": ask, "log": logs, "flood": flood,
	"big": big, "late": late, "twice": twice, "batch": batch, "hang": hang, "die": die,
	"fail": fail, "wrong": wrong, "changed": changed, "updated": updated, "garbage": garbage,
	"stderr": stderr, "stall": stall, "runs": runs, "env": env,
}

// call is one run of a tool.
type call struct {
	server *Server
	msg    wire.Message
	name   string
	token  string // JSON text; empty: none
	text   string // of the arguments
	args   arguments
}

type arguments struct {
	Key      string `json:"key"`
	N        int    `json:"n"`
	Interval int    `json:"interval_ms"`
	MS       int    `json:"ms"`
	Pad      int    `json:"pad"`
	Size     int    `json:"size"`
	Code     int    `json:"code"`
	Text     string `json:"text"`
	Level    string `json:"level"`
	Method   string `json:"method"`
	Params   string `json:"params"`
}

func toolList() string {
	var b strings.Builder
	b.WriteString(`{"tools":[`)
	for n, name := range slices.Sorted(maps.Keys(Tools)) {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, Tools[name])
	}
	return b.String() + "]}"
}

// text is a tool's result with one text in it.
func text(s string) answer {
	return answer{result: `{"content":[{"type":"text","text":` + string(wire.AppendQuoted(nil, s)) + `}]}`}
}

// progress sends progress number n, if the client gave a token.
func (c *call) progress(n, total, pad int) {
	if c.token == "" {
		return
	}
	c.server.Notify(wire.ProgressNote, fmt.Sprintf(`{"progressToken":%s,"progress":%d,"total":%d,"message":"%d %s"}`,
		c.token, n, total, n, strings.Repeat("x", pad)))
}

func (c *call) log(level string, n, pad int) {
	if level == "" {
		level = "info"
	}
	c.server.Notify(wire.LogNote, fmt.Sprintf(`{"level":%q,"logger":"fake","data":"%d %s"}`, level, n, strings.Repeat("x", pad)))
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func echo(_ context.Context, c *call) answer {
	a := text(c.text)
	if c.text != "" {
		a.result = strings.TrimSuffix(a.result, "}") + `,"structuredContent":` + c.text + "}"
	}
	return a
}

func count(ctx context.Context, c *call) answer {
	for n := 1; n <= c.args.N && ctx.Err() == nil; n++ {
		c.progress(n, c.args.N, c.args.Pad)
		sleep(ctx, ms(c.args.Interval))
	}
	return text(fmt.Sprintf("counted to %d", c.args.N))
}

func quiet(ctx context.Context, c *call) answer {
	sleep(ctx, ms(c.args.MS))
	return text("quiet")
}

func ask(ctx context.Context, c *call) answer {
	method, params := c.args.Method, c.args.Params
	if method == "" {
		method, params = wire.Elicitation, `{"message":"sure?","requestedSchema":{"type":"object","properties":{}}}`
	}
	if params == "" {
		params = "{}"
	}
	m, err := c.server.Ask(ctx, method, params)
	if err != nil {
		return answer{code: wire.CodeInternal, message: err.Error()}
	}
	return text(string(m.Raw))
}

func logs(_ context.Context, c *call) answer {
	for n := 1; n <= c.args.N; n++ {
		c.log(c.args.Level, n, c.args.Pad)
	}
	return text("logged")
}

func flood(ctx context.Context, c *call) answer {
	for n := 1; n <= c.args.N && ctx.Err() == nil; n++ {
		if c.token == "" {
			c.log(c.args.Level, n, c.args.Size)
		} else {
			c.progress(n, c.args.N, c.args.Size)
		}
	}
	return text("flooded")
}

func big(_ context.Context, c *call) answer { return text(strings.Repeat("x", c.args.Size)) }

func late(_ context.Context, c *call) answer {
	c.server.reply(c.msg, text("late"))
	for n := 1; n <= c.args.N; n++ {
		c.progress(n, c.args.N, c.args.Pad)
	}
	return answer{}
}

func twice(_ context.Context, c *call) answer {
	c.server.reply(c.msg, text("first"))
	return text("second")
}

func batch(_ context.Context, c *call) answer {
	note := wire.AppendNotification(nil, wire.LogNote, []byte(`{"level":"info","data":"in a batch"}`))
	result := wire.AppendResponse(nil, c.msg.IDText(), []byte(text("batch").result))
	return c.raw(fmt.Sprintf("[%s,%s]\n", note, result), answer{})
}

// raw writes to stdout and then gives an answer.
func (c *call) raw(s string, then answer) answer {
	if err := c.server.Raw(s); err != nil {
		return answer{code: wire.CodeInternal, message: err.Error()}
	}
	return then
}

func hang(ctx context.Context, _ *call) answer {
	<-ctx.Done()
	return answer{}
}

func die(ctx context.Context, c *call) answer {
	sleep(ctx, ms(c.args.MS))
	if c.args.Text != "" {
		c.raw(c.args.Text, answer{})
	}
	if c.server.opt.Exit != nil {
		c.server.opt.Exit(c.args.Code)
	}
	c.server.Hangup()
	return answer{}
}

func fail(_ context.Context, c *call) answer {
	code := c.args.Code
	if code == 0 {
		code = wire.CodeInternal
	}
	return answer{code: code, message: c.args.Text}
}

func wrong(_ context.Context, c *call) answer {
	a := text(c.args.Text)
	a.result = strings.TrimSuffix(a.result, "}") + `,"isError":true}`
	return a
}

func changed(_ context.Context, c *call) answer {
	c.server.Changed(c.args.Text)
	return text("changed")
}

func updated(_ context.Context, c *call) answer {
	c.server.Notify(wire.ResourceUpdated, `{"uri":`+string(wire.AppendQuoted(nil, c.args.Text))+`}`)
	return text("updated")
}

func garbage(_ context.Context, c *call) answer { return c.raw(c.args.Text, text("garbage")) }

func stderr(_ context.Context, c *call) answer {
	if w := c.server.opt.Stderr; w != nil {
		for range max(1, c.args.N) {
			io.WriteString(w, c.args.Text)
		}
	}
	return text("stderr")
}

func stall(_ context.Context, c *call) answer {
	c.server.Stall(ms(c.args.MS))
	return text("stalled")
}

func runs(_ context.Context, c *call) answer { return text(fmt.Sprint(c.server.Runs(c.args.Key))) }

func env(_ context.Context, c *call) answer {
	if c.args.Text == "" {
		return text(fmt.Sprint(os.Getpid()))
	}
	return text(os.Getenv(c.args.Text))
}
