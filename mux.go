package segno

import (
	"net/http"

	"github.com/segno-mcp/segno/internal/front/streamable"
	"github.com/segno-mcp/segno/internal/wire"
)

// newMux leads a request to the front that speaks its language.
func newMux(path string, front *streamable.Front) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case path, path + "/":
			front.ServeHTTP(w, r)
		case path + "/ack":
			front.ServeAck(w, r)
		default:
			notFound(w, path)
		}
	})
}

func notFound(w http.ResponseWriter, path string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	// The client has the status; that it went away is no concern of ours.
	_, _ = w.Write(wire.AppendError(nil, nil, wire.CodeInvalid, "nothing is served here; the MCP endpoint is "+path, nil))
}
