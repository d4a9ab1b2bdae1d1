// Package report gathers figures over rounds and prints them as a table and as JSON.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// Sample is what one run of one subject gave, by figure.
type Sample map[string]float64

// Row is one subject's figures in one measurement, a value for each round.
type Row struct {
	Subject string               `json:"subject"`
	Values  map[string][]float64 `json:"values"`
	Foreign []float64            `json:"foreign"` // load by others, 0 to 1
	Failed  string               `json:"failed,omitempty"`
}

// Measurement is one table.
type Measurement struct {
	Name    string   `json:"name"`
	Title   string   `json:"title"`
	Figures []string `json:"figures"` // the columns, in order; the first one is compared
	Rows    []*Row   `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
}

// Report is a whole run.
type Report struct {
	Machine      string         `json:"machine"`
	Started      string         `json:"started"`
	Rounds       int            `json:"rounds"`
	Measurements []*Measurement `json:"measurements"`
	Verdicts     []Verdict      `json:"targets"`
}

// Add notes a sample.
func (m *Measurement) Add(subject string, s Sample, foreign float64) {
	r := m.row(subject)
	for name, v := range s {
		r.Values[name] = append(r.Values[name], v)
	}
	r.Foreign = append(r.Foreign, foreign)
}

// Fail notes why a subject has no figures, or none of a round.
func (m *Measurement) Fail(subject string, why error) {
	m.row(subject).Failed = strings.Join(strings.Fields(why.Error()), " ")
}

func (m *Measurement) row(subject string) *Row {
	for _, r := range m.Rows {
		if r.Subject == subject {
			return r
		}
	}
	r := &Row{Subject: subject, Values: map[string][]float64{}}
	m.Rows = append(m.Rows, r)
	return r
}

// Median of a figure; ok tells whether there is one.
func (m *Measurement) Median(subject, figure string) (v float64, ok bool) {
	for _, r := range m.Rows {
		if r.Subject == subject && len(r.Values[figure]) > 0 {
			return median(r.Values[figure]), true
		}
	}
	return 0, false
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Table prints the measurement; ratios are to the subject named base.
func (m *Measurement) Table(w io.Writer, base string) {
	fmt.Fprintf(w, "\n%s: %s\n", m.Name, m.Title)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "  subject\t%s\t× %s\tforeign\n", strings.Join(m.Figures, "\t"), base)
	for _, r := range m.Rows {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\n", r.Subject, r.cells(m.Figures), m.ratio(r, base), share(r.Foreign))
	}
	t.Flush()
	for _, r := range m.Rows {
		if r.Failed != "" {
			fmt.Fprintf(w, "  %s: %s\n", r.Subject, r.Failed)
		}
	}
	for _, n := range m.Notes {
		fmt.Fprintln(w, "  "+n)
	}
}

func (r *Row) cells(figures []string) string {
	cells := make([]string, len(figures))
	for i, f := range figures {
		cells[i] = cell(r.Values[f])
	}
	return strings.Join(cells, "\t")
}

func cell(v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	lo, hi := number(slices.Min(v)), number(slices.Max(v))
	if lo == hi {
		return number(median(v))
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(v)), lo, hi)
}

// number shows three digits that matter, and whole numbers whole.
func number(v float64) string {
	switch {
	case v == float64(int64(v)) || v >= 1000 || v <= -1000:
		return grouped(int64(v))
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

func grouped(n int64) string {
	s := fmt.Sprint(n)
	from := len(s) % 3
	if n < 0 {
		from = (len(s)-1)%3 + 1
	}
	for i := len(s) - 3; i >= max(1, from); i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return strings.Replace(s, "-,", "-", 1)
}

func (m *Measurement) ratio(r *Row, base string) string {
	a, ok := m.Median(r.Subject, m.Figures[0])
	b, ok2 := m.Median(base, m.Figures[0])
	if !ok || !ok2 || b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", a/b)
}

func share(v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f %%", 100*median(v))
}

// JSON writes the whole run.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
