package telemetry

import "github.com/segno-mcp/segno/internal/metric"

// What Segno counts as the client of a server behind a URL.
const (
	EventsReceived    metric.Name = "events_received_total"
	DuplicatesDropped metric.Name = "duplicates_dropped_total"
)
