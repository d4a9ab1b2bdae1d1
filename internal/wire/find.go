package wire

import (
	"bytes"
	"fmt"
	"strings"
)

// Find returns the place of a member by its path from the top level, such as
// "params", "_meta", "progressToken". The zero Span means that there is none.
// It is an error if a name on the path is there twice or in another case, as
// two parsers could then see two different values. The message must be one
// that Parse let through.
func (m *Message) Find(path ...string) (Span, error) {
	at := Span{0, len(m.Raw)}
	for n, name := range path {
		if n == 0 {
			if known, ok := m.topLevel(name); ok {
				at = known
				continue
			}
		}
		var err error
		if n == 1 && path[0] == "params" && m.inner.n > 0 && !m.inner.over {
			at, err = m.inner.find(m.Raw, name)
		} else {
			at, err = find(m.Raw, at, name)
		}
		if err != nil {
			return Span{}, err
		}
		if !at.Ok() {
			return Span{}, nil
		}
	}
	return at, nil
}

// topLevel is what Parse already found and checked.
func (m *Message) topLevel(name string) (Span, bool) {
	switch name {
	case "id":
		return m.ID, true
	case "params":
		return m.Params, true
	case "result":
		return m.Result, true
	case "error":
		return m.Error, true
	}
	return Span{}, false
}

// find looks for one member of the object at a place.
func find(b []byte, in Span, name string) (Span, error) {
	if !in.Ok() || b[in.From] != '{' {
		return Span{}, nil
	}
	var found Span
	i := skipSpace(b, in.From+1)
	for i < in.To && b[i] == '"' {
		end, from := skipName(b, i)
		if from < 0 {
			return Span{}, notJSON(from)
		}
		to := skipValue(b, from, maxDepth)
		if to < 0 {
			return Span{}, notJSON(to)
		}
		same, err := isName(b[i+1:end], name)
		if err != nil {
			return Span{}, err
		}
		if same && found.Ok() {
			return Span{}, fmt.Errorf("member %q twice", name)
		}
		if same {
			found = Span{from, to}
		}
		if i = skipSpace(b, to); i < in.To && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	return found, nil
}

func isName(inside []byte, name string) (bool, error) {
	if string(inside) == name {
		return true, nil
	}
	escaped := bytes.IndexByte(inside, '\\') >= 0
	if !escaped && (len(inside) < len(name) || len(inside) > 3*len(name)) {
		return false, nil
	}
	s, _ := unescape(inside)
	if s == name {
		return true, nil
	}
	if strings.EqualFold(s, name) {
		return false, fmt.Errorf("member %q in another case", name)
	}
	return false, nil
}

// StringAt is the string at the path, "" if there is none or it is no string.
func (m *Message) StringAt(path ...string) string {
	at, err := m.Find(path...)
	if err != nil || !at.Ok() {
		return ""
	}
	s, _ := Unquote(m.Text(at))
	return s
}

// find looks for a member among those that the scan noted.
func (in *inner) find(b []byte, name string) (found Span, err error) {
	for i := range in.at[:in.n] {
		p := &in.at[i]
		same, err := isName(b[p.name:p.end], name)
		if err != nil {
			return Span{}, err
		}
		if same && found.Ok() {
			return Span{}, fmt.Errorf("member %q twice", name)
		}
		if same {
			found = Span{int(p.from), int(p.to)}
		}
	}
	return found, nil
}
