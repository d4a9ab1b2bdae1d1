package streamable

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segno-mcp/segno/internal/wire"
)

// half sends a part of a body and keeps the rest.
func (r *rig) half(principal, session string, announced, sent int) {
	r.t.Helper()
	conn, err := r.net.Dial(r.t.Context(), "tcp", "segno")
	if err != nil {
		r.t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: segno\r\nX-Principal: %s\r\nMcp-Session-Id: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		principal, session, announced, strings.Repeat(" ", sent))
	synctest.Wait()
	r.t.Cleanup(func() {
		conn.Close()
		time.Sleep(time.Second) // the server lingers
	})
}

func padded(n int, body string) string { return strings.Repeat(" ", n-len(body)) + body }

func TestBodiesAreCountedAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{InflightMax: 1 << 20}})
		for range 20 {
			r.half("alice", "", 900<<10, 60<<10)
		}
		if held := r.front.bodies.inUse(); held != 0 {
			t.Errorf("%d bytes are held for bodies that have not come", held)
		}
		r.half("alice", "", 900<<10, 200<<10)
	})
}

func TestOneKeyLeavesRoomForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{InflightMax: 1 << 20}})
		id, _ := r.open("2025-11-25")
		for range 55 {
			r.half("alice", "", 900<<10, 300<<10)
		}
		if held := r.front.bodies.inUse(); held == 0 || held > 512<<10 {
			t.Errorf("one principal holds %d bytes of %d", held, 1<<20)
		}
		for _, n := range []int{200, 64 << 10, 150 << 10} {
			if res := r.post(id, "%s", padded(n, ping)); res.StatusCode != http.StatusOK {
				t.Errorf("a body of %d bytes of somebody else: %s", n, res.Status)
			}
		}
		q := r.request("POST", "", padded(64<<10, ping))
		q.Header.Set("X-Principal", "alice")
		if res := r.do(q); res.StatusCode == http.StatusServiceUnavailable {
			t.Error("a small body was refused")
		}
	})
}

func TestCrowdedOutInALiveSessionIsInBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{front: Options{InflightMax: 300 << 10}})
		id, _ := r.open("2025-11-25")
		r.half("ann", id, 200<<10, 130<<10)
		res := r.post(id, "%s", padded(300<<10, ping))
		if got := text(t, res); res.StatusCode != http.StatusOK || !strings.Contains(got, `"id":null`) ||
			!strings.Contains(got, `"code":-32000`) || !strings.Contains(got, `"limit":"inflight-max","retryAfterMs":1000`) {
			t.Errorf("in a live session: %s %s", res.Status, got)
		}
		for _, session := range []string{"", "gone"} {
			res = r.do(r.request("POST", session, padded(300<<10, initialize("2025-11-25"))))
			if res.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			isError(t, res, http.StatusServiceUnavailable, wire.CodeRefused, "null")
		}
	})
}

func TestShareIsHalfOfWhatTheOthersLeave(t *testing.T) {
	var b budget
	b.init(1000)
	ann, bob, all := Who{Principal: "ann"}, Who{Principal: "bob"}, Who{Principal: "all", Shared: true}
	for _, step := range []struct {
		who    Who
		own, n int64
		want   bool
	}{
		{ann, 0, 1001, false}, {ann, 0, 400, true}, {ann, 400, 600, true}, {bob, 0, 1, false},
		{ann, 0, -600, true}, {ann, 0, 101, false}, {ann, 0, 100, true},
		{bob, 0, 251, false}, {bob, 0, 250, true}, {all, 0, 251, false}, {all, 0, 250, true},
	} {
		if got := step.n > 0 && b.take(step.who, step.own, step.n); step.n > 0 && got != step.want {
			t.Errorf("%+v: %v", step, got)
		}
		if step.n < 0 {
			b.give(step.who.Principal, -step.n)
		}
	}
	b.give("ann", 500)
	b.give("bob", 250)
	b.give("all", 250)
	if b.inUse() != 0 || len(b.of) != 0 {
		t.Errorf("%d bytes of %v are left", b.inUse(), b.of)
	}
}

func TestBodyMustBeUTF8(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		id, _ := r.open("2025-11-25")
		for _, bad := range []string{
			"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}",
			"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"\xc3\x28\"}}",
			"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xed\xa0\x80\"}]",
		} {
			isError(t, r.do(r.request("POST", id, bad)), http.StatusBadRequest, wire.CodeParse, "null")
		}
	})
}
