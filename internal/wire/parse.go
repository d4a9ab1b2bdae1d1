package wire

import (
	"bytes"
	"fmt"
	"strings"
)

// member is one of the top-level members that mean something in JSON-RPC 2.0.
type member int

const (
	unknown member = iota - 1
	version
	id
	method
	params
	result
	failure
	members
)

var memberNames = [members]string{"jsonrpc", "id", "method", "params", "result", "error"}

// top is what a scan of the top level found.
type top struct {
	at  [members]Span
	in  inner
	bad string // why the object is no message, if that shows in the names
	two bool   // the id is there twice: neither is it
}

// Parse reads one message. b is kept: the message is a view of it. The text is
// checked to be JSON as a whole (RFC 8259; nesting up to 512), so what Parse
// lets through can be forwarded as it is. Whether it is UTF-8 is not checked,
// see FixUTF8. One leading byte order mark and the white space around are left
// out.
//
// The error's code is -32700 for what is not JSON and -32600 for JSON that is
// no message: a top-level member twice or in another case, an id that is
// neither string nor integer (1.0 and 1e3 are integers and keep their
// spelling), and the rest of JSON-RPC 2.0. Two things many peers do are taken:
// "params": null, and "error": null beside a result. A failure with a null id
// or without one is a Failure whose ID is absent.
func Parse(b []byte) (Message, *Error) {
	var m Message
	err := m.parse(b)
	return m, err
}

// parse fills m, which must be zero, and leaves in it what could be read when
// there is an error.
func (m *Message) parse(b []byte) *Error {
	b = trim(b)
	m.Raw = b[:len(b):len(b)]
	if len(b) == 0 || b[0] != '{' {
		return notObject(b)
	}
	var t top
	end := t.scan(b)
	if end >= 0 && end != len(b) {
		end = ^end
	}
	if end < 0 {
		return notJSON(end)
	}
	bad := t.fill(m)
	if bad == "" {
		return nil
	}
	err := &Error{Code: CodeInvalid, Message: bad}
	// The id of a bad response is one of the other side's requests; an answer
	// with it would hit an unrelated one of the sender's own.
	if m.ID.Ok() && (t.at[method].Ok() || !t.at[result].Ok() && !t.at[failure].Ok()) {
		err.ID = bytes.Clone(m.IDText())
	}
	return err
}

// mark is the byte order mark.
var mark = []byte("\xef\xbb\xbf")

// trim takes away one byte order mark and the white space around.
func trim(b []byte) []byte {
	b = bytes.TrimPrefix(b, mark)
	if len(b) > 0 && b[0] > ' ' && b[len(b)-1] > ' ' {
		return b
	}
	return bytes.Trim(b, " \t\r\n")
}

func notJSON(end int) *Error {
	if end == tooDeep {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("nested deeper than %d", maxDepth)}
	}
	return &Error{Code: CodeParse, Message: fmt.Sprintf("not JSON at byte %d", ^end)}
}

func notObject(b []byte) *Error {
	end := skipValue(b, 0, maxDepth)
	if end >= 0 && end != len(b) {
		end = ^end
	}
	if end < 0 {
		return notJSON(end)
	}
	return &Error{Code: CodeInvalid, Message: "a message is a JSON object"}
}

// scan goes over the object that b starts with and returns the place after it.
func (t *top) scan(b []byte) int {
	i := skipSpace(b, 1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		name := i + 1
		end, from := skipName(b, i)
		if from < 0 {
			return from
		}
		var to int
		if from < len(b) && b[from] == '{' && string(b[name:end]) == "params" {
			to = t.in.scan(b, from+1, maxDepth-1)
		} else {
			to = skipValue(b, from, maxDepth-1)
		}
		if to < 0 {
			return to
		}
		t.set(b[name:end], Span{from, to})
		i = skipSpace(b, to)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
			continue
		}
		if i < len(b) && b[i] == '}' {
			return i + 1
		}
		return ^i
	}
}

func (t *top) set(name []byte, at Span) {
	m := memberOf(name)
	if m == unknown {
		if m = unusual(name); m == unknown {
			return
		}
		if s, _ := unescape(name); s != memberNames[m] {
			t.bad = fmt.Sprintf("member %q in another case", memberNames[m])
			return
		}
	}
	if t.at[m].Ok() {
		t.bad = fmt.Sprintf("member %q twice", memberNames[m])
		t.two = t.two || m == id
	}
	t.at[m] = at
}

func memberOf(name []byte) member {
	switch string(name) {
	case "jsonrpc":
		return version
	case "id":
		return id
	case "method":
		return method
	case "params":
		return params
	case "result":
		return result
	case "error":
		return failure
	}
	return unknown
}

// unusual finds the member that a name spelled with escapes or in another case
// would be to some parser.
func unusual(name []byte) member {
	if len(name) > 10 && bytes.IndexByte(name, '\\') < 0 {
		return unknown
	}
	s, _ := unescape(name)
	for m, known := range memberNames {
		if strings.EqualFold(s, known) {
			return member(m)
		}
	}
	return unknown
}

// fill makes a message of what the scan found and says what is wrong with it.
func (t *top) fill(m *Message) string {
	if s := t.at[id]; s.Ok() && !t.two && ValidID(m.Text(s)) == nil {
		m.ID = s
	}
	m.inner = t.in
	m.Params, m.Result, m.Error = t.at[params], t.at[result], t.at[failure]
	if m.Result.Ok() && m.Error.Ok() {
		dropNull(m)
	}
	if t.bad != "" {
		return t.bad
	}
	if v := m.Text(t.at[version]); string(v) != `"2.0"` {
		if s, _ := Unquote(v); s != "2.0" {
			return `member "jsonrpc" must be "2.0"`
		}
	}
	if t.at[method].Ok() {
		return t.call(m)
	}
	return t.response(m)
}

// dropNull leaves out the null one of a result and an error.
func dropNull(m *Message) {
	if string(m.Text(m.Error)) == "null" {
		m.Error = Span{}
	} else if string(m.Text(m.Result)) == "null" {
		m.Result = Span{}
	}
}

// call is what a message with a method must be.
func (t *top) call(m *Message) string {
	name := m.Text(t.at[method])
	if name[0] != '"' {
		return `member "method" must be a string`
	}
	m.Method = methodName(name[1 : len(name)-1])
	if len(m.Method) > MaxName {
		m.Method = ""
		return fmt.Sprintf(`member "method" is longer than %d bytes`, MaxName)
	}
	if m.Result.Ok() || m.Error.Ok() {
		return "a message is either a call or a response"
	}
	if m.Params.Ok() {
		if c := m.Raw[m.Params.From]; c != '{' && c != '[' && c != 'n' {
			return `member "params" must be an object or an array`
		}
	}
	m.Kind = Notification
	if t.at[id].Ok() {
		m.Kind = Request
		if !m.ID.Ok() {
			return ValidID(m.Text(t.at[id])).Error()
		}
	}
	return ""
}

// response is what a message without a method must be.
func (t *top) response(m *Message) string {
	switch {
	case !m.Result.Ok() && !m.Error.Ok():
		return `member "method" is missing`
	case m.Result.Ok() && m.Error.Ok():
		return "a response has a result or an error, not both"
	case m.Error.Ok() && m.Raw[m.Error.From] != '{':
		return `member "error" must be an object`
	}
	m.Kind = Result
	if m.Error.Ok() {
		m.Kind = Failure
	}
	given := t.at[id]
	if m.ID.Ok() || m.Kind == Failure && (!given.Ok() || string(m.Text(given)) == "null") {
		return ""
	}
	if !given.Ok() {
		return `member "id" is missing`
	}
	return ValidID(m.Text(given)).Error()
}
