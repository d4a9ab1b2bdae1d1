package demo

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/segno-mcp/segno/internal/example"
)

// tell makes arrivals of rows, as a server without event ids would send them.
func tell(a *account, rows ...int) {
	for _, i := range rows {
		v := arrival{conn: 1, msg: &message{Method: "notifications/progress", Params: json.RawMessage(`{}`)}, progress: &progress{Progress: float64(i)}}
		v.progress.Meta.Checksum = example.Checksum(i)
		a.add(&v)
	}
}

func TestAccountCountsRowsWithoutIDs(t *testing.T) {
	for _, tc := range []struct {
		rows                       []int
		twice, missing, back, odds int
	}{
		{[]int{1, 2, 3, 4, 5}, 0, 0, 0, 0},
		{[]int{1, 2, 3, 3, 4, 5}, 1, 0, 0, 0},
		{[]int{1, 2, 3, 1, 2, 3, 4, 5}, 3, 0, 1, 0},
		{[]int{1, 5}, 0, 3, 0, 0},
		{[]int{1, 3, 2, 4, 5}, 0, 0, 1, 0},
		{[]int{1, 2, 3, 4, 5, 6}, 0, 0, 0, 1},
		{nil, 0, 5, 0, 0},
	} {
		a := newAccount(5)
		tell(a, tc.rows...)
		a.finish()
		r := a.report
		if r.Duplicates != tc.twice || r.Missing != tc.missing || r.Backwards != tc.back || a.wrong != tc.odds {
			t.Errorf("%v: %+v, %d wrong", tc.rows, r, a.wrong)
		}
	}
}

func TestAccountComparesChecksums(t *testing.T) {
	a := newAccount(3)
	tell(a, 1, 2, 3)
	a.checksum = example.Checksum(3)
	a.fetched("export://x", example.Row(1)+example.Row(2)+example.Row(3))
	a.report.Outcome = true
	if a.finish(); !a.report.Exact() {
		t.Errorf("%+v", a.report)
	}
	a.fetched("export://x", example.Row(1)+example.Row(3))
	if a.report.Exact() {
		t.Error("other rows have the same checksum")
	}
	b := newAccount(3)
	tell(b, 1, 2, 3)
	b.checksum = example.Checksum(2)
	if b.finish(); b.report.Checksums {
		t.Error("the outcome's checksum was not looked at")
	}
	if got := fmt.Sprint(newAccount(3).missing()); got != "[[1 3]]" {
		t.Errorf("missing %s", got)
	}
}
