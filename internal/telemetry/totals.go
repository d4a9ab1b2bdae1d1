package telemetry

import (
	dto "github.com/prometheus/client_model/go"

	"github.com/segno-mcp/segno/internal/metric"
)

// Totals returns what a counter or gauge stands at, by the label's value;
// a metric without a label is under the empty one. Values of zero are left out.
func (m *Meter) Totals(name metric.Name) map[string]float64 {
	s, ok := m.metrics[name]
	if !ok {
		return nil
	}
	totals := map[string]float64{}
	for label, one := range s.one {
		if v := one.value(); v != 0 {
			totals[label] = v
		}
	}
	if v := s.other.value(); v != 0 && s.row.label != "" {
		totals[other] = v
	} else if v != 0 {
		totals[""] = v
	}
	return totals
}

// Total is the sum of a metric over its labels.
func (m *Meter) Total(name metric.Name) (sum float64) {
	for _, v := range m.Totals(name) {
		sum += v
	}
	return sum
}

func (s sink) value() float64 {
	var d dto.Metric
	if err := s.metric.Write(&d); err != nil {
		return 0
	}
	switch {
	case d.Counter != nil:
		return d.Counter.GetValue()
	case d.Gauge != nil:
		return d.Gauge.GetValue()
	case d.Histogram != nil:
		return float64(d.Histogram.GetSampleCount())
	}
	return 0
}
