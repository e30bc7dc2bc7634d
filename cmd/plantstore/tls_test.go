package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The files may be in the middle of a change when the server has started. It serves the
// certificate that it has checked.
func TestCertificateThatWasCheckedIsServed(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	web.Close()
	pair := web.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := tlsFlags{TLSCert: filepath.Join(dir, "cert.pem"), TLSKey: filepath.Join(dir, "key.pem"), ACMEDirectory: "https://example.com"}
	for path, block := range map[string]*pem.Block{
		f.TLSCert: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]}, f.TLSKey: {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(f.TLSKey); err != nil {
		t.Fatal(err)
	}
	config, _, expires := f.certificates(storeFlags{}, slog.New(slog.DiscardHandler))
	if got, err := config.GetCertificate(nil); err != nil || !got.Leaf.Equal(web.Certificate()) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, want := expires(), web.Certificate().NotAfter; !got.Equal(want) {
		t.Errorf("it expires at %v, want %v", got, want)
	}
}

// With several names, the certificate that expires first counts.
func TestFirstCertificateOfSeveralNamesToExpireCounts(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	f := tlsFlags{ACMEDomain: []string{"a.example.com", "b.example.com", "c.example.com"}, ACMECache: dir}
	want := now.Add(80 * 24 * time.Hour)
	for i, notAfter := range []time.Time{want.Add(time.Hour), want, want.Add(2 * time.Hour)} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: f.ACMEDomain[i : i+1], NotBefore: now, NotAfter: notAfter}
		cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		var kept bytes.Buffer
		for _, block := range []pem.Block{{Type: "PRIVATE KEY", Bytes: keyDER}, {Type: "CERTIFICATE", Bytes: cert}} {
			if err := pem.Encode(&kept, &block); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, f.ACMEDomain[i]), kept.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, keepCurrent, expires := f.certificates(storeFlags{}, slog.New(slog.DiscardHandler))
	if got := expires(); !got.IsZero() {
		t.Errorf("before there is a certificate, it expires at %v", got)
	}
	if err := keepCurrent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := expires(); !got.Equal(want) {
		t.Errorf("the first one expires at %v, want %v", got, want)
	}
}
