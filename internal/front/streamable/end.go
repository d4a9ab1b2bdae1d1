package streamable

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/wire"
)

// delete ends a session (MCP 2025-11-25, Transports, Session Management).
func (x *exchange) delete() error {
	s, err := x.session()
	if err != nil {
		return err
	}
	if err := checkVersion(x.r.Header.Get("Mcp-Protocol-Version"), nil); err != nil {
		return err
	}
	if err := s.End(x.r.Context(), "DELETE"); err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}

// ack takes the client's word for what it received.
func (x *exchange) ack() error {
	if x.r.Method != http.MethodPost {
		return invalid(http.StatusMethodNotAllowed, "only POST is served here")
	}
	x.beforehand()
	text, release, err := x.body()
	defer func() { release() }()
	if err != nil {
		return err
	}
	var said struct {
		LastEventID string `json:"lastEventId"`
	}
	if err := json.Unmarshal(text, &said); err != nil || said.LastEventID == "" {
		return &problem{status: http.StatusBadRequest, code: wire.CodeParams, message: `the body must be {"lastEventId": "…"}`}
	}
	s, err := x.session()
	if err != nil {
		return err
	}
	err = s.Ack(x.r.Context(), said.LastEventID)
	if errors.Is(err, eventlog.ErrCursor) {
		return &problem{status: http.StatusBadRequest, code: wire.CodeParams, message: "no such event id in this session"}
	}
	if err != nil {
		return err
	}
	x.w.WriteHeader(http.StatusNoContent)
	return nil
}
