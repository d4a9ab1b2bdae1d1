// Package wire knows MCP messages as bytes: what kind one is, its id, its
// method, and where its parts are. It never decodes and encodes a message; a
// change is a splice of byte ranges, so everything else stays as it was sent.
package wire

// Kind is what a message is in JSON-RPC 2.0.
type Kind uint8

// The kinds of message.
const (
	Request Kind = iota + 1
	Notification
	Result // a response that carries a result
	Failure
)

// Span is a range of bytes within a message; the zero Span means absent.
type Span struct{ From, To int }

// Ok tells whether there is such a part.
func (s Span) Ok() bool { return s.To > s.From }

// Message is one message as bytes with the places of its top-level members.
// Raw is the message without surrounding white space; it contains no newline
// outside of strings only if it came that way, see Compact.
type Message struct {
	Raw    []byte
	Kind   Kind
	Method string // unescaped; empty for responses
	ID     Span   // the id's JSON text; absent for notifications
	Params Span
	Result Span
	Error  Span

	inner inner // the members of params
}

// inner is where the members of an object are, so that looking for one does
// not go over the others' values again.
type inner struct {
	at   [6]place
	n    int8
	over bool // there are more
}

// place is where a member's name, without its quotes, and its value are.
type place struct{ name, end, from, to int32 }

// IDText is the id as it stands in the message, nil if there is none.
func (m *Message) IDText() []byte { return m.Raw[m.ID.From:m.ID.To] }

// Text is the part of the message that the span covers.
func (m *Message) Text(s Span) []byte { return m.Raw[s.From:s.To] }

// Error is a message that could not be taken, as the JSON-RPC error that says
// so. ID is the request's id if it could be read, else nil.
type Error struct {
	Code    int
	Message string
	ID      []byte
}

func (e *Error) Error() string { return e.Message }

// JSON-RPC 2.0, section 5.1, and MCP 2026-07-28, "Errors".
const (
	CodeParse          = -32700
	CodeInvalid        = -32600
	CodeNoMethod       = -32601
	CodeParams         = -32602
	CodeInternal       = -32603
	CodeRefused        = -32000 // Segno's own: a limit, or not possible now
	CodeHeaderMismatch = -32020
	CodeVersion        = -32022
)

// MaxName is the longest id, progress token or method taken, in bytes.
const MaxName = 256

// Edit replaces what a span covers. An empty span inserts before From.
type Edit struct {
	Span Span
	With []byte
}
