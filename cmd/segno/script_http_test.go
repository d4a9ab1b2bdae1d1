package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// request reads the words of a request: [-H 'K: V'] METHOD URL [BODY].
func request(ts *testscript.TestScript, args []string) *http.Request {
	header := http.Header{}
	for len(args) > 1 && args[0] == "-H" {
		k, v, _ := strings.Cut(args[1], ":")
		header.Set(k, strings.TrimSpace(v))
		args = args[2:]
	}
	if len(args) < 2 {
		ts.Fatalf("usage: [-H 'K: V'] METHOD URL [BODY]")
	}
	r, err := http.NewRequest(args[0], args[1], strings.NewReader(strings.Join(args[2:], " ")))
	ts.Check(err)
	r.Header = header
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	if args[0] == http.MethodPost && header.Get("Accept") == "" {
		header.Set("Accept", "application/json, text/event-stream")
		header.Set("Content-Type", "application/json")
	}
	return r
}

func send(r *http.Request) (*http.Response, error) {
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	return client.Do(r)
}

func head(resp *http.Response) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, resp.Status)
	resp.Header.Write(&b)
	fmt.Fprintln(&b)
	return b.String()
}

func ask(ts *testscript.TestScript, neg bool, args []string) {
	r := request(ts, args)
	resp, err := send(r)
	if neg {
		if err == nil {
			resp.Body.Close()
			ts.Fatalf("%s %s was answered: %s", r.Method, r.URL, resp.Status)
		}
		return
	}
	ts.Check(err)
	defer resp.Body.Close()
	io.WriteString(ts.Stdout(), head(resp))
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		ts.Setenv("session", id)
	}
}

// answers are the streams of a script that are being read.
type answers map[string]*reading

type reading struct {
	text bytes.Buffer
	err  error
	done chan struct{}
}

type answersKey struct{}

func stream(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 3 {
		ts.Fatalf("usage: stream NAME [-H 'K: V'] METHOD URL [BODY]")
	}
	resp, err := send(request(ts, args[1:]))
	ts.Check(err)
	a := &reading{done: make(chan struct{})}
	a.text.WriteString(head(resp))
	ts.Value(answersKey{}).(answers)[args[0]] = a
	go func() {
		defer close(a.done)
		defer resp.Body.Close()
		_, a.err = io.Copy(&a.text, resp.Body)
	}()
}

// answer prints an answer that has ended as it should.
func answer(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: answer NAME")
	}
	a := ts.Value(answersKey{}).(answers)[args[0]]
	if a == nil {
		ts.Fatalf("there is no stream %s", args[0])
	}
	select {
	case <-a.done:
	case <-time.After(30 * time.Second):
		ts.Fatalf("the answer %s does not end", args[0])
	}
	io.WriteString(ts.Stdout(), a.text.String())
	if a.err != nil {
		ts.Fatalf("the answer %s was cut: %v\n%s", args[0], a.err, a.text.String())
	}
}
