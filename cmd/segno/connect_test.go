package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestHeaderLines(t *testing.T) {
	env := map[string]string{"TOKEN": "Bearer x", "BAD": "a\r\nX-Other: b", "LF": "a\n"}
	for _, c := range []struct{ line, name, value, fault string }{
		{"Authorization: Bearer x", "Authorization", "Bearer x", ""},
		{"Authorization:Bearer x", "Authorization", "Bearer x", ""},
		{"authorization:${TOKEN}", "Authorization", "Bearer x", ""},
		{"X-A: a:b ", "X-A", "a:b", ""},
		{"X-A: $TOKEN ${", "X-A", "$TOKEN ${", ""},
		{"X-A:", "X-A", "", ""},
		{"X-A: ${NONE}", "", "", "the variable NONE is not set"},
		{"X-A: ${BAD}", "", "", "line break"},
		{"X-A: ${LF}", "", "", "line break"},
		{"X-A: a\nb", "", "", "line break"},
		{"X A: b", "", "", "no header"},
		{"secret-without-colon", "", "", `"secret-witho"`},
		{": b", "", "", "no header"},
	} {
		h, err := headers([]string{c.line}, func(n string) string { return env[n] })
		switch {
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%q: %v, want %q in it", c.line, err, c.fault)
		case c.fault == "" && (err != nil || h.Get(c.name) != c.value):
			t.Errorf("%q: %v, %v", c.line, h, err)
		}
	}
}

// certificate writes a new one for 127.0.0.1 that signs itself, and its key.
func certificate(t *testing.T, dir, name string) (cert, key string, parsed *x509.Certificate) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for file, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err = x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, parsed
}

// TestCertificates: a server whose authority is in --ca-file and that wants a
// certificate of the client.
func TestCertificates(t *testing.T) {
	dir := t.TempDir()
	serverCert, serverKey, _ := certificate(t, dir, "server")
	clientCert, clientKey, client := certificate(t, dir, "client")
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	known := x509.NewCertPool()
	known.AddCert(client)
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Client", r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	web.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: known}
	web.StartTLS()
	defer web.Close()
	for _, c := range []struct {
		ca, cert, key string
		ok            bool
	}{{serverCert, clientCert, clientKey, true}, {clientCert, clientCert, clientKey, false}, {serverCert, "", "", false}} {
		o, err := tlsConfig(c.ca, c.cert, c.key)
		if err != nil {
			t.Fatal(err)
		}
		o.ServerName = "localhost"
		trans := &http.Transport{TLSClientConfig: o}
		resp, err := (&http.Client{Transport: trans}).Get(web.URL)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil {
			if got := resp.Header.Get("X-Client"); got != "client" {
				t.Errorf("the server saw %q", got)
			}
			resp.Body.Close()
		}
		trans.CloseIdleConnections()
	}
}
