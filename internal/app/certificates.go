package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/acme"
	"golang.org/x/crypto/acme/autocert"
)

// Certificates are where a server gets its certificates: a [CertificateFile] or [ACME].
type Certificates interface {
	config() *tls.Config
	// keepCurrent keeps the certificates current until ctx ends.
	keepCurrent(ctx context.Context, log *slog.Logger) error
	// expires returns when the first of the certificates in use expires, or the zero time if
	// there is none yet.
	expires() time.Time
}

// CertificateFile is a certificate that may change while the server runs.
type CertificateFile struct {
	load    func() (*tls.Certificate, error)
	current atomic.Pointer[tls.Certificate]
}

// LoadCertificate returns the certificate that load returns. The server calls load again
// every second, to find out whether it has changed.
func LoadCertificate(load func() (*tls.Certificate, error)) (*CertificateFile, error) {
	pair, err := load()
	if err != nil {
		return nil, err
	}
	f := &CertificateFile{load: load}
	f.current.Store(pair)
	return f, nil
}

func (f *CertificateFile) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.current.Load(), nil },
	}
}

func (f *CertificateFile) expires() time.Time { return f.current.Load().Leaf.NotAfter }

// keepCurrent reads the certificate again when it changes, until ctx ends. Connections that exist
// keep theirs. If the files cannot be used, because only one of them has been replaced so far,
// the certificate that was read before stays in use.
func (f *CertificateFile) keepCurrent(ctx context.Context, log *slog.Logger) error {
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
		if !slices.EqualFunc(pair.Certificate, f.current.Load().Certificate, bytes.Equal) {
			f.current.Store(pair)
			log.Info("the certificate has been read again", "expires", pair.Leaf.NotAfter)
		}
		return nil
	})
}

// acmeRetry is how long to wait after a failure. Certificate authorities allow few
// failures an hour.
const acmeRetry = 15 * time.Minute

// ACME obtains certificates from a certificate authority, and renews them after two thirds
// of their lifetime.
type ACME struct {
	manager *autocert.Manager
	names   []string
	ready   atomic.Int64 // how many of them have a certificate
}

// NewACME returns the certificates for these names, from the authority with this directory.
// The account, with an email address that may be empty, and the certificates are kept in
// the folder cache.
func NewACME(directory string, names []string, email, cache, userAgent string) *ACME {
	return &ACME{names: names, manager: &autocert.Manager{
		Prompt:     autocert.AcceptTOS,
		Cache:      autocert.DirCache(cache),
		HostPolicy: autocert.HostWhitelist(names...),
		Email:      email,
		Client:     &acme.Client{DirectoryURL: directory, UserAgent: userAgent},
	}}
}

func (m *ACME) config() *tls.Config {
	config := m.manager.TLSConfig()
	config.MinVersion = tls.VersionTLS12
	return config
}

// certificate returns what every modern client gets for a name. If there is no certificate yet,
// it is obtained first.
func (m *ACME) certificate(name string) (*tls.Certificate, error) {
	return m.manager.GetCertificate(&tls.ClientHelloInfo{
		ServerName: name, SupportedCurves: []tls.CurveID{tls.CurveP256},
		SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256},
		CipherSuites:     []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256},
	})
}

// expires returns when the first of the certificates expires that were obtained, renewals
// included.
func (m *ACME) expires() (first time.Time) {
	for _, name := range m.names[:m.ready.Load()] {
		if pair, err := m.certificate(name); err == nil && (first.IsZero() || pair.Leaf.NotAfter.Before(first)) {
			first = pair.Leaf.NotAfter
		}
	}
	return first
}

// keepCurrent obtains the certificates, so that the first client does not wait for them and
// failures are logged.
func (m *ACME) keepCurrent(ctx context.Context, log *slog.Logger) error {
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
