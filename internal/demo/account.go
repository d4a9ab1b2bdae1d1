package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/segno-mcp/segno/internal/example"
)

// account is the client's proof: it knows what each row's report must say.
type account struct {
	report   Report
	ids      map[string]bool
	rows     []int // how often each was told of, from 1
	want     []string
	last     int
	wrong    int    // reports whose checksum is not that of all rows up to it
	checksum string // that the outcome told
	uri      string
}

func newAccount(rows int) *account {
	a := &account{ids: map[string]bool{}, rows: make([]int, rows+1), want: make([]string, rows+1)}
	sum := sha256.New()
	for i := 1; i <= rows; i++ {
		sum.Write([]byte(example.Row(i)))
		a.want[i] = hex.EncodeToString(sum.Sum(nil))
	}
	return a
}

func (a *account) add(v *arrival) {
	if v.msg == nil {
		return
	}
	a.report.Events++
	twice := v.id != "" && a.ids[v.id]
	a.ids[v.id] = true
	if strings.Contains(string(v.msg.Params), `"gap"`) {
		a.report.Gaps++
	}
	if p := v.progress; p != nil {
		twice = a.row(int(p.Progress), p.Meta.Checksum) || twice
	}
	if twice {
		a.report.Duplicates++
	}
}

// row notes a row's report and tells whether there was one before.
func (a *account) row(i int, checksum string) (twice bool) {
	if i < 1 || i >= len(a.rows) || checksum != a.want[i] {
		a.wrong++
		return false
	}
	a.rows[i]++
	if i < a.last {
		a.report.Backwards++
	}
	a.last = i
	return a.rows[i] > 1
}

// fetched compares the rows themselves with what the outcome said of them.
func (a *account) fetched(uri, text string) {
	sum := sha256.Sum256([]byte(text))
	a.uri = uri
	a.report.Rows = hex.EncodeToString(sum[:]) == a.checksum
}

func (a *account) finish() {
	for _, n := range a.rows[1:] {
		if n == 0 {
			a.report.Missing++
		}
	}
	a.report.Checksums = a.wrong == 0 && a.checksum == a.want[len(a.want)-1]
}

// missing are the rows nobody told of, as ranges.
func (a *account) missing() (ranges [][2]int) {
	for i := 1; i < len(a.rows); i++ {
		switch n := len(ranges); {
		case a.rows[i] > 0:
		case n > 0 && ranges[n-1][1] == i-1:
			ranges[n-1][1] = i
		default:
			ranges = append(ranges, [2]int{i, i})
		}
	}
	return ranges
}
