package telemetry

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/segno-mcp/segno/internal/metric"
)

const namespace = "segno"

// Meter counts for sessions and fronts, and shows it to Prometheus. All series
// exist from the start: a label's value that is not in the table counts as
// other. It may be used from anywhere.
type Meter struct {
	registry *prometheus.Registry
	metrics  map[metric.Name]*series
}

var _ metric.Meter = (*Meter)(nil)

// series are the time series of one metric, found by the label's value without
// the library's hashing of labels: Add is on the path of every event.
type series struct {
	row   row
	one   map[string]sink
	other sink
}

// sink takes a number.
type sink struct {
	add     func(float64) // counters and gauges
	observe func(float64) // histograms
	metric  prometheus.Metric
}

// NewMeter makes a meter; version is that of the program.
func NewMeter(version string) *Meter {
	m := &Meter{registry: prometheus.NewRegistry(), metrics: map[metric.Name]*series{}}
	for _, r := range table {
		m.metrics[r.metric] = m.register(r)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: namespace, Name: "build_info", Help: "The version that runs; always 1.",
			ConstLabels: prometheus.Labels{"version": version},
		}, func() float64 { return 1 }))
	return m
}

func (m *Meter) register(r row) *series {
	s := &series{row: r, one: map[string]sink{}}
	var labels []string
	if r.label != "" {
		labels = []string{r.label}
	}
	make := r.vector(m.registry, labels)
	if r.label == "" {
		s.other = make()
		return s
	}
	for _, v := range r.values {
		s.one[v] = make(v)
	}
	s.other = make(other)
	return s
}

// vector registers the metric and returns how to get the sink of a label.
func (r row) vector(registry prometheus.Registerer, labels []string) func(...string) sink {
	name := string(r.metric)
	switch r.kind {
	case gauge:
		v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: r.help}, labels)
		registry.MustRegister(v)
		return func(l ...string) sink {
			g := v.WithLabelValues(l...)
			return sink{add: g.Add, metric: g}
		}
	case histogram:
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: r.help, Buckets: r.buckets}, labels)
		registry.MustRegister(v)
		return func(l ...string) sink {
			h := v.WithLabelValues(l...)
			return sink{observe: h.Observe, metric: h.(prometheus.Metric)}
		}
	default:
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: r.help}, labels)
		registry.MustRegister(v)
		return func(l ...string) sink {
			c := v.WithLabelValues(l...)
			return sink{add: rising(c.Add), metric: c}
		}
	}
}

// rising keeps a wrong sign from ending the process: the library panics on it.
func rising(add func(float64)) func(float64) {
	return func(n float64) {
		if n > 0 {
			add(n)
		}
	}
}

func (m *Meter) sink(name metric.Name, label string) (sink, bool) {
	s, ok := m.metrics[name]
	if !ok {
		return sink{}, false
	}
	if one, ok := s.one[label]; ok {
		return one, true
	}
	return s.other, true
}

// Add counts n more. A metric that is not in the table is left out.
func (m *Meter) Add(name metric.Name, label string, n float64) {
	if s, ok := m.sink(name, label); ok && s.add != nil {
		s.add(n)
	}
}

// Observe takes one measured value.
func (m *Meter) Observe(name metric.Name, label string, v float64) {
	if s, ok := m.sink(name, label); ok && s.observe != nil {
		s.observe(v)
	}
}

// Gauge shows a value that is asked for when somebody looks. name comes
// without the prefix segno_.
func (m *Meter) Gauge(name, help string, value func() float64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, value))
}

// Handler serves the metrics to Prometheus.
func (m *Meter) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}
