package streamable

import (
	"time"

	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/session"
)

// report says once, when a connection ends, what became of it.
func (v *view) report(why string) {
	lived := time.Since(v.began)
	v.x.f.meter.Observe(metric.ConnectionSeconds, why, lived.Seconds())
	v.x.f.meter.Add(metric.BytesOut, "client", float64(v.bytes))
	v.x.log().Info("connection ended", "why", why, "duration", lived,
		"events", v.events, "bytes", v.bytes, "first", v.from, "last", v.last)
}

// resumed says how a cursor was understood: what of the events after it is sent
// (from first to top), how many are gone and which of them is the oldest, up to
// where retention has been in the stream, and with which instance the session
// was until now. The instance that answers is an attribute of every line.
func (x *exchange) resumed(res *session.Resumption) {
	x.log().Info("resume", "result", res.Result, "stream", res.Stream, "after", res.After,
		"first", res.First, "top", res.Top, "evicted", res.Evicted, "oldest_evicted", res.Oldest,
		"floor", res.Floor, "owner", res.Owner)
}
