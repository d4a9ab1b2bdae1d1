package config

import (
	"slices"
	"strings"
)

// Nearest returns the known name that name was most likely meant to be, empty
// if none is near: the same letters in another spelling, or up to a third of
// them wrong, missing, too many or swapped.
func Nearest(name string, known []string) string {
	best, least := "", max(2, len(name)/3)+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if fold(k) == fold(name) {
			return k
		}
		if d := distance(fold(name), fold(k)); d < least {
			best, least = k, d
		}
	}
	return best
}

// fold makes retainEvents, RETAIN_EVENTS and retain-events the same.
func fold(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "", ".", "").Replace(s))
}

// distance is how many letters must be changed, added, removed or swapped with
// their neighbour to make a into b (optimal string alignment).
func distance(a, b string) int {
	var before, last, row []int
	for j := range len(b) + 1 {
		last = append(last, j)
	}
	for i := 1; i <= len(a); i++ {
		row = append([]int(nil), i)
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row = append(row, d)
		}
		before, last = last, row
	}
	return last[len(b)]
}

// DidYouMean is a hint that names the nearest known name, or else where to look.
func DidYouMean(name string, known []string, shown func(string) string, otherwise string) string {
	if n := Nearest(name, known); n != "" {
		return "did you mean " + shown(n) + "?"
	}
	return otherwise
}
