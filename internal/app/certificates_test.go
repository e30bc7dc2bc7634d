package app

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The files may be in the middle of a change when the server has started. It serves the
// certificate that was loaded before.
func TestCertificateThatWasLoadedIsServed(t *testing.T) {
	web := httptest.NewTLSServer(nil)
	web.Close()
	loaded := 0
	f, err := LoadCertificate(func() (*tls.Certificate, error) {
		if loaded++; loaded > 1 {
			return nil, errors.New("only one of the files has been replaced")
		}
		return &web.TLS.Certificates[0], nil
	})
	if err != nil {
		t.Fatal(err)
	}
	once, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.keepCurrent(once, slog.New(slog.DiscardHandler)); err != nil || loaded != 2 {
		t.Fatalf("loaded %d times, %v", loaded, err)
	}
	if got, err := f.config().GetCertificate(nil); err != nil || !got.Leaf.Equal(web.Certificate()) {
		t.Errorf("got %v, %v", got, err)
	}
	if got, want := f.expires(), web.Certificate().NotAfter; !got.Equal(want) {
		t.Errorf("it expires at %v, want %v", got, want)
	}
}

// With several names, the certificate that expires first counts.
func TestFirstCertificateOfSeveralNamesToExpireCounts(t *testing.T) {
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	names := []string{"a.example.com", "b.example.com", "c.example.com"}
	want := now.Add(80 * 24 * time.Hour)
	for i, notAfter := range []time.Time{want.Add(time.Hour), want, want.Add(2 * time.Hour)} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: names[i : i+1], NotBefore: now, NotAfter: notAfter}
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
		if err := os.WriteFile(filepath.Join(dir, names[i]), kept.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := NewACME("https://acme.example.com", names, "", dir, "test")
	if got := m.expires(); !got.IsZero() {
		t.Errorf("before there is a certificate, it expires at %v", got)
	}
	if err := m.keepCurrent(t.Context(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if got := m.expires(); !got.Equal(want) {
		t.Errorf("the first one expires at %v, want %v", got, want)
	}
}
