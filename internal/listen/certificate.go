package listen

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certPoll is how often, at most, the files are looked at again.
const certPoll = 5 * time.Second

// certificates is one certificate that follows its files.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	cert    *tls.Certificate
	stamp   [2]stamp
	looked  time.Time
	problem string
}

// stamp tells one state of a file from another without reading it.
type stamp struct {
	size int64
	time time.Time
}

func openCertificates(o Options) (*certificates, error) {
	if o.Cert == "" && o.Key == "" {
		return nil, nil
	}
	if o.Cert == "" || o.Key == "" {
		return nil, errors.New("reading the certificate: the chain and the key are needed, both or none")
	}
	c := &certificates{certFile: o.Cert, keyFile: o.Key, log: o.Logger}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c, c.load()
}

func (c *certificates) load() error {
	at, err := stamps(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	c.cert, c.stamp = &cert, at
	return nil
}

func stamps(files ...string) (at [2]stamp, err error) {
	for i, name := range files {
		info, err := os.Stat(name)
		if err != nil {
			return at, fmt.Errorf("reading the certificate: %w", err)
		}
		at[i] = stamp{info.Size(), info.ModTime()}
	}
	return at, nil
}

// get is called for each handshake. Files that changed are read; if that
// fails, half of them may be written: the old ones serve until it works.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= certPoll {
		c.looked = now
		c.refresh()
	}
	return c.cert, nil
}

func (c *certificates) refresh() {
	at, err := stamps(c.certFile, c.keyFile)
	if err == nil && at == c.stamp {
		c.problem = ""
		return
	}
	if err == nil {
		err = c.load()
	}
	switch {
	case err == nil:
		c.problem = ""
		c.log.Info("the certificate was read again", "file", c.certFile)
	case err.Error() != c.problem:
		c.problem = err.Error()
		c.log.Error("the new certificate was not taken, the old one stays", "error", err)
	}
}
