package access

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

func keyFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func hashed(token string) string {
	h := sha256.Sum256([]byte(token))
	return "sha256:" + hex.EncodeToString(h[:])
}

func TestKeysAreRead(t *testing.T) {
	path := keyFile(t, "\ufeff# clients\r\n\r\nann:t0ken\n bob : "+hashed("s:ecret")+" \nann:another\nc.d_e@f-g:a:b:c\n")
	keys, err := OpenKeys(path, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for token, name := range map[string]string{"t0ken": "ann", "another": "ann", "s:ecret": "bob", "a:b:c": "c.d_e@f-g"} {
		if id, ok := keys.Find(token); !ok || id.Principal != name || id.Revoked == nil {
			t.Errorf("%q is %+v, want %s", token, id, name)
		}
	}
	for _, token := range []string{"", "t0ke", "t0kenx", "T0KEN", hashed("s:ecret"), strings.Repeat("x", maxToken+1)} {
		if id, ok := keys.Find(token); ok {
			t.Errorf("%q is %s", token, id.Principal)
		}
	}
}

func TestBadKeyFilesAreRefused(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "names no key"},
		{"# nobody\n", "names no key"},
		{"just-a-token-hunter2\n", "line 1: must be NAME:TOKEN"},
		{"ok:token\n:hunter2\n", "line 2: a name is"},
		{"two words:hunter2\n", "a name is"},
		{"ann:\n", "a token is"},
		{"ann:hunter2 x\n", "a token is"},
		{"ann:sha256:hunter2\n", "hexadecimal"},
		{"ann:" + hashed("x") + "00\n", "hexadecimal"},
		{"ann:same\nbob:same\n", "also that of ann"},
		{"ann:x\nann:" + hashed("x") + "\n", "also that of ann"},
	} {
		_, err := OpenKeys(keyFile(t, c.text), quiet)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q in it", c.text, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a token: %v", err)
		}
	}
	if _, err := OpenKeys(filepath.Join(t.TempDir(), "none"), quiet); err == nil {
		t.Error("a missing file was taken")
	}
	if _, err := OpenKeys(t.TempDir(), quiet); err == nil {
		t.Error("a folder was taken")
	}
}

func TestKeyFileOthersCanReadIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no such modes")
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o660} {
		path := keyFile(t, "ann:token\n")
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenKeys(path, quiet); err == nil || !strings.Contains(err.Error(), "0600") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestField79_KeysChangeWithinTwoSeconds(t *testing.T) {
	path := keyFile(t, "ann:one\nbob:two\n")
	synctest.Test(t, func(t *testing.T) {
		keys, err := OpenKeys(path, quiet)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); keys.Watch(ctx) }()
		defer func() { stop(); <-done }()

		ann, _ := keys.Find("one")
		bob, _ := keys.Find("two")
		put := func(text string, after time.Duration) {
			t.Helper()
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			synctest.Wait()
		}
		const soon = 2 * time.Second
		time.Sleep(keyPoll / 2)         // between two looks
		put("ann:one\nbob:tw", keyPoll) // half written
		if closed(bob.Revoked) {
			t.Error("half of a file revoked a key")
		}
		put("ann:one\nbob:three\n", soon)
		if closed(ann.Revoked) || !closed(bob.Revoked) {
			t.Errorf("ann revoked %v, bob revoked %v", closed(ann.Revoked), closed(bob.Revoked))
		}
		if _, ok := keys.Find("two"); ok {
			t.Error("the old token still works")
		}
		if id, ok := keys.Find("three"); !ok || id.Principal != "bob" || closed(id.Revoked) {
			t.Errorf("the new token is %+v", id)
		}
		put("nonsense\n", 5*soon)
		if _, ok := keys.Find("one"); !ok {
			t.Error("a file that says nothing sensible revoked the keys")
		}
		put("", soon)
		if !closed(ann.Revoked) {
			t.Error("an emptied file revoked nothing")
		}
	})
}

func TestDoorAsksForTheKey(t *testing.T) {
	keys, err := OpenKeys(keyFile(t, "ann:one\n"), quiet)
	if err != nil {
		t.Fatal(err)
	}
	door := mustDoor(t, Options{Keys: keys})
	ask := func(values ...string) *http.Response {
		r := to("POST", "/mcp", "127.0.0.1")
		r.Host = "localhost"
		r.Header["Authorization"] = values
		return serve(door, r)
	}
	for _, good := range []string{"Bearer one", "bearer one", "BEARER  one "} {
		if res := ask(good); res.StatusCode != http.StatusTeapot || res.Header.Get("X-Who") != "ann" {
			t.Errorf("%q: status %d, who %q", good, res.StatusCode, res.Header.Get("X-Who"))
		}
	}
	for _, bad := range [][]string{nil, {""}, {"Bearer"}, {"Bearer two"}, {"Basic one"}, {"one"}, {"Bearer one", "Bearer one"}, {"Bearer one, two"}} {
		res := ask(bad...)
		isRefusal(t, res, http.StatusUnauthorized)
		if !strings.HasPrefix(res.Header.Get("WWW-Authenticate"), "Bearer ") {
			t.Errorf("%q: no challenge", bad)
		}
	}
}

func TestField76_EmptyPrincipalIsNobody(t *testing.T) {
	door := mustDoor(t, Options{Verify: func(*http.Request) (Identity, error) { return Identity{}, nil }})
	r := to("POST", "/mcp", "127.0.0.1")
	r.Host = "localhost"
	isRefusal(t, serve(door, r), http.StatusUnauthorized)
	open := mustDoor(t, Options{})
	if got := serve(open, r).Header.Get("X-Who"); got != Anonymous {
		t.Errorf("without keys the principal is %q", got)
	}
}
