package streamable

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// forms are the ways of answering that a client takes.
type forms struct{ json, sse bool }

// accepted reads Accept (RFC 9110, 12.5.1). A client that sends none takes
// everything.
func accepted(h http.Header) forms {
	values := h.Values("Accept")
	if len(values) == 0 {
		return forms{true, true}
	}
	var f forms
	for part := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name, params, _ := strings.Cut(part, ";")
		if refused(params) {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "*/*":
			return forms{true, true}
		case "application/json", "application/*":
			f.json = true
		case "text/event-stream", "text/*":
			f.sse = true
		}
	}
	return f
}

// refused tells whether the parameters hold a weight of zero.
func refused(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
		if strings.EqualFold(name, "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return err == nil && q == 0
		}
	}
	return false
}

// isJSON tells whether the body says to be JSON in UTF-8. Browsers send any
// other type to any site without asking first.
func isJSON(h http.Header) bool {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return false
	}
	charset, given := params["charset"]
	return !given || strings.EqualFold(charset, "utf-8")
}

// plain tells whether the body is not compressed.
func plain(h http.Header) bool {
	coding := h.Get("Content-Encoding")
	return coding == "" || strings.EqualFold(coding, "identity")
}
