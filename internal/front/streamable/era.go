package streamable

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/segno-mcp/segno/internal/wire"
)

// envelope is where a request of 2026-07-28 names its revision.
var envelope = []string{"params", "_meta", "io.modelcontextprotocol/protocolVersion"}

// verdict is which way a message goes.
type verdict uint8

const (
	inSession verdict = iota + 1 // a message of the session that the header names
	opens                        // initialize: opens a session
	steers                       // server/discover: answered as an old server would
	ignored                      // a notification of a client that speaks 2026-07-28
)

// judge decides for one message, whatever came before it on the connection or
// from the client: what it says in its body, then the version header, then
// whether a session header is there.
func judge(m *wire.Message, header string, session bool) (verdict, error) {
	switch m.Kind {
	case wire.Request:
		return judgeRequest(m, header, session)
	case wire.Notification:
		return judgeNotification(m, header, session)
	}
	if !session {
		return 0, missingSession(nil)
	}
	return inSession, checkVersion(header, nil)
}

func judgeRequest(m *wire.Message, header string, session bool) (verdict, error) {
	named, err := versionOf(m)
	switch {
	case err != nil:
		return 0, err
	case m.Method == wire.Discover:
		return steers, nil
	case wire.Modern(named):
		return 0, unsupported(named, m.IDText())
	case m.Method == wire.Initialize:
		return opens, nil
	case named != "" && !(session && wire.KnownRevision(named)):
		return 0, unsupported(named, m.IDText())
	case named == "" && wire.Modern(header) && wire.KnownRevision(header):
		return 0, &problem{status: http.StatusBadRequest, code: wire.CodeParams, id: m.IDText(),
			message: "a request of " + header + " must name its revision in params._meta"}
	}
	if err := checkVersion(header, m.IDText()); err != nil {
		return 0, err
	}
	if !session {
		return 0, missingSession(m.IDText())
	}
	return inSession, nil
}

func judgeNotification(m *wire.Message, header string, session bool) (verdict, error) {
	named, err := versionOf(m)
	switch {
	case err != nil:
		return 0, err
	case wire.Modern(named):
		return ignored, nil
	case session && wire.Modern(header) && wire.KnownRevision(header):
		return inSession, nil
	case wire.Modern(header) && wire.KnownRevision(header):
		return ignored, nil
	case !session:
		return 0, missingSession(nil)
	}
	return inSession, checkVersion(header, nil)
}

// versionOf is the revision that the message itself names, empty if none.
func versionOf(m *wire.Message) (string, error) {
	at, err := m.Find(envelope...)
	if err != nil {
		return "", &problem{status: http.StatusBadRequest, code: wire.CodeInvalid, id: idOf(m), message: err.Error()}
	}
	if !at.Ok() {
		return "", nil
	}
	named, ok := wire.Unquote(m.Text(at))
	if !ok || named == "" {
		return "", &problem{status: http.StatusBadRequest, code: wire.CodeParams, id: idOf(m),
			message: "the protocol version in params._meta must be a string"}
	}
	return named, nil
}

func idOf(m *wire.Message) []byte {
	if m.Kind != wire.Request {
		return nil
	}
	return m.IDText()
}

// checkVersion refuses a version header that names no revision (MCP 2025-06-18,
// Transports, Protocol Version Header). An absent one is the session's.
func checkVersion(header string, id []byte) error {
	if header == "" || wire.KnownRevision(header) && !wire.Modern(header) {
		return nil
	}
	return unsupported(header, id)
}

// served are the revisions served here, newest first.
var served = func() []string {
	list := slices.DeleteFunc(slices.Clone(wire.Revisions[:]), wire.Modern)
	slices.Reverse(list)
	return list
}()

func unsupported(requested string, id []byte) error {
	data, err := json.Marshal(map[string]any{"supported": served, "requested": requested})
	if err != nil {
		return err
	}
	return &problem{status: http.StatusBadRequest, code: wire.CodeVersion, id: id, data: data,
		message: "unsupported protocol version; open a session with initialize"}
}

func missingSession(id []byte) error {
	return &problem{status: http.StatusBadRequest, code: wire.CodeInvalid, id: id,
		message: "the header Mcp-Session-Id is missing; open a session with initialize"}
}

// steer answers server/discover as a server of 2025-11-25 would, with an error
// in-band, so that a client that speaks both eras opens a session, where its
// calls can be resumed.
func steer(m *wire.Message) []byte {
	return wire.AppendError(nil, m.IDText(), wire.CodeNoMethod, "method not found: "+wire.Discover, nil)
}
