package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/segno-mcp/segno/bench/client"
	"github.com/segno-mcp/segno/bench/tool"
)

// serveBare is the role "bare": a handler that makes the events itself, without
// a child, a session or a store. It is what net/http can send.
func serveBare() error { return serve(http.HandlerFunc(bare)) }

type bareRequest struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments tool.Args
	}
}

func bare(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodGet {
		idle(w, q)
		return
	}
	body, err := io.ReadAll(q.Body)
	var b bareRequest
	if err == nil {
		err = json.Unmarshal(body, &b)
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case b.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case b.Params.Name == "flood":
		flood(w, b)
	default:
		w.Header().Set("Mcp-Session-Id", rand.Text())
		w.Header().Set("Content-Type", "application/json")
		w.Write(result(b.ID, b.Params.Arguments.Text))
	}
}

func result(id json.RawMessage, text string) []byte {
	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(b, `,"result":{"content":[{"type":"text","text":`...)
	return append(strconv.AppendQuote(b, text), `}]}}`...)
}

func idle(w http.ResponseWriter, q *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	<-q.Context().Done()
}

func flood(w http.ResponseWriter, b bareRequest) {
	const burst = 64 << 10
	w.Header().Set("Content-Type", "text/event-stream")
	out := make([]byte, 0, 2*burst)
	for i := 1; i <= b.Params.Arguments.N; i++ {
		out = append(out, "data: "...)
		out = tool.AppendProgress(out, b.ID, i, b.Params.Arguments.Bytes)
		if out = append(out, '\n'); len(out) < burst {
			continue
		}
		if _, err := w.Write(out); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		out = out[:0]
	}
	out = append(out, "data: "...)
	out = append(out, result(b.ID, "done")...)
	w.Write(append(out, "\n\n"...))
}

// files is http.FileServer with the bytes that a resume of n events takes: the
// frames as Segno writes them, with ids of the length it uses.
type files struct{}

func (files) name() string { return "http.FileServer" }

const filesID = "id: 0123456789abcdefghijkl.abcdef."

func frames(n, size int) []byte {
	var b []byte
	for i := 1; i <= n; i++ {
		b = append(b, filesID...)
		b = strconv.AppendInt(b, int64(i), 10)
		b = append(b, "\ndata: "...)
		b = append(tool.AppendProgress(b, []byte("1"), i, size), '\n')
	}
	return append(append(b, "data: "...), append(result([]byte("1"), "done"), "\n\n"...)...)
}

// serveFiles is the role "files": it serves a folder, under the path of MCP too.
func serveFiles(dir string) error {
	return serve(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		http.ServeFile(w, q, filepath.Join(dir, filepath.Base(client.Path)))
	}))
}

// writeFrames makes the file that serveFiles sends.
func writeFrames(dir string, n, size int) error {
	return os.WriteFile(filepath.Join(dir, filepath.Base(client.Path)), frames(n, size), 0o600)
}
