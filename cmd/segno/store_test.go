package main

import (
	"testing"
	"time"
)

// TestZeroMeansNeverWhereTheHelpSaysSo: the library takes zero for the default.
func TestZeroMeansNeverWhereTheHelpSaysSo(t *testing.T) {
	c, err := defaults()
	if err != nil {
		t.Fatal(err)
	}
	if o := options(c); o.JSONWithin != 50*time.Millisecond || o.Orphan != time.Hour || o.RetainAge != 15*time.Minute || o.MaxMessage != 64<<20 {
		t.Errorf("defaults: %+v", o)
	}
	c.JSONWithin, c.Orphan, c.AskTimeout, c.Repost, c.RetainAge, c.CallTimeout = 0, 0, 0, 0, 0, 0
	o := options(c)
	if o.JSONWithin >= 0 || o.Orphan >= 0 || o.AskTimeout >= 0 || o.Repost >= 0 || o.RetainAge != 1 || o.CallTimeout != 0 {
		t.Errorf("zeroes: %+v", o)
	}
}

func TestStreamsThatBeginLikeFlags(t *testing.T) {
	const name = "-Y23456789012345678901"
	for _, c := range []struct{ in, want []string }{
		{[]string{"dump", name, "--json"}, []string{"dump", "--json", "--", name}},
		{[]string{"dump", name + ".abcdef.12"}, []string{"dump", "--", name + ".abcdef.12"}},
		{[]string{"dump", "--show-payloads"}, []string{"dump", "--show-payloads"}},
		{[]string{"serve", name}, []string{"serve", name}},
	} {
		got := streamLast(c.in)
		if len(got) != len(c.want) {
			t.Fatalf("%q became %q, want %q", c.in, got, c.want)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q became %q, want %q", c.in, got, c.want)
			}
		}
	}
}
