package telemetry

import (
	"time"

	"github.com/segno-mcp/segno/internal/metric"
)

// StoreSeconds is how long an append to the store took until it counted.
const StoreSeconds metric.Name = "store_seconds"

// StoreTook takes the time of one append.
func (m *Meter) StoreTook(d time.Duration) { m.Observe(StoreSeconds, "", d.Seconds()) }

// StoreFailed counts an error of the store itself.
func (m *Meter) StoreFailed(error) { m.Add(metric.Errors, "store", 1) }
