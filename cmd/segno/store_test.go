package main

import (
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

func TestStateDirFollowsTheSystem(t *testing.T) {
	abs := filepath.Join(t.TempDir(), "state")
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	if got, err := stateDir(env(map[string]string{"XDG_STATE_HOME": abs})); err != nil || got != filepath.Join(abs, "segno") {
		t.Errorf("with XDG_STATE_HOME: %q, %v", got, err)
	}
	// A relative one is to be ignored (XDG Base Directory Specification).
	if got, err := stateDir(env(map[string]string{"XDG_STATE_HOME": "rel"})); err == nil && !filepath.IsAbs(got) {
		t.Errorf("with a relative XDG_STATE_HOME: %q", got)
	}
	if runtime.GOOS == "linux" {
		t.Setenv("HOME", "/home/x")
		if got, err := stateDir(env(nil)); err != nil || got != "/home/x/.local/state/segno" {
			t.Errorf("without: %q, %v", got, err)
		}
	}
}

func TestStoreNamesAreFileNames(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8080": "ab12-127.0.0.1_8080", "[::1]:0": "ab12-___1__0", "../x:1": "ab12-.._x_1",
	} {
		if got := storeName("ab12", listen); got != want || got != filepath.Base(got) {
			t.Errorf("%s is kept in %q, want %q", listen, got, want)
		}
	}
}

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
