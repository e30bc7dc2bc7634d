package servertest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Audience is the audience of the tokens of an [Issuer].
const Audience = "https://plants.example.com"

// Issuer is an identity provider. It is the handler of its own pages and may be used by
// several goroutines.
type Issuer struct {
	// URL is its issuer, where it must be reachable.
	URL string

	mu      sync.Mutex // guards what follows
	signers []signer   // the newest is the last
	down    bool
	padding int // bytes added to the keys
	fetches int // of the keys
}

type signer struct {
	id  string
	key crypto.Signer
}

// NewIssuer returns an issuer with one key.
func NewIssuer(url string) *Issuer {
	i := &Issuer{URL: url}
	i.Rotate()
	return i
}

// Rotate replaces the key. RSA and elliptic curves take turns.
func (i *Issuer) Rotate() {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := len(i.signers)
	var key crypto.Signer
	if n%2 == 0 {
		key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	} else {
		key = must(rsa.GenerateKey(rand.Reader, 2048))
	}
	i.signers = append(i.signers, signer{"key-" + strconv.Itoa(n+1), key})
}

// SetDown makes it respond with 500, or not any more.
func (i *Issuer) SetDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// SetPadding adds bytes to the page of its keys.
func (i *Issuer) SetPadding(bytes int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.padding = bytes
}

// Fetches returns how often its keys were requested.
func (i *Issuer) Fetches() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fetches
}

// ServeHTTP serves the discovery document and the newest key.
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "/keys") {
		i.fetches++
	}
	w.Header().Set("Content-Type", "application/json")
	switch {
	case i.down:
		http.Error(w, "down", http.StatusInternalServerError)
	case strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration"):
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	case strings.HasSuffix(r.URL.Path, "/keys"):
		newest := i.signers[len(i.signers)-1]
		key := must(json.Marshal(jose.JSONWebKey{Key: newest.key.Public(), KeyID: newest.id, Use: "sig"}))
		// Keys of unknown kinds are ignored.
		fmt.Fprintf(w, `{"padding":%q,"keys":[{"kty":"unknown","kid":"x"},%s]}`, strings.Repeat("x", i.padding), key)
	default:
		http.NotFound(w, r)
	}
}

// Sign returns a token that is valid for an hour and has all scopes, unless the claims
// or the header, of which either may be nil, say otherwise. A nil claim is left out.
func (i *Issuer) Sign(header, claims map[string]any) string {
	i.mu.Lock()
	newest := i.signers[len(i.signers)-1]
	i.mu.Unlock()
	now := time.Now()
	head := map[string]any{"typ": "at+jwt", "kid": newest.id, "alg": "ES256"}
	if _, isRSA := newest.key.(*rsa.PrivateKey); isRSA {
		head["alg"] = "RS256"
	}
	body := map[string]any{
		"iss": i.URL, "aud": Audience, "sub": "alice", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"scope": "openid plants:read plants:write events:read",
	}
	maps.Copy(head, header)
	maps.Copy(body, claims)
	maps.DeleteFunc(body, func(_ string, value any) bool { return value == nil })
	maps.DeleteFunc(head, func(_ string, value any) bool { return value == nil })
	text := encodePart(must(json.Marshal(head))) + "." + encodePart(must(json.Marshal(body)))
	return text + "." + encodePart(newest.sign(text, head["alg"]))
}

func encodePart(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign signs a text. HS256 is signed with the public key, as an attacker would.
func (s signer) sign(text string, algorithm any) []byte {
	digest := sha256.Sum256([]byte(text))
	switch algorithm {
	case "none":
		return nil
	case "HS256":
		mac := hmac.New(sha256.New, must(json.Marshal(jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Use: "sig"})))
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	if key, ok := s.key.(*ecdsa.PrivateKey); ok {
		r, t, err := ecdsa.Sign(rand.Reader, key, digest[:])
		must(0, err)
		signature := make([]byte, 64)
		r.FillBytes(signature[:32])
		t.FillBytes(signature[32:])
		return signature
	}
	return must(s.key.Sign(rand.Reader, digest[:], crypto.SHA256))
}
