package wire

import "strconv"

// AppendSplice appends m with the edits made. Edits may come in any order but
// must not overlap; of two at one place the first given comes first.
func AppendSplice(dst []byte, m []byte, edits ...Edit) []byte {
	at := 0
	for from := next(edits, 0); from >= 0; from = next(edits, max(at, from+1)) {
		dst = append(dst, m[at:from]...)
		at = from
		for _, e := range edits {
			if e.Span.From == from {
				dst = append(dst, e.With...)
				at = max(at, e.Span.To)
			}
		}
	}
	return append(dst, m[at:]...)
}

// next is where the first edit at or after a place begins, -1 if none does.
func next(edits []Edit, at int) int {
	first := -1
	for _, e := range edits {
		if e.Span.From >= at && (first < 0 || e.Span.From < first) {
			first = e.Span.From
		}
	}
	return first
}

// AppendRequest appends a request. params may be nil.
func AppendRequest(dst, id []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	return appendCall(dst, method, params)
}

// AppendNotification appends a notification. params may be nil.
func AppendNotification(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	return appendCall(dst, method, params)
}

func appendCall(dst []byte, method string, params []byte) []byte {
	dst = append(dst, `,"method":`...)
	dst = AppendQuoted(dst, method)
	if params != nil {
		dst = append(dst, `,"params":`...)
		dst = append(dst, params...)
	}
	return append(dst, '}')
}

// AppendResponse appends a response with a result.
func AppendResponse(dst, id, result []byte) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"result":`...)
	dst = append(dst, result...)
	return append(dst, '}')
}

// AppendError appends a response with an error. A nil id is written as null,
// which says that the id could not be read; data may be nil.
func AppendError(dst, id []byte, code int, message string, data []byte) []byte {
	if id == nil {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"error":{"code":`...)
	dst = strconv.AppendInt(dst, int64(code), 10)
	dst = append(dst, `,"message":`...)
	dst = AppendQuoted(dst, message)
	if data != nil {
		dst = append(dst, `,"data":`...)
		dst = append(dst, data...)
	}
	return append(dst, "}}"...)
}

// AppendTo appends the error as the response that says so.
func (e *Error) AppendTo(dst []byte) []byte {
	return AppendError(dst, e.ID, e.Code, e.Message, nil)
}
