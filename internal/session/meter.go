package session

// Metric names one thing that is counted or measured. The names are the ones
// that are exported, without the prefix segno_.
type Metric string

// What sessions and fronts report. Counters end in _total.
const (
	SessionsOpen      Metric = "sessions"
	SessionsEnded     Metric = "sessions_ended_total" // label: why
	StreamsOpen       Metric = "streams"              // running calls
	ChildrenRunning   Metric = "children"
	ChildExits        Metric = "child_exits_total"       // label: why
	ConnectionsOpen   Metric = "connections"             // label: kind
	ConnectionSeconds Metric = "connection_seconds"      // label: why it ended
	MessagesIn        Metric = "messages_received_total" // label: from
	MessagesOut       Metric = "messages_sent_total"     // label: to
	BytesIn           Metric = "bytes_received_total"    // label: from
	BytesOut          Metric = "bytes_sent_total"        // label: to
	FirstEvent        Metric = "first_event_seconds"     // from accepted to the first event in the log
	OutcomeSeconds    Metric = "outcome_seconds"         // from accepted to the outcome
	Errors            Metric = "errors_total"            // label: kind
	Refused           Metric = "refused_total"           // label: which limit
	Dropped           Metric = "messages_dropped_total"  // label: why
	Resumes           Metric = "resumes_total"           // label: result
	ResumeReplayed    Metric = "resume_replayed_events"  // events a resume replayed
	EvictedEvents     Metric = "evicted_events_total"    // removed by retention
	RetainedEvents    Metric = "retained_events"         // kept now
	ForeignResumes    Metric = "resumes_foreign_instance_total"
	Gaps              Metric = "gaps_total"     // label: reason
	Clients           Metric = "clients_total"  // label: name from a fixed list
	Outcomes          Metric = "outcomes_total" // label: result, error, unknown, cancelled
)

// Meter takes what is counted. A label is one of a bounded set. Methods may be
// called from anywhere and must not block.
type Meter interface {
	Add(m Metric, label string, n float64)
	Observe(m Metric, label string, v float64)
}

type noMeter struct{}

func (noMeter) Add(Metric, string, float64)     {}
func (noMeter) Observe(Metric, string, float64) {}
