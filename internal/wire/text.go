package wire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Unquote is the string that a JSON string text, quotes included, stands for.
// It is false if the text is not a JSON string. Half a surrogate pair becomes
// U+FFFD.
func Unquote(text []byte) (string, bool) {
	if len(text) < 2 || text[0] != '"' || skipString(text, 1) != len(text) {
		return "", false
	}
	return unescape(text[1 : len(text)-1])
}

// unescape resolves the escapes of a string's inside.
func unescape(b []byte) (string, bool) {
	if bytes.IndexByte(b, '\\') < 0 {
		return string(b), true
	}
	out := make([]byte, 0, len(b))
	for len(b) > 0 {
		plain := bytes.IndexByte(b, '\\')
		if plain < 0 {
			plain = len(b)
		}
		out = append(out, b[:plain]...)
		if b = b[plain:]; len(b) == 0 {
			break
		}
		if skipEscape(b, 1) < 0 {
			return "", false
		}
		out, b = appendEscape(out, b[1:])
	}
	return string(out), true
}

// appendEscape appends what the escape at the start of b, already checked and
// without its backslash, stands for, and returns what follows it.
func appendEscape(out, b []byte) (rest, next []byte) {
	switch b[0] {
	case 'b':
		return append(out, '\b'), b[1:]
	case 'f':
		return append(out, '\f'), b[1:]
	case 'n':
		return append(out, '\n'), b[1:]
	case 'r':
		return append(out, '\r'), b[1:]
	case 't':
		return append(out, '\t'), b[1:]
	case 'u':
		r, _ := hex4(b[1:])
		b = b[5:]
		if utf16.IsSurrogate(r) {
			r, b = pair(r, b)
		}
		return utf8.AppendRune(out, r), b
	}
	return append(out, b[0]), b[1:]
}

// pair joins a surrogate with the one that b must start with.
func pair(first rune, b []byte) (rune, []byte) {
	if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
		if second, ok := hex4(b[2:]); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, b[6:]
			}
		}
	}
	return utf8.RuneError, b
}

const hexDigits = "0123456789abcdef"

// AppendQuoted appends s as a JSON string. What is not UTF-8 becomes U+FFFD.
// U+2028 and U+2029 are escaped, as many line readers break at them.
func AppendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < utf8.RuneSelf && c != '"' && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = appendEscaped(dst, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '\u2028':
			dst = append(dst, `\u2028`...)
		case '\u2029':
			dst = append(dst, `\u2029`...)
		default:
			dst = utf8.AppendRune(dst, r)
		}
		i += n
	}
	return append(dst, '"')
}

func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

// FixUTF8 returns b with what is not UTF-8 replaced by U+FFFD, and b itself if
// there is nothing to replace.
func FixUTF8(b []byte) []byte {
	if utf8.Valid(b) {
		return b
	}
	return bytes.ToValidUTF8(b, []byte("\uFFFD"))
}

// Compact returns a valid message without the newlines it may have between its
// tokens, and the message itself if there are none. Within strings JSON has no
// raw newline, so each one found may go.
func Compact(msg []byte) []byte {
	if bytes.IndexByte(msg, '\n') < 0 && bytes.IndexByte(msg, '\r') < 0 {
		return msg
	}
	return appendCompact(make([]byte, 0, len(msg)), msg)
}

// AppendLine appends a valid message as one line, for stdio (MCP 2025-11-25,
// Transports, stdio: messages must not contain embedded newlines).
func AppendLine(dst, msg []byte) []byte {
	if bytes.IndexByte(msg, '\n') < 0 && bytes.IndexByte(msg, '\r') < 0 {
		dst = append(dst, msg...)
	} else {
		dst = appendCompact(dst, msg)
	}
	return append(dst, '\n')
}

func appendCompact(dst, msg []byte) []byte {
	for _, c := range msg {
		if c != '\n' && c != '\r' {
			dst = append(dst, c)
		}
	}
	return dst
}
