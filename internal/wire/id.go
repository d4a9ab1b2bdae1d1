package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ValidID tells what is wrong with an id or a progress token: it must be the
// JSON text of a string or of an integer, at most MaxName bytes of it without
// the quotes. An integer may be spelled 1.0 or 1e3.
func ValidID(text []byte) error {
	if len(text) == 0 {
		return errors.New("an id must not be empty")
	}
	if text[0] == '"' {
		text = text[1:max(1, len(text)-1)]
	} else if c := text[0]; c != '-' && (c < '0' || c > '9') {
		return errors.New("an id must be a string or an integer")
	} else if !integral(text) {
		return errors.New("an id must not have a fraction")
	}
	if len(text) > MaxName {
		return fmt.Errorf("an id must not be longer than %d bytes", MaxName)
	}
	return nil
}

// integral tells whether a JSON number has no fraction, however it is spelled.
func integral(text []byte) bool {
	at := bytes.IndexAny(text, ".eE")
	if at < 0 {
		return true
	}
	digits, fraction, shift := split(text)
	fraction = bytes.TrimRight(fraction, "0")
	if len(fraction) > 0 {
		return shift >= len(fraction)
	}
	kept := bytes.TrimRight(digits, "0")
	return len(kept) == 0 || shift >= len(kept)-len(digits)
}

// split takes a JSON number apart. An exponent beyond int counts as its limit.
func split(text []byte) (digits, fraction []byte, shift int) {
	text = bytes.TrimPrefix(text, []byte("-"))
	digits = text
	if e := bytes.IndexAny(text, "eE"); e >= 0 {
		// Atoi returns the nearest int when the exponent is out of range.
		shift, _ = strconv.Atoi(string(text[e+1:]))
		digits = text[:e]
	}
	if dot := bytes.IndexByte(digits, '.'); dot >= 0 {
		digits, fraction = digits[:dot], digits[dot+1:]
	}
	return digits, fraction, shift
}

// IntID is the number that an id stands for if it is one of Segno's own, which
// are integers. Servers that turn them into a string ("7") or a float (7.0) are
// understood; this is only for ids that come back, never for a client's.
func IntID(text []byte) (int64, bool) {
	if len(text) > 2 && text[0] == '"' {
		text = text[1 : len(text)-1]
	}
	if whole, ok := bytes.CutSuffix(text, []byte(".0")); ok {
		text = whole
	}
	if len(text) == 0 || len(text) > 19 || text[0] == '+' || text[0] == '0' && len(text) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n >= 0
}
