package auth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"
)

const (
	// maxMetadata is the largest response of an identity provider, in bytes, and maxKeys
	// the number of its keys that are used.
	maxMetadata, maxKeys = 256 << 10, 64
	// fetchTimeout is how long the provider may take to respond.
	fetchTimeout = 5 * time.Second
	// keysInterval is how often the keys are fetched without a reason, so that a key that
	// the provider has withdrawn is forgotten.
	keysInterval = 5 * time.Minute
	minRSABits   = 2048
)

// algorithms are the ones with a public key. With others, whoever can verify a token could
// create one.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

func algorithmNames() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = string(a)
	}
	return names
}

// keys are the provider's keys at some time. They are immutable.
type keys struct{ all []jose.JSONWebKey }

// keySet holds the keys of an identity provider. It fetches them when a token names an
// unknown key, but not more often than every refresh interval. So, whatever clients send,
// it knows a new key after that interval. While the provider is down, known keys stay
// valid.
type keySet struct {
	issuer  string
	refresh time.Duration
	web     *http.Client
	log     *slog.Logger
	current atomic.Pointer[keys] // nil until the first are known

	fetches singleflight.Group // runs one at a time, which owns the following fields
	tried   time.Time          // when the last fetch began
	warned  time.Time          // when the last failure was logged
}

func newKeySet(opts OIDC, log *slog.Logger) *keySet {
	return &keySet{
		issuer: opts.Issuer, refresh: cmp.Or(opts.Refresh, 5*time.Second), log: log,
		web: &http.Client{
			Timeout:   fetchTimeout,
			Transport: boundedTransport{cmp.Or(opts.Transport, http.DefaultTransport)},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("redirects are not followed")
			},
		},
	}
}

// VerifySignature returns the payload of a JWT whose signature is valid, for go-oidc.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(token, algorithms)
	if err != nil {
		return nil, err
	}
	known := k.current.Load()
	payload, err := known.verify(signed)
	if err == nil {
		return payload, nil
	}
	k.fetchOnce(ctx, context.WithoutCancel(ctx)) // not cancelled with ctx: others may wait for it
	if next := k.current.Load(); next != known {
		return next.verify(signed)
	}
	return nil, err
}

var errNoKey = errors.New("no key of the provider verifies the signature")

// verify returns the payload of a JWT that one of the keys signed.
func (k *keys) verify(signed *jose.JSONWebSignature) ([]byte, error) {
	if k == nil || len(signed.Signatures) != 1 {
		return nil, errNoKey
	}
	header := signed.Signatures[0].Header
	for _, key := range k.all {
		if header.KeyID != "" && key.KeyID != header.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	return nil, errNoKey
}

func (k *keySet) run(ctx context.Context) {
	for {
		k.fetchOnce(ctx, ctx)
		pause := keysInterval
		if k.current.Load() == nil {
			pause = k.refresh
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// fetchOnce fetches the keys, or waits for a fetch in progress, until ctx ends. It does
// nothing if the last fetch began less than the refresh interval ago. On success it sets
// current.
func (k *keySet) fetchOnce(ctx, fetchCtx context.Context) {
	fetched := k.fetches.DoChan("", func() (any, error) {
		if time.Since(k.tried) >= k.refresh {
			k.tried = time.Now()
			k.fetch(fetchCtx)
		}
		return nil, nil
	})
	select {
	case <-fetched:
	case <-ctx.Done():
	}
}

func (k *keySet) fetch(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	found, err := k.download(limited)
	if err != nil {
		if ctx.Err() == nil && time.Since(k.warned) > warnInterval {
			k.warned = time.Now()
			// The error may quote the whole response.
			k.log.Warn("cannot fetch the keys of the identity provider", "issuer", k.issuer, "err", fmt.Sprintf("%.300s", err))
		}
		return
	}
	k.current.Store(&keys{found})
}

// download finds out where the provider's keys are, and returns the usable ones.
func (k *keySet) download(ctx context.Context) (usable []jose.JSONWebKey, err error) {
	defer func() {
		if panicked := recover(); panicked != nil { // others wait for the result
			err = fmt.Errorf("panic: %v", panicked)
		}
	}()
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, k.web), k.issuer)
	if err != nil {
		return nil, err
	}
	var metadata struct {
		JWKS string `json:"jwks_uri"`
	}
	if err := found.Claims(&metadata); err != nil {
		return nil, err
	}
	if err := CheckIssuer(metadata.JWKS); err != nil {
		return nil, fmt.Errorf("jwks_uri: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, metadata.JWKS, nil)
	if err != nil {
		return nil, err
	}
	response, err := k.web.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", metadata.JWKS, response.Status)
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(response.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("%s: %w", metadata.JWKS, err)
	}
	for _, text := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && isUsable(&key) && len(usable) < maxKeys {
			usable = append(usable, key)
		}
	}
	if len(usable) == 0 {
		return nil, fmt.Errorf("%s: there is no key for signatures", metadata.JWKS)
	}
	return usable, nil
}

// isUsable reports whether a key is a public key for signatures.
func isUsable(key *jose.JSONWebKey) bool {
	if number, ok := key.Key.(*rsa.PublicKey); ok && number.N.BitLen() < minRSABits {
		return false
	}
	return key.Valid() && key.IsPublic() && key.Use != "enc"
}

// boundedTransport reads whole responses, up to a limit.
type boundedTransport struct{ http.RoundTripper }

func (b boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadata+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxMetadata {
		return nil, fmt.Errorf("the response is larger than %d bytes", maxMetadata)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// CheckIssuer returns an error unless an identity provider's URL is https, or http on
// this machine.
func CheckIssuer(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("must look like https://login.example.com/path, got %q", text)
	}
	addr := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || addr != nil && addr.IsLoopback()
	if u.Scheme != "https" && (u.Scheme != "http" || !local) {
		return fmt.Errorf("must begin with https://, or http:// on this machine, got %q", text)
	}
	return nil
}
