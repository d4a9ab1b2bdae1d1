package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The scanner checks RFC 8259 in one pass and allocates nothing. Every skip
// function takes a place and returns the one after what it skipped, or the
// complement of the place that is wrong, or tooDeep.

// maxDepth is how deep objects and arrays may nest. It bounds the stack.
const maxDepth = 512

const tooDeep = math.MinInt

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipValue skips the value at i. depth is how many levels may still open.
func skipValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return ^i
	}
	switch b[i] {
	case '"':
		return skipString(b, i+1)
	case '{':
		return skipObject(b, i+1, depth)
	case '[':
		return skipArray(b, i+1, depth)
	case 't':
		return skipWord(b, i, "true")
	case 'f':
		return skipWord(b, i, "false")
	case 'n':
		return skipWord(b, i, "null")
	}
	return skipNumber(b, i)
}

func skipWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return ^i
	}
	return i + len(word)
}

func skipObject(b []byte, i, depth int) int {
	if depth <= 0 {
		return tooDeep
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if _, i = skipName(b, i); i < 0 {
			return i
		}
		if i = skipValue(b, i, depth-1); i < 0 {
			return i
		}
		i = skipSpace(b, i)
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

func skipArray(b []byte, i, depth int) int {
	if depth <= 0 {
		return tooDeep
	}
	i = skipSpace(b, i)
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = skipValue(b, i, depth-1); i < 0 {
			return i
		}
		i = skipSpace(b, i)
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
			continue
		}
		if i < len(b) && b[i] == ']' {
			return i + 1
		}
		return ^i
	}
}

// skipName skips a member's name, the colon and the white space around it. end
// is the place of the closing quote.
func skipName(b []byte, i int) (end, next int) {
	if i >= len(b) || b[i] != '"' {
		return 0, ^i
	}
	if i = skipString(b, i+1); i < 0 {
		return 0, i
	}
	end = i - 1
	if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
		return 0, ^i
	}
	return end, skipSpace(b, i+1)
}

// Eight copies of a byte, to look at eight bytes at once.
const (
	ones    = 0x0101010101010101
	tops    = ones * 0x80
	spaces  = ones * ' '
	quotes  = ones * '"'
	slashes = ones * '\\'
)

// skipString skips the rest of a string whose opening quote is before i.
func skipString(b []byte, i int) int {
	for {
		for i+8 <= len(b) {
			x := binary.LittleEndian.Uint64(b[i:])
			q, s := x^quotes, x^slashes
			// The lowest byte marked is a control character, a quote or a
			// backslash; marks above it may be false.
			stop := ((x-spaces)&^x | (q-ones)&^q | (s-ones)&^s) & tops
			if stop != 0 {
				i += bits.TrailingZeros64(stop) >> 3
				break
			}
			i += 8
		}
		for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i >= len(b) || b[i] < ' ' {
			return ^i
		}
		if b[i] == '"' {
			return i + 1
		}
		if i = skipEscape(b, i+1); i < 0 {
			return i
		}
	}
}

// skipEscape skips what follows a backslash.
func skipEscape(b []byte, i int) int {
	if i >= len(b) {
		return ^i
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if _, ok := hex4(b[i+1:]); ok {
			return i + 5
		}
	}
	return ^i
}

// hex4 is the number that four hexadecimal digits stand for.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

func skipNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	first := i
	if i = skipDigits(b, i); i < 0 || b[first] == '0' && i > first+1 {
		return ^first
	}
	if i < len(b) && b[i] == '.' {
		if i = skipDigits(b, i+1); i < 0 {
			return i
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return skipDigits(b, i)
	}
	return i
}

// skipDigits skips at least one digit.
func skipDigits(b []byte, i int) int {
	from := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	if i == from {
		return ^i
	}
	return i
}

// scan is skipObject that notes where the members are.
func (in *inner) scan(b []byte, i, depth int) int {
	in.n, in.over = 0, false
	i = skipSpace(b, i)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		name := i + 1
		end, from := skipName(b, i)
		if from < 0 {
			return from
		}
		if i = skipValue(b, from, depth-1); i < 0 {
			return i
		}
		if int(in.n) < len(in.at) && i <= math.MaxInt32 {
			in.at[in.n] = place{int32(name), int32(end), int32(from), int32(i)}
			in.n++
		} else {
			in.over = true
		}
		i = skipSpace(b, i)
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
