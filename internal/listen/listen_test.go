package listen

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// writeCert writes a self-signed certificate with a serial number.
func writeCert(t *testing.T, cert, key string, serial int64) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der},
		key:  {Type: "EC PRIVATE KEY", Bytes: keyDER},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestCertificateFollowsItsFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	writeCert(t, cert, key, 1)
	c, err := openCertificates(Options{Cert: cert, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	serial := func() int64 {
		t.Helper()
		c.looked = time.Time{}
		got, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return got.Leaf.SerialNumber.Int64()
	}
	if serial() != 1 {
		t.Fatal("not the first certificate")
	}
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial() != 1 {
		t.Error("a broken file replaced the certificate")
	}
	writeCert(t, cert, key, 2)
	if serial() != 2 {
		t.Error("the new certificate is not served")
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	if serial() != 2 {
		t.Error("a missing key took the certificate away")
	}
}

func TestCertificateNeedsBothFiles(t *testing.T) {
	for _, o := range []Options{{Cert: "x"}, {Key: "x"}, {Cert: "none", Key: "none"}} {
		if l, err := Open(t.Context(), "127.0.0.1:0", o); err == nil {
			l.Close()
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestServerSpeaksBothVersions(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	writeCert(t, cert, key, 1)
	say := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	for _, c := range []struct {
		name   string
		o      Options
		scheme string
		set    func(*http.Protocols)
		want   string
	}{
		{"plain", Options{}, "http", func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"plain, prior knowledge", Options{}, "http", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }, "HTTP/2.0"},
		{"TLS", Options{Cert: cert, Key: key}, "https", func(p *http.Protocols) { p.SetHTTP1(true) }, "HTTP/1.1"},
		{"TLS, h2", Options{Cert: cert, Key: key}, "https", func(p *http.Protocols) { p.SetHTTP2(true) }, "HTTP/2.0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := Open(t.Context(), "127.0.0.1:0", c.o)
			if err != nil {
				t.Fatal(err)
			}
			srv := NewServer(say, slog.New(slog.DiscardHandler))
			done := make(chan error, 1)
			go func() { done <- srv.Serve(l) }()
			defer func() { srv.Close(); <-done }()
			protocols := new(http.Protocols)
			c.set(protocols)
			tr := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer tr.CloseIdleConnections()
			res, err := (&http.Client{Transport: tr}).Get(c.scheme + "://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			got, err := bufio.NewReader(res.Body).Peek(len(c.want))
			if err != nil || string(got) != c.want {
				t.Errorf("%q (%v), want %q", got, err, c.want)
			}
		})
	}
}

func TestOpenSaysWhichAddress(t *testing.T) {
	l, err := Open(t.Context(), "127.0.0.1:0", Options{Unacknowledged: 45 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Open(context.Background(), l.Addr().String(), Options{}); err == nil {
		t.Error("two listeners on one address")
	}
}
