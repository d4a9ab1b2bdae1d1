package report

import (
	"fmt"
	"io"
)

// Target is a bound on a figure, or on its ratio to another subject's in the same run.
type Target struct {
	Measurement, Subject, Figure string
	To                           string  // ratio to this subject; empty: the figure itself
	Above                        string  // this subject's figure is taken off both first
	AtLeast                      float64 // one of the two is set
	AtMost                       float64
}

// Verdict is a target with what was reached.
type Verdict struct {
	Target  string  `json:"target"`
	Reached float64 `json:"reached"`
	Known   bool    `json:"measured"`
	Met     bool    `json:"met"`
}

// Judge compares the run with the targets.
func (r *Report) Judge(targets []Target) {
	for _, t := range targets {
		v := Verdict{Target: t.String()}
		v.Reached, v.Known = r.reached(t)
		v.Met = v.Known && (t.AtLeast == 0 || v.Reached >= t.AtLeast) && (t.AtMost == 0 || v.Reached <= t.AtMost)
		r.Verdicts = append(r.Verdicts, v)
	}
}

func (r *Report) reached(t Target) (float64, bool) {
	v, ok := r.median(t, t.Subject)
	if t.To == "" || !ok {
		return v, ok
	}
	base, ok := r.median(t, t.To)
	if t.Above != "" && ok {
		var floor float64
		floor, ok = r.median(t, t.Above)
		v, base = v-floor, base-floor
	}
	if !ok || base <= 0 {
		return 0, false
	}
	return v / base, true
}

func (r *Report) median(t Target, subject string) (float64, bool) {
	for _, m := range r.Measurements {
		if m.Name == t.Measurement {
			return m.Median(subject, t.Figure)
		}
	}
	return 0, false
}

func (t Target) String() string {
	of := ""
	if t.To != "" {
		of = " of " + t.To
	}
	if t.Above != "" {
		of += ", each above " + t.Above
	}
	if t.AtLeast > 0 {
		return fmt.Sprintf("%s, %s: %s ≥ %g%s", t.Measurement, t.Subject, t.Figure, t.AtLeast, of)
	}
	return fmt.Sprintf("%s, %s: %s ≤ %g%s", t.Measurement, t.Subject, t.Figure, t.AtMost, of)
}

// Print prints the verdicts and tells whether a target that was measured is missed.
func (r *Report) Print(w io.Writer) (missed bool) {
	fmt.Fprintln(w, "\ntargets")
	for _, v := range r.Verdicts {
		switch {
		case !v.Known:
			fmt.Fprintf(w, "  –       %s\n", v.Target)
		case v.Met:
			fmt.Fprintf(w, "  met     %s: %s\n", v.Target, number(v.Reached))
		default:
			fmt.Fprintf(w, "  MISSED  %s: %s\n", v.Target, number(v.Reached))
			missed = true
		}
	}
	return missed
}
