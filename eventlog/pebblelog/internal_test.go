package pebblelog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/segno-mcp/segno/eventlog"
	"pgregory.net/rapid"
)

func openMem(t *testing.T) *Log {
	l, err := Open("store", Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func (l *Log) inMemory() (streams, tails int) {
	l.places.mu.RLock()
	defer l.places.mu.RUnlock()
	l.places.tails.mu.Lock()
	defer l.places.tails.mu.Unlock()
	return len(l.places.live) + len(l.places.watchers), l.places.tails.bytes + l.places.tails.order.Len()
}

// A retained stream without reader or writer costs no memory.
func TestIdleStreamsCostNothing(t *testing.T) {
	l := openMem(t)
	c, err := l.Claim(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	add := func(stream string, after uint64, kind eventlog.Kind) {
		t.Helper()
		a := eventlog.Append{Key: eventlog.Key{Session: "s", Stream: stream}, Fence: c.Fence, After: after, Durable: after > 0,
			Events: []eventlog.Event{{Kind: kind, Data: make([]byte, 1000)}}}
		if err := l.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 50 {
		name := fmt.Sprint(n)
		add(name, 0, eventlog.Opening)
		stop := l.Watch(eventlog.Key{Session: "s", Stream: name}, make(chan struct{}, 1))
		if n%2 == 0 {
			stop()
		}
		add(name, 1, eventlog.End)
		stop()
	}
	if streams, bytes := l.inMemory(); streams != 0 || bytes != 0 {
		t.Fatalf("ended: %d streams, %d bytes in memory", streams, bytes)
	}
	for n := range 50 {
		add(fmt.Sprint("open ", n), 0, eventlog.Opening)
	}
	stop := l.Watch(eventlog.Key{Session: "s", Stream: "open 7"}, make(chan struct{}, 1))
	l.Release("s")
	if c, err = l.Claim(t.Context(), "s", false); err != nil {
		t.Fatal(err)
	}
	if streams, _ := l.inMemory(); streams != 2 {
		t.Fatalf("released, one watched: %d in memory", streams)
	}
	stop()
	if streams, bytes := l.inMemory(); streams != 0 || bytes != 0 {
		t.Fatalf("released: %d streams, %d bytes in memory", streams, bytes)
	}
	add("open 7", 1, eventlog.Progress)
	if err := l.DropSession(t.Context(), "s", c.Fence); err != nil {
		t.Fatal(err)
	}
	if streams, bytes := l.inMemory(); streams != 0 || bytes != 0 || len(l.owners) != 0 {
		t.Fatalf("dropped: %d streams, %d bytes in memory, %d owners", streams, bytes, len(l.owners))
	}
}

func TestTailsAreBounded(t *testing.T) {
	l := openMem(t)
	c, err := l.Claim(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 200<<10)
	for n := range 100 {
		k := eventlog.Key{Session: "s", Stream: fmt.Sprint(n)}
		for after := range uint64(7) {
			a := eventlog.Append{Key: k, Fence: c.Fence, After: after, Events: []eventlog.Event{{Kind: eventlog.Progress, Data: data}}}
			if err := l.Append(t.Context(), a); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, bytes := l.inMemory(); bytes > allTails+1000 || bytes < allTails/2 {
		t.Fatalf("%d bytes of tails in memory", bytes)
	}
	for _, n := range []int{0, 50, 99} {
		p, err := l.Read(t.Context(), eventlog.Key{Session: "s", Stream: fmt.Sprint(n)}, 0, 8*len(data))
		if err != nil || len(p.Events) != 7 {
			t.Fatalf("stream %d: %d events, %v", n, len(p.Events), err)
		}
	}
}

// A session without anything left in pebble has no key left either.
func TestNothingIsLeftBehind(t *testing.T) {
	l := openMem(t)
	c, err := l.Claim(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 300 {
		k := eventlog.Key{Session: "s", Stream: fmt.Sprint(n)}
		a := eventlog.Append{Key: k, Fence: c.Fence, Bind: "name " + k.Stream, Due: timeOf(int64(n)), Events: []eventlog.Event{{Kind: eventlog.Progress}, {Kind: eventlog.Progress}}}
		if err := l.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		_, err := l.Trim(t.Context(), k, c.Fence, 1, eventlog.Pinned)
		if n%3 == 0 {
			err = errors.Join(err, l.Drop(t.Context(), k, c.Fence, []byte("memo")))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.DropSession(t.Context(), "s", c.Fence); err != nil {
		t.Fatal(err)
	}
	it, err := l.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if it.Key()[0] != spaceStore {
			t.Errorf("left: %q", it.Key())
		}
	}
}

// Trims remove blocks from pebble, not only from sight.
func TestTrimErases(t *testing.T) {
	l := openMem(t)
	k := eventlog.Key{Session: "s", Stream: "x"}
	c, err := l.Claim(t.Context(), "s", true)
	if err != nil {
		t.Fatal(err)
	}
	events := make([]eventlog.Event, 100)
	for n := range events {
		events[n] = eventlog.Event{Kind: eventlog.Progress, Data: make([]byte, 200)}
	}
	for after := uint64(0); after < 20_000; after += 100 {
		if err := l.Append(t.Context(), eventlog.Append{Key: k, Fence: c.Fence, After: after, Events: events}); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Trim(t.Context(), k, c.Fence, after, eventlog.Pinned); err != nil {
			t.Fatal(err)
		}
	}
	blocks := 0
	count := func([]byte, []byte) error { blocks++; return nil }
	if err := l.scan(streamKey(k, loose), count); err != nil {
		t.Fatal(err)
	}
	if blocks > 2+eraseBytes/20_000 {
		t.Fatalf("%d blocks are left", blocks)
	}
}

func TestBlockRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		thin := rapid.Bool().Draw(t, "sparse")
		bl := block{term: []byte("abc-_9"), loose: amount{5, 1 << 40}, pinned: amount{0, 7}}
		seq := first
		for range rapid.IntRange(1, 40).Draw(t, "events") {
			bl.events = append(bl.events, eventlog.Event{
				Seq: seq, Kind: eventlog.Kind(rapid.IntRange(1, 6).Draw(t, "kind")),
				Time: rapid.Int64().Draw(t, "time"), Data: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "data"),
			})
			if seq++; thin {
				seq += rapid.Uint64Range(0, 300).Draw(t, "jump")
			}
		}
		v := encodeSparse(&bl, first, bl.events)
		if !thin {
			v = appendHead(nil, 0, bl.term, bl.loose, bl.pinned, bl.events)
			for _, e := range bl.events {
				v = append(v, e.Data...)
			}
		}
		got, err := decodeBlock(first, v, nil)
		if err != nil || string(got.term) != "abc-_9" || got.loose != bl.loose || got.pinned != bl.pinned || fmt.Sprint(got.events) != fmt.Sprint(bl.events) {
			t.Fatalf("got %+v, %v, want %+v", got, err, bl)
		}
		for n := range v {
			if _, err := decodeBlock(first, v[:n], nil); err == nil {
				t.Fatalf("cut to %d of %d bytes it is not refused", n, len(v))
			}
		}
	})
}

func FuzzDecodeBlock(f *testing.F) {
	f.Add(uint64(1), appendHead(nil, 0, "abcdef", amount{}, amount{}, []eventlog.Event{{Kind: 1}}))
	f.Add(uint64(9), appendHead(nil, sparse, "abcdef", amount{1, 2}, amount{}, make([]eventlog.Event, 3)))
	f.Fuzz(func(t *testing.T, first uint64, v []byte) {
		if bl, err := decodeBlock(first, v, nil); err == nil && len(bl.events) == 0 {
			t.Fatal("a block without events")
		}
		st := &state{}
		_ = st.decode(v)
	})
}

// What pebble calls fatal must not end the process.
func TestFatalIsKept(t *testing.T) {
	l := openMem(t)
	if _, err := l.Claim(t.Context(), "s", true); err != nil {
		t.Fatal(err)
	}
	pebbleLogger{l}.Fatalf("out of %s", "luck")
	if _, err := l.Claim(t.Context(), "s", true); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Fatalf("then: %v", err)
	}
	if _, err := l.Record(t.Context(), "s"); err != nil {
		t.Fatalf("reading: %v", err)
	}
}

// Keys of one session lie together, and apart from those of any other.
func TestKeysBySession(t *testing.T) {
	names := []string{"a", "a\x01", "a-", "aa", "b", "\xff"}
	for range 200 {
		s, o := names[rand.IntN(len(names))], names[rand.IntN(len(names))]
		k := eventlog.Key{Session: s, Stream: o}
		lower := sessionPrefix(s)
		for _, key := range [][]byte{blockKey(k, loose, 7), dueKey(k), boundPrefix(k), memoKey(s, 3), sessionKey(s, ownKey)} {
			for _, other := range names {
				from := sessionPrefix(other)
				inside := pebble.DefaultComparer.Compare(key, from) >= 0 && pebble.DefaultComparer.Compare(key, after(from)) < 0
				if inside != (other == s) {
					t.Fatalf("key %q, range of %q", key, other)
				}
			}
		}
		if len(blockKey(k, loose, 7)) != blockKeyLen(k) || string(lower) != string(blockKey(k, loose, 7)[:len(lower)]) {
			t.Fatalf("key %q", blockKey(k, loose, 7))
		}
	}
}

func timeOf(n int64) time.Time { return time.Unix(n, 0) }

func TestFormatOfAnotherVersion(t *testing.T) {
	fs := vfs.NewMem()
	l, err := Open("store", Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.get([]byte{spaceStore})
	if err != nil {
		t.Fatal(err)
	}
	head[0] = format + 1
	if err := errors.Join(l.db.Set([]byte{spaceStore}, head, pebble.Sync), l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open("store", Options{FS: fs}); !errors.Is(err, ErrFormat) {
		t.Fatalf("our format: %v", err)
	}
	names, err := fs.List("store")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "marker.format-version") {
			if err := fs.Rename("store/"+name, "store/"+name[:len(name)-3]+"999"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open("store", Options{FS: fs}); !errors.Is(err, ErrFormat) {
		t.Fatalf("pebble's format: %v", err)
	}
}
