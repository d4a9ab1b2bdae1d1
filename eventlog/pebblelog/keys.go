package pebblelog

import (
	"encoding/binary"
	"strings"

	"github.com/segno-mcp/segno/eventlog"
)

// The keys, by session first. A stream's events lie in two spaces, so that what
// retention drops can go as one range while what is pinned stays:
//
//	v NAME                          of the store: format, fingerprint, boot
//	n NAME                       →  session 0 stream
//	x TIME session 0 stream      →  nothing; what is due, in order
//	s session 0 own              →  fence, term
//	s session 0 record           →  the session's record
//	s session 0 due stream       →  time; finds the x key
//	s session 0 bound stream 0 NAME
//	s session 0 memos NUMBER     →  stream; which memo to forget first
//	s session 0 streams stream 0 E|P SEQ →  a block of events
//	s session 0 streams stream 0 M       →  what blocks do not tell
//	s session 0 streams stream 0 T       →  the memo of a dropped stream
const (
	spaceStore   = 'v'
	spaceName    = 'n'
	spaceDue     = 'x'
	spaceSession = 's'

	ownKey     = 1
	recordKey  = 2
	dueKeys    = 3
	boundKeys  = 4
	memoKeys   = 5
	streamKeys = 6

	loose  = 'E' // Progress and Other
	meta   = 'M'
	pinned = 'P'
	memo   = 'T'
)

func sessionPrefix(session string) []byte {
	b := make([]byte, 0, len(session)+48)
	b = append(b, spaceSession)
	b = append(b, session...)
	return append(b, 0)
}

func sessionKey(session string, part byte) []byte { return append(sessionPrefix(session), part) }

func dueKey(k eventlog.Key) []byte { return append(sessionKey(k.Session, dueKeys), k.Stream...) }

func boundPrefix(k eventlog.Key) []byte {
	b := append(sessionKey(k.Session, boundKeys), k.Stream...)
	return append(b, 0)
}

func memoKey(session string, n uint64) []byte {
	return binary.BigEndian.AppendUint64(sessionKey(session, memoKeys), n)
}

// streamPrefix begins every key of a stream; with its last byte raised it ends
// them.
func streamPrefix(k eventlog.Key) []byte {
	b := appendStream(make([]byte, 0, len(k.Session)+len(k.Stream)+16), k)
	return b
}

func appendStream(b []byte, k eventlog.Key) []byte {
	b = append(b, spaceSession)
	b = append(b, k.Session...)
	b = append(b, 0, streamKeys)
	b = append(b, k.Stream...)
	return append(b, 0)
}

func streamKey(k eventlog.Key, part byte) []byte { return append(streamPrefix(k), part) }

func blockKey(k eventlog.Key, space byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(streamKey(k, space), seq)
}

func blockKeyLen(k eventlog.Key) int { return len(k.Session) + len(k.Stream) + 13 }

// seqOf reads the seq at the end of a block's key.
func seqOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func nameKey(name string) []byte { return append([]byte{spaceName}, name...) }

func dateKey(at int64, k eventlog.Key) []byte {
	b := binary.BigEndian.AppendUint64([]byte{spaceDue}, orderedTime(at))
	return appendPair(b, k)
}

// orderedTime makes dates before 1970 sort before the others.
func orderedTime(at int64) uint64 { return uint64(at) ^ 1<<63 }

func appendPair(b []byte, k eventlog.Key) []byte {
	b = append(b, k.Session...)
	b = append(b, 0)
	return append(b, k.Stream...)
}

func pairOf(b []byte) eventlog.Key {
	session, stream, _ := strings.Cut(string(b), "\x00")
	return eventlog.Key{Session: session, Stream: stream}
}

// after is the first key behind all that begin with the prefix.
func after(prefix []byte) []byte {
	b := append([]byte(nil), prefix...)
	b[len(b)-1]++
	return b
}

// nameable tells whether a key can be there at all: a zero byte would let a name
// reach into another session's keys.
func nameable(k eventlog.Key) bool {
	return k.Session != "" && strings.IndexByte(k.Session, 0) < 0 && strings.IndexByte(k.Stream, 0) < 0
}
