package main

import (
	"cmp"
	"crypto/tls"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"plantstore/internal/app"
)

// tlsFlags say how a server gets its certificate. Without one it speaks plain HTTP.
type tlsFlags struct {
	TLSCert string `name:"tls-cert" env:"PLANTSTORE_TLS_CERT" placeholder:"FILE" help:"Serve HTTPS with this certificate chain, in PEM; it is read again when it changes."`
	TLSKey  string `name:"tls-key" env:"PLANTSTORE_TLS_KEY" placeholder:"FILE" help:"The certificate's private key, in PEM."`

	ACMEDomain    []string `name:"acme-domain" env:"PLANTSTORE_ACME_DOMAIN" placeholder:"NAME" help:"Serve HTTPS with a certificate for this name, obtained and renewed with ACME; separate several with commas. The name must resolve to this server, on port 443."`
	ACMEEmail     string   `name:"acme-email" env:"PLANTSTORE_ACME_EMAIL" placeholder:"ADDRESS" help:"The e-mail address at which the certificate authority may contact you."`
	ACMEDirectory string   `name:"acme-directory" default:"https://acme-v02.api.letsencrypt.org/directory" env:"PLANTSTORE_ACME_DIRECTORY" placeholder:"URL" help:"The certificate authority (${default})."`
	ACMECache     string   `name:"acme-cache" env:"PLANTSTORE_ACME_CACHE" placeholder:"DIR" help:"Where to keep the account and the certificates (acme, beside the store's file)."`

	file *app.CertificateFile // set by check
}

func (f tlsFlags) enabled() bool { return f.TLSCert != "" || len(f.ACMEDomain) > 0 }

func (f *tlsFlags) check() (err error) {
	if (f.TLSCert == "") != (f.TLSKey == "") {
		return usage("--tls-cert and --tls-key must be used together")
	}
	if f.TLSCert != "" && len(f.ACMEDomain) > 0 {
		return usage("--tls-cert and --acme-domain cannot be combined: choose one source of certificates")
	}
	if f.TLSCert != "" {
		if f.file, err = app.LoadCertificate(f.load); err != nil {
			return err
		}
	}
	for _, name := range f.ACMEDomain {
		if !strings.Contains(name, ".") || strings.ContainsAny(name, "/:*@ ") || net.ParseIP(name) != nil {
			return usage("--acme-domain must be a name such as plants.example.com, got %q", name)
		}
	}
	if u, err := url.Parse(f.ACMEDirectory); err != nil || u.Scheme != "https" || u.Host == "" {
		return usage("--acme-directory must be an https URL, got %q", f.ACMEDirectory)
	}
	return nil
}

func (f tlsFlags) load() (*tls.Certificate, error) {
	chain, err := os.ReadFile(f.TLSCert)
	if err != nil {
		return nil, usage("--tls-cert: %w", err)
	}
	key, err := os.ReadFile(f.TLSKey)
	if err != nil {
		return nil, usage("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, usage("--tls-cert %s and --tls-key %s: %w", f.TLSCert, f.TLSKey, err)
	}
	return &pair, nil
}

// certificates returns where the server gets its certificates, or nil for plain HTTP.
func (f tlsFlags) certificates(store storeFlags) app.Certificates {
	switch {
	case f.file != nil:
		return f.file
	case len(f.ACMEDomain) == 0:
		return nil
	}
	cache := f.ACMECache
	if cache == "" && !store.isPostgres() {
		cache = filepath.Join(filepath.Dir(store.DB), "acme")
	}
	return app.NewACME(f.ACMEDirectory, f.ACMEDomain, f.ACMEEmail, cmp.Or(cache, "acme"), "plantstore/"+buildVersion())
}
