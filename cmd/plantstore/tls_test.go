package main

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
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
	config, _ := f.certificates(storeFlags{}, slog.New(slog.DiscardHandler))
	if got, err := config.GetCertificate(nil); err != nil || !got.Leaf.Equal(web.Certificate()) {
		t.Errorf("got %v, %v", got, err)
	}
}
