package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// tlsFlags say how a server gets its certificate. Without one it speaks plain HTTP.
type tlsFlags struct {
	TLSCert string `name:"tls-cert" env:"PLANTSTORE_TLS_CERT" placeholder:"FILE" help:"Serve HTTPS with this certificate chain, in PEM; it is read again when it changes."`
	TLSKey  string `name:"tls-key" env:"PLANTSTORE_TLS_KEY" placeholder:"FILE" help:"The certificate's private key, in PEM."`

	ACMEDomain    []string `name:"acme-domain" env:"PLANTSTORE_ACME_DOMAIN" placeholder:"NAME" help:"Serve HTTPS with a certificate for this name, obtained and renewed with ACME; separate several with commas. Port 443 of the name must lead here."`
	ACMEEmail     string   `name:"acme-email" env:"PLANTSTORE_ACME_EMAIL" placeholder:"ADDRESS" help:"Whom the certificate authority may contact."`
	ACMEDirectory string   `name:"acme-directory" default:"https://acme-v02.api.letsencrypt.org/directory" env:"PLANTSTORE_ACME_DIRECTORY" placeholder:"URL" help:"The certificate authority (${default})."`
	ACMECache     string   `name:"acme-cache" env:"PLANTSTORE_ACME_CACHE" placeholder:"DIR" help:"Where to keep the account and the certificates (acme, beside the store's file)."`

	// Set by check. The files may be in the middle of a change when the server has started.
	pair *tls.Certificate
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
		if f.pair, err = f.load(); err != nil {
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

// certificates returns the TLS configuration, nil for plain HTTP, what keeps its certificates
// current, and what returns when the first of those in use expires: the zero time if there is
// none.
func (f tlsFlags) certificates(store storeFlags, log *slog.Logger) (config *tls.Config, keepCurrent func(context.Context) error, expires func() time.Time) {
	if !f.enabled() {
		return nil, func(context.Context) error { return nil }, func() time.Time { return time.Time{} }
	}
	if len(f.ACMEDomain) > 0 {
		m := &acmeNames{Manager: f.manager(store), names: f.ACMEDomain}
		config := m.TLSConfig()
		config.MinVersion = tls.VersionTLS12
		return config, func(ctx context.Context) error { return m.obtain(ctx, log) }, m.expires
	}
	var current atomic.Pointer[tls.Certificate]
	current.Store(f.pair)
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
	}, func(ctx context.Context) error { return f.reload(ctx, &current, log) }, func() time.Time { return current.Load().Leaf.NotAfter }
}

// manager obtains certificates and renews them after two thirds of their lifetime.
func (f tlsFlags) manager(store storeFlags) *autocert.Manager {
	cache := f.ACMECache
	if cache == "" && !store.isPostgres() {
		cache = filepath.Join(filepath.Dir(store.DB), "acme")
	}
	return &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      autocert.DirCache(cmp.Or(cache, "acme")),
		HostPolicy: autocert.HostWhitelist(f.ACMEDomain...),
		Email:      f.ACMEEmail,
		Client:     &acme.Client{DirectoryURL: f.ACMEDirectory, UserAgent: "plantstore/" + buildVersion()},
	}
}

// acmeRetry is how long to wait after a failure. Certificate authorities allow few
// failures an hour.
const acmeRetry = 15 * time.Minute

// acmeNames are the names for which a manager obtains certificates.
type acmeNames struct {
	*autocert.Manager
	names []string
	ready atomic.Int64 // how many of them have a certificate
}

// certificate returns what every modern client gets for a name. If there is no certificate yet,
// it is obtained first.
func (m *acmeNames) certificate(name string) (*tls.Certificate, error) {
	return m.GetCertificate(&tls.ClientHelloInfo{
		ServerName: name, SupportedCurves: []tls.CurveID{tls.CurveP256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	})
}

// expires returns when the first of the certificates expires that were obtained, renewals
// included.
func (m *acmeNames) expires() (first time.Time) {
	for _, name := range m.names[:m.ready.Load()] {
		if pair, err := m.certificate(name); err == nil && (first.IsZero() || pair.Leaf.NotAfter.Before(first)) {
			first = pair.Leaf.NotAfter
		}
	}
	return first
}

// obtain obtains the certificates, so that the first client does not wait for them and
// failures are logged.
func (m *acmeNames) obtain(ctx context.Context, log *slog.Logger) error {
	for _, name := range m.names {
		for {
			pair, err := m.certificate(name)
			if err == nil {
				log.Info("the certificate is ready", "name", name, "expires", pair.Leaf.NotAfter)
				m.ready.Add(1)
				break
			}
			log.Warn("no certificate yet", "name", name, "err", err, "retry", acmeRetry)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(acmeRetry):
			}
		}
	}
	return nil
}

// reload reads the certificate again when it changes, until ctx ends. Connections that exist
// keep theirs. If the files cannot be used, because only one of them has been replaced so far,
// the certificate that was read before stays in use.
func (f tlsFlags) reload(ctx context.Context, current *atomic.Pointer[tls.Certificate], log *slog.Logger) error {
	problem := "" // the last one, which is logged once
	return every(ctx, time.Second, func() error {
		pair, err := f.load()
		if err != nil {
			if err.Error() != problem {
				log.Warn("the changed certificate cannot be used, the old one stays", "err", err)
			}
			problem = err.Error()
			return nil
		}
		problem = ""
		if !slices.EqualFunc(pair.Certificate, current.Load().Certificate, bytes.Equal) {
			current.Store(pair)
			log.Info("the certificate has been read again", "expires", pair.Leaf.NotAfter)
		}
		return nil
	})
}
