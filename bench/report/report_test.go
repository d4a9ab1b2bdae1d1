package report

import (
	"errors"
	"strings"
	"testing"
)

func sampled() *Report {
	m := &Measurement{Name: "events", Title: "t", Figures: []string{"events/s", "lost"}}
	for _, v := range []float64{100, 300, 200} {
		m.Add("relay", Sample{"events/s": v, "lost": 0}, 0)
	}
	for _, v := range []float64{90, 150, 110} {
		m.Add("segno", Sample{"events/s": v}, 0.5)
	}
	m.Add("pipe", Sample{"events/s": 50}, 0)
	m.Fail("node", errors.New("left out:\n no npm"))
	return &Report{Measurements: []*Measurement{m}}
}

func TestTableHasMediansAndRatios(t *testing.T) {
	var b strings.Builder
	sampled().Measurements[0].Table(&b, "relay")
	for _, want := range []string{"200 (100–300)", "110 (90–150)", "0.55", "50 %", "node: left out: no npm"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestTargetsAreJudged(t *testing.T) {
	for _, c := range []struct {
		target     Target
		known, met bool
	}{
		{Target{Measurement: "events", Subject: "segno", Figure: "events/s", To: "relay", AtLeast: 0.5}, true, true},
		{Target{Measurement: "events", Subject: "segno", Figure: "events/s", To: "relay", AtLeast: 0.6}, true, false},
		{Target{Measurement: "events", Subject: "segno", Figure: "events/s", AtMost: 109}, true, false},
		{Target{Measurement: "events", Subject: "segno", Figure: "events/s", To: "relay", Above: "pipe", AtMost: 0.41}, true, true},
		{Target{Measurement: "events", Subject: "segno", Figure: "events/s", To: "relay", Above: "pipe", AtMost: 0.39}, true, false},
		{Target{Measurement: "events", Subject: "node", Figure: "events/s", AtMost: 1}, false, false},
		{Target{Measurement: "other", Subject: "segno", Figure: "events/s", AtMost: 1}, false, false},
	} {
		r := sampled()
		r.Judge([]Target{c.target})
		if v := r.Verdicts[0]; v.Known != c.known || v.Met != c.met {
			t.Errorf("%s: %+v", c.target, v)
		}
	}
}

func TestNumbersAreReadable(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.123: "0.12", 12.34: "12.3", 123.4: "123", 1234.5: "1,234", 1234567: "1,234,567", -1234: "-1,234", 42: "42",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
