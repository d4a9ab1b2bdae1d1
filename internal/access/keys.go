package access

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Limits of a token file, in bytes.
const (
	maxKeyFile = 4 << 20
	maxKeyName = 128
	maxToken   = 4096
)

// keyPoll is how often the token file is read again. A change counts when two
// reads in a row agree, so a removed key ends, and a new one works, within two
// of them.
const keyPoll = time.Second

// Keys are the clients that a token file names. Lines are NAME:TOKEN or
// NAME:sha256:HEX; empty lines and lines that begin with # say nothing. A name
// may have several tokens, so that one can be replaced by the next.
type Keys struct {
	path string
	log  *slog.Logger

	mu      sync.RWMutex
	entries []entry
	text    []byte // what entries were made of
	seen    []byte // the last text read, if it differs
}

type entry struct {
	name    string
	hash    [sha256.Size]byte
	revoked chan struct{} // closed when the entry is no longer in the file
}

// OpenKeys reads a token file. It is an error if others than its owner may
// read it (on Windows that is not checked), or if it names nobody.
func OpenKeys(path string, log *slog.Logger) (*Keys, error) {
	text, err := readKeys(path)
	if err != nil {
		return nil, err
	}
	entries, err := parseKeys(text)
	if err != nil {
		return nil, fmt.Errorf("reading the token file %s: %w", path, err)
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("reading the token file %s: it names no key", path)
	}
	return &Keys{path: path, log: log, entries: entries, text: text}, nil
}

// Find returns who holds the token: the name, and a channel that is closed when
// the key is taken out of the file. Every key is compared, in constant time.
func (k *Keys) Find(token string) (Identity, bool) {
	if len(token) > maxToken {
		return Identity{}, false
	}
	hash := sha256.Sum256([]byte(token))
	k.mu.RLock()
	defer k.mu.RUnlock()
	found := -1
	for i := range k.entries {
		same := subtle.ConstantTimeCompare(hash[:], k.entries[i].hash[:])
		found = subtle.ConstantTimeSelect(same, i, found)
	}
	if found < 0 {
		return Identity{}, false
	}
	return Identity{Principal: k.entries[found].name, Revoked: k.entries[found].revoked}, true
}

// Watch reads the file again until ctx ends. A file that cannot be read or
// understood changes nothing and is logged once; an empty one revokes all.
func (k *Keys) Watch(ctx context.Context) {
	tick := time.NewTicker(keyPoll)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := k.reload()
		if err != nil && err.Error() != said {
			k.log.Error("the token file was not taken, the old keys stay", "error", err)
		}
		said = ""
		if err != nil {
			said = err.Error()
		}
	}
}

func (k *Keys) reload() error {
	text, err := readKeys(k.path)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if bytes.Equal(text, k.text) {
		k.seen = nil
		return nil
	}
	// An editor may have written half of it: wait until it stays the same.
	if k.seen == nil || !bytes.Equal(text, k.seen) {
		k.seen = text
		return nil
	}
	entries, err := parseKeys(text)
	if err != nil {
		return fmt.Errorf("reading the token file %s: %w", k.path, err)
	}
	k.replace(entries)
	k.text, k.seen = text, nil
	return nil
}

// replace keeps the entries that stay and revokes the others.
func (k *Keys) replace(entries []entry) {
	revoked := 0
	for _, old := range k.entries {
		stays := false
		for i := range entries {
			if entries[i].name == old.name && entries[i].hash == old.hash {
				entries[i].revoked = old.revoked
				stays = true
			}
		}
		if !stays {
			close(old.revoked)
			revoked++
		}
	}
	k.entries = entries
	k.log.Info("the token file changed", "keys", len(entries), "revoked", revoked)
}

func readKeys(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the token file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("opening the token file: %w", err)
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	text := make([]byte, info.Size())
	n, err := f.ReadAt(text, 0)
	if n < len(text) {
		return nil, fmt.Errorf("reading the token file %s: %w", path, err)
	}
	return text, nil
}

func private(path string, info fs.FileInfo) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("opening the token file %s: not a file", path)
	case info.Size() > maxKeyFile:
		return fmt.Errorf("opening the token file %s: larger than %d bytes", path, maxKeyFile)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("opening the token file %s: its mode is %04o, others may read it; it must be 0600",
			path, info.Mode().Perm())
	}
	return nil
}

func parseKeys(text []byte) ([]entry, error) {
	var entries []entry
	owner := map[[sha256.Size]byte]string{}
	for n, line := range strings.Split(strings.TrimPrefix(string(text), "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		e, err := parseKey(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		if other, taken := owner[e.hash]; taken {
			return nil, fmt.Errorf("line %d: the token of %s is also that of %s", n+1, e.name, other)
		}
		owner[e.hash] = e.name
		e.revoked = make(chan struct{})
		entries = append(entries, e)
	}
	return entries, nil
}

// parseKey reads one line. Its errors never contain the token.
func parseKey(line string) (entry, error) {
	name, token, ok := strings.Cut(line, ":")
	if !ok {
		return entry{}, errors.New("must be NAME:TOKEN or NAME:sha256:HEX")
	}
	name, token = strings.TrimSpace(name), strings.TrimSpace(token)
	if !keyName(name) {
		return entry{}, fmt.Errorf("a name is 1 to %d of A-Z a-z 0-9 . _ @ -", maxKeyName)
	}
	e := entry{name: name}
	if digest, hashed := strings.CutPrefix(token, "sha256:"); hashed {
		hash, err := hex.DecodeString(digest)
		if err != nil || len(hash) != sha256.Size {
			return entry{}, fmt.Errorf("%s: after sha256: there must be %d hexadecimal digits", name, 2*sha256.Size)
		}
		copy(e.hash[:], hash)
		return e, nil
	}
	if token == "" || len(token) > maxToken || strings.ContainsAny(token, " \t") {
		return entry{}, fmt.Errorf("%s: a token is 1 to %d characters without spaces", name, maxToken)
	}
	e.hash = sha256.Sum256([]byte(token))
	return e, nil
}

func keyName(s string) bool {
	if s == "" || len(s) > maxKeyName {
		return false
	}
	for _, c := range []byte(s) {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && strings.IndexByte("._@-", c) < 0 {
			return false
		}
	}
	return true
}
