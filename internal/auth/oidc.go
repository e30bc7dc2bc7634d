package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

const (
	// maxJWT is the largest token of an identity provider, in bytes.
	maxJWT = 16 << 10
	// clockSkew is how far the provider's clock may differ from ours.
	clockSkew = time.Minute
	// maxSubject is the longest subject, in bytes, as in OpenID Connect.
	maxSubject = 255
	// maxVerified is how many tokens are remembered as verified, and maxSubjects how
	// many callers have a limiter of their own.
	maxVerified, maxSubjects = 4096, 4096
	// sweepInterval is how often limiters are forgotten.
	sweepInterval = time.Second
)

// OIDC determines which tokens of an identity provider are accepted.
type OIDC struct {
	Issuer, Audience string
	// ScopePrefix precedes our scopes in the claims scope and scp.
	ScopePrefix string
	Grants      []Grant
	// Refresh is the shortest time between two requests for the provider's keys. Default: 5
	// s.
	Refresh time.Duration
	// Transport sends the requests to the provider. Default: http.DefaultTransport.
	Transport http.RoundTripper
}

// Grant gives scopes to callers whose claim is, or contains, the value.
type Grant struct {
	Claim, Value string
	Scopes       []plantstore.Scope
}

// ParseGrant parses claim=value:scope,scope. The value ends at the first colon. A claim
// inside another is written with a dot, such as realm_access.roles.
func ParseGrant(text string) (Grant, error) {
	claim, rest, _ := strings.Cut(text, "=")
	value, list, ok := strings.Cut(rest, ":")
	if claim == "" || value == "" || !ok {
		return Grant{}, fmt.Errorf("%q is not a valid grant: use claim=value:scope,scope", text)
	}
	scopes, err := plantstore.ParseScopes(list)
	return Grant{claim, value, scopes}, err
}

// provider checks the tokens of an identity provider: JWTs, as in RFC 9068.
type provider struct {
	opts     OIDC
	rate     plantstore.Rate
	keys     *keySet
	verifier *oidc.IDTokenVerifier

	mu       sync.RWMutex // guards what follows
	verified map[plantstore.TokenHash]*verified
	limiters map[plantstore.TokenHash]*limiter
	swept    time.Time // when limiters were last forgotten
}

// verified is a token whose signature and claims are valid.
type verified struct {
	caller Caller
	keys   *keys // the ones it was verified with
}

func newProvider(opts OIDC, rate plantstore.Rate, log *slog.Logger) *provider {
	if opts.Issuer == "" {
		return nil
	}
	p := &provider{
		opts: opts, rate: rate, keys: newKeySet(opts, log),
		verified: map[plantstore.TokenHash]*verified{}, limiters: map[plantstore.TokenHash]*limiter{},
	}
	p.verifier = oidc.NewVerifier(opts.Issuer, p.keys, &oidc.Config{
		ClientID: opts.Audience, SupportedSigningAlgs: algorithmNames(),
		SkipExpiryCheck: true, // go-oidc allows no clock skew for exp
	})
	return p
}

// isJWT reports whether a secret looks like a JWT and not like one of our tokens.
func isJWT(secret string) bool {
	return strings.HasPrefix(secret, "eyJ") && strings.Count(secret, ".") == 2
}

// check returns the caller whose token this is. It fails with ErrBadToken,
// ErrTokenExpired, or ErrUnavailable if no key of the provider is known yet.
func (p *provider) check(ctx context.Context, token string, hash plantstore.TokenHash, now time.Time) (*Caller, error) {
	p.mu.RLock()
	v := p.verified[hash]
	p.mu.RUnlock()
	if v == nil || v.keys != p.keys.current.Load() {
		var err error
		if v, err = p.verify(ctx, token); err != nil {
			return nil, err
		}
		p.remember(hash, v)
	}
	if !now.Before(v.caller.Expires.Add(clockSkew)) {
		return nil, plantstore.Errorf(plantstore.ErrTokenExpired, "the token expired at %s: get a new one from the identity provider",
			v.caller.Expires.UTC().Format(time.RFC3339))
	}
	return &v.caller, nil
}

// remember keeps a verified token. When there are too many, all are forgotten.
func (p *provider) remember(hash plantstore.TokenHash, v *verified) {
	p.mu.Lock()
	defer p.mu.Unlock()
	v.caller.limiter = p.limiterOf(v.caller.Hash)
	if len(p.verified) >= maxVerified {
		clear(p.verified)
	}
	p.verified[hash] = v
}

// limiterOf returns the limiter of a subject. When there are too many, full ones are
// forgotten, since new ones would be the same; if that does not help, new subjects share
// one. The caller holds mu.
func (p *provider) limiterOf(subject plantstore.TokenHash) *limiter {
	if p.rate.IsZero() {
		return nil
	}
	if l := p.limiters[subject]; l != nil {
		return l
	}
	if now := time.Now(); len(p.limiters) >= maxSubjects && now.Sub(p.swept) >= sweepInterval {
		p.swept = now
		maps.DeleteFunc(p.limiters, func(_ plantstore.TokenHash, l *limiter) bool {
			left, _ := l.requests.state(now)
			return left == p.rate.Burst
		})
	}
	if len(p.limiters) >= maxSubjects {
		subject = plantstore.TokenHash{}
		if l := p.limiters[subject]; l != nil {
			return l
		}
	}
	l := newLimiter(p.rate)
	p.limiters[subject] = l
	return l
}

// claims are the claims of a token that have a meaning here.
type claims struct {
	Issuer    string   `json:"iss"`
	Subject   string   `json:"sub"`
	Audience  textList `json:"aud"`
	Expires   *float64 `json:"exp"`
	NotBefore *float64 `json:"nbf"`
	IssuedAt  float64  `json:"iat"`
	Scope     textList `json:"scope"`
	Scp       textList `json:"scp"`
}

// textList is a string, or an array of strings.
type textList []string

// UnmarshalJSONFrom implements [json.UnmarshalerFrom].
func (l *textList) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() == '[' {
		return json.UnmarshalDecode(in, (*[]string)(l))
	}
	*l = make(textList, 1)
	return json.UnmarshalDecode(in, &(*l)[0])
}

// verify checks everything about a token except its expiry. Cheap checks come before the
// signature, and count only once that is known to be valid.
func (p *provider) verify(ctx context.Context, token string) (*verified, error) {
	if len(token) > maxJWT {
		return nil, badJWT("it is larger than %d bytes", maxJWT)
	}
	header := struct {
		Type      string `json:"typ"`
		Algorithm string `json:"alg"`
	}{Type: "JWT"} // RFC 7519 makes it optional, and some providers leave it out
	var c claims
	var all map[string]any
	parts := strings.Split(token, ".")
	if err := errors.Join(decodePart(parts[0], &header), decodePart(parts[1], &c), decodePart(parts[1], &all)); err != nil {
		return nil, badJWT("it is malformed")
	}
	now := time.Now()
	switch {
	case !slices.Contains([]string{"at+jwt", "application/at+jwt", "jwt"}, strings.ToLower(header.Type)):
		return nil, badJWT("its typ must be at+jwt or JWT, or absent")
	case !slices.Contains(algorithmNames(), header.Algorithm):
		return nil, badJWT("its algorithm is not one of %s", strings.Join(algorithmNames(), ", "))
	case c.Issuer != p.opts.Issuer:
		return nil, badJWT("it is from another issuer than %s", p.opts.Issuer)
	case !slices.Contains(c.Audience, p.opts.Audience):
		return nil, badJWT("it is not for the audience %s", p.opts.Audience)
	case c.Expires == nil || !isTime(*c.Expires) || !isTime(c.IssuedAt) || c.NotBefore != nil && !isTime(*c.NotBefore):
		return nil, badJWT("it has no valid exp, iat or nbf")
	case c.NotBefore != nil && now.Add(clockSkew).Before(unix(*c.NotBefore)):
		return nil, badJWT("it is not valid before %s", unix(*c.NotBefore).Format(time.RFC3339))
	case !isSubject(c.Subject):
		return nil, badJWT("its subject must have 1 to %d bytes of printable text", maxSubject)
	}
	keys := p.keys.current.Load()
	if _, err := p.verifier.Verify(ctx, token); err != nil {
		if p.keys.current.Load() == nil {
			return nil, errKeysUnknown
		}
		return nil, badJWT("its signature is not valid, or its key is not known yet")
	}
	public := c.Issuer + " " + c.Subject
	return &verified{keys: keys, caller: Caller{
		Token: plantstore.Token{
			Hash: plantstore.HashSecret(public), Name: c.Subject, Scopes: p.scopesOf(&c, all),
			Created: unix(c.IssuedAt), Expires: unix(*c.Expires),
		},
		Public: public, Issuer: c.Issuer, Subject: c.Subject,
	}}, nil
}

// errKeysUnknown is for a token that may be valid: no key of the provider is known yet.
var errKeysUnknown = plantstore.Errorf(plantstore.ErrUnavailable, "the keys of the identity provider are not known yet: try again later")

func badJWT(format string, args ...any) error {
	return plantstore.Errorf(plantstore.ErrBadToken, "the identity provider's token is refused: "+format, args...)
}

func decodePart(part string, value any) error {
	text, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, value)
}

// isTime reports whether a number of seconds is a time that can be written in RFC 3339.
func isTime(seconds float64) bool { return seconds >= 0 && seconds < 253402300800 }

func unix(seconds float64) time.Time { return time.Unix(int64(seconds), 0).UTC() }

// isSubject reports whether a subject is fit for events and logs.
func isSubject(text string) bool {
	return text != "" && len(text) <= maxSubject && utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// scopesOf returns those of our scopes that the claims grant to the caller.
func (p *provider) scopesOf(c *claims, all map[string]any) []plantstore.Scope {
	granted := map[plantstore.Scope]bool{}
	for _, list := range slices.Concat(c.Scope, c.Scp) {
		for word := range strings.FieldsSeq(list) {
			if name, ok := strings.CutPrefix(word, p.opts.ScopePrefix); ok {
				granted[plantstore.Scope(name)] = true
			}
		}
	}
	for _, g := range p.opts.Grants {
		if hasValue(claimAt(all, g.Claim), g.Value) {
			for _, s := range g.Scopes {
				granted[s] = true
			}
		}
	}
	return slices.DeleteFunc(plantstore.AllScopes(), func(s plantstore.Scope) bool { return !granted[s] })
}

// claimAt returns the claim with this name, or the one at this path.
func claimAt(object map[string]any, name string) any {
	if value, ok := object[name]; ok {
		return value
	}
	outer, inner, ok := strings.Cut(name, ".")
	if object, isObject := object[outer].(map[string]any); ok && isObject {
		return claimAt(object, inner)
	}
	return nil
}

// hasValue reports whether a claim is the value, or an array that contains it.
func hasValue(claim any, value string) bool {
	if list, ok := claim.([]any); ok {
		return slices.Contains(list, any(value))
	}
	return claim == any(value)
}
