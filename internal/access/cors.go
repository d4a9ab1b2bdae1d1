package access

import (
	"net/http"
	"slices"
	"strings"

	"github.com/rs/cors"
)

// preflightAge is for how long, in seconds, a browser may remember a preflight.
const preflightAge = 600

// newCORS lets pages of allowed origins read answers, errors too (Fetch, CORS
// protocol). Credentials in the sense of Fetch, cookies above all, are never
// allowed: a key travels in the Authorization header.
func newCORS(o origins) *cors.Cors {
	return cors.New(cors.Options{
		AllowOriginVaryRequestFunc: func(r *http.Request, origin string) (bool, []string) {
			return o.known(r, origin), nil
		},
		AllowedMethods: []string{http.MethodGet, http.MethodPost, http.MethodDelete},
		AllowedHeaders: []string{
			"accept", "authorization", "content-type", "idempotency-key", "last-event-id",
			"mcp-method", "mcp-name", "mcp-protocol-version", "mcp-session-id", "segno-on-gap",
			"traceparent", "tracestate", "baggage",
		},
		ExposedHeaders:      []string{"Mcp-Session-Id", "Mcp-Protocol-Version", "Retry-After", "Www-Authenticate"},
		MaxAge:              preflightAge,
		AllowPrivateNetwork: true,
	})
}

// preflight tells whether the request is one, and sorts the header names it
// asks for: browsers do, other clients may not, and the library relies on it.
func preflight(r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	asked := r.Header.Values("Access-Control-Request-Headers")
	if len(asked) > 0 {
		names := strings.Split(strings.ToLower(strings.Join(asked, ",")), ",")
		for i := range names {
			names[i] = strings.TrimSpace(names[i])
		}
		slices.Sort(names)
		r.Header.Set("Access-Control-Request-Headers", strings.Join(slices.Compact(names), ","))
	}
	return true
}
