package wire

import "bytes"

// Outline reads what is too long to keep, or is no JSON: it is given the bytes
// as they pass and remembers what stands at the top level. The id may stand at
// either end; the TypeScript SDK writes the result first. Only an object that
// is alone counts, as a log line may well quote a message. The zero Outline is
// ready.
type Outline struct {
	depth   int
	begun   bool
	spoiled bool // something stands before or after the object
	quoted  bool // within a string
	escaped bool // behind a backslash
	value   bool // behind the colon of a top-level member
	name    []byte
	text    []byte // of the name or value that is being read
	at      [members]bool
	id      []byte
	alien   bool // a member that no message has
}

// See takes the next bytes.
func (g *Outline) See(b []byte) {
	if !g.begun {
		b = bytes.TrimLeft(bytes.TrimPrefix(b, mark), " \t\r\n")
		g.begun = len(b) > 0
		g.spoiled = g.begun && b[0] != '{'
	}
	for _, c := range b {
		if g.quoted {
			g.inString(c)
			continue
		}
		g.token(c)
	}
}

func (g *Outline) token(c byte) {
	switch c {
	case '"':
		g.quoted = true
		g.keep(c)
	case '{', '[':
		g.spoiled = g.spoiled || g.depth == 0 && len(g.name) > 0
		g.depth++
	case '}', ']':
		g.spoiled = g.spoiled || g.depth < 1
		g.member()
		g.depth--
	case ':':
		if g.depth == 1 {
			g.name = append(g.name[:0], g.text...)
			g.text, g.value = g.text[:0], true
		}
	case ',':
		g.member()
	case ' ', '\t', '\r', '\n':
	default:
		g.keep(c)
	}
}

func (g *Outline) inString(c byte) {
	g.keep(c)
	switch {
	case g.escaped:
		g.escaped = false
	case c == '\\':
		g.escaped = true
	case c == '"':
		g.quoted = false
	}
}

// keep remembers a byte of the top level, as far as anything is made of it.
func (g *Outline) keep(c byte) {
	g.spoiled = g.spoiled || g.depth < 1
	if g.depth == 1 && len(g.text) <= MaxName+2 {
		g.text = append(g.text, c)
	}
}

// member takes note of a top-level member that is complete.
func (g *Outline) member() {
	if g.depth != 1 {
		return
	}
	if name, ok := Unquote(g.name); ok && g.value {
		g.note(unusual([]byte(name)))
	}
	g.text, g.value = g.text[:0], false
}

func (g *Outline) note(m member) {
	switch {
	case m == unknown:
		g.alien = true
		return
	case m == id:
		// Two ids of two calls: nobody knows whose answer it is.
		g.spoiled = g.spoiled || g.at[id] && !bytes.Equal(g.id, g.text)
		g.id = bytes.Clone(g.text)
	}
	g.at[m] = true
}

// Answers returns the id of the call that is answered, however badly, and nil if
// it is no answer. Without a word of JSON-RPC only what has nothing but an
// answer's members is one: a program's log lines have ids and results too.
func (g *Outline) Answers() []byte {
	if g.spoiled || g.depth != 0 || g.quoted || g.at[method] || !g.at[result] && !g.at[failure] {
		return nil
	}
	if !g.at[version] && g.alien {
		return nil
	}
	if skipValue(g.id, 0, 0) != len(g.id) || ValidID(g.id) != nil {
		return nil
	}
	return g.id
}
