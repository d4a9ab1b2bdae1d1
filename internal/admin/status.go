package admin

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/segno-mcp/segno/eventlog"
	"github.com/segno-mcp/segno/internal/metric"
	"github.com/segno-mcp/segno/internal/telemetry"
)

// Status is all that is shown, as one document.
type Status struct {
	Version   string         `json:"version"`
	Now       time.Time      `json:"now"`
	Since     time.Time      `json:"since"`
	Payloads  bool           `json:"payloads"`
	Servers   []ServerStatus `json:"servers"`
	Totals    Totals         `json:"totals"`
	Diagnosis Diagnosis      `json:"diagnosis"`
}

// ServerStatus is one MCP server and its sessions.
type ServerStatus struct {
	Name     string    `json:"name,omitempty"`
	Instance string    `json:"instance,omitempty"`
	URL      string    `json:"url,omitempty"`
	NotReady string    `json:"notReady,omitempty"`
	Sessions []Session `json:"sessions"`
	More     bool      `json:"more,omitempty"`
}

// Totals are counts since the start, or as they are now.
type Totals struct {
	Sessions    float64            `json:"sessions"`
	Running     float64            `json:"running"`
	Children    float64            `json:"children"`
	Connections float64            `json:"connections"`
	Retained    float64            `json:"retained"`
	Evicted     float64            `json:"evicted"`
	Foreign     float64            `json:"foreign"`
	Resumes     map[string]float64 `json:"resumes"`
	Gaps        map[string]float64 `json:"gaps"`
	Outcomes    map[string]float64 `json:"outcomes"`
	Errors      map[string]float64 `json:"errors"`
}

func totals(m *telemetry.Meter) Totals {
	return Totals{
		Sessions: m.Total(metric.SessionsOpen), Running: m.Total(metric.StreamsOpen),
		Children: m.Total(metric.ChildrenRunning), Connections: m.Total(metric.ConnectionsOpen),
		Retained: m.Total(metric.RetainedEvents), Evicted: m.Total(metric.EvictedEvents),
		Foreign: m.Total(metric.ForeignResumes), Resumes: m.Totals(metric.Resumes),
		Gaps: m.Totals(metric.Gaps), Outcomes: m.Totals(metric.Outcomes), Errors: m.Totals(metric.Errors),
	}
}

// Bounds of one answer.
const (
	maxSessions = 200
	maxWindow   = 1 << 20 // bytes of events
)

func (a *Admin) status(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	s := Status{
		Version: a.o.Version, Now: now.UTC(), Since: a.since.UTC(),
		Payloads: a.o.ShowPayloads, Totals: totals(a.o.Meter), Servers: []ServerStatus{},
	}
	fullest := 0.0
	for _, server := range a.o.Servers {
		one := ServerStatus{Name: server.Name, Instance: server.Instance, URL: server.URL}
		var err error
		if one.Sessions, one.More, err = sessions(r, server.Source); err != nil {
			one.NotReady = err.Error()
		} else if err := server.Source.Ready(r.Context()); err != nil {
			one.NotReady = err.Error()
		}
		fullest = max(fullest, a.fullest(one.Sessions))
		s.Servers = append(s.Servers, one)
	}
	recent, since := a.history.since(now, a.since, Numbers{
		Resumes: s.Totals.Resumes, Evicted: s.Totals.Evicted, Foreign: s.Totals.Foreign, Slow: s.Totals.Gaps["slow_reader"],
	})
	s.Diagnosis = Diagnosis{Since: since.UTC(), Findings: Diagnose(recent, fullest, a.o.Shared)}
	write(w, http.StatusOK, s)
}

// sessions are all that are shown, or the one that is asked for.
func sessions(r *http.Request, s Source) ([]Session, bool, error) {
	public := r.FormValue("session")
	if public == "" {
		return s.Sessions(r.Context(), maxSessions)
	}
	one, err := s.Session(r.Context(), public)
	if errors.Is(err, eventlog.ErrNoSession) {
		return []Session{}, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return []Session{*one}, false, nil
}

// fullest is how full the fullest stream is, as a part of what it may hold.
func (a *Admin) fullest(sessions []Session) (part float64) {
	for _, s := range sessions {
		for _, st := range s.Streams {
			part = max(part, float64(st.Events)/float64(max(1, a.o.RetainEvents)), float64(st.Bytes)/float64(max(1, a.o.RetainBytes)))
		}
	}
	return part
}

// window answers with the events of one stream. The name may be an event id.
func (a *Admin) window(w http.ResponseWriter, r *http.Request) {
	stream, _, _ := strings.Cut(r.PathValue("stream"), ".")
	after, err := uint64(0), error(nil)
	if text := r.FormValue("after"); text != "" {
		if after, err = strconv.ParseUint(text, 10, 64); err != nil {
			refuse(w, http.StatusBadRequest, "after is not a number")
			return
		}
	}
	for _, server := range a.o.Servers {
		found, err := server.Source.Window(r.Context(), stream, after, maxWindow)
		switch {
		case errors.Is(err, eventlog.ErrNoStream):
			continue
		case err != nil:
			a.o.Logger.Warn("a stream cannot be shown", "stream", stream, "error", err)
			refuse(w, http.StatusServiceUnavailable, "the store does not answer")
			return
		}
		write(w, http.StatusOK, found.shown(a.o.ShowPayloads))
		return
	}
	refuse(w, http.StatusNotFound, "no such stream")
}

func (w *Window) shown(payloads bool) *Window {
	if payloads {
		return w
	}
	for i := range w.Events {
		w.Events[i].Payload = nil
	}
	return w
}
