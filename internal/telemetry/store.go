package telemetry

import (
	"time"

	"github.com/segno-mcp/segno/internal/session"
)

// StoreSeconds is how long an append to the store took until it counted.
const StoreSeconds session.Metric = "store_seconds"

// StoreTook takes the time of one append.
func (m *Meter) StoreTook(d time.Duration) { m.Observe(StoreSeconds, "", d.Seconds()) }

// StoreFailed counts an error of the store itself.
func (m *Meter) StoreFailed(error) { m.Add(session.Errors, "store", 1) }
