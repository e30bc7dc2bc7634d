package plantstore

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"
)

// Scope is a permission of a token.
type Scope string

// The scopes.
const (
	ScopeWrite  Scope = "plants:write" // create, replace, delete, import
	ScopeRead   Scope = "plants:read"  // get, list, export
	ScopeEvents Scope = "events:read"  // follow the log of changes

	ScopeTokensRead  Scope = "tokens:read"  // list tokens
	ScopeTokensWrite Scope = "tokens:write" // create and revoke tokens

	ScopeWebhooksRead  Scope = "webhooks:read"  // list webhooks and their deliveries
	ScopeWebhooksWrite Scope = "webhooks:write" // create, change and delete webhooks

	ScopeOps Scope = "ops:read" // metrics, profiles and the figures of the server
)

// AllScopes lists every scope.
func AllScopes() []Scope {
	return []Scope{ScopeWrite, ScopeRead, ScopeEvents, ScopeTokensRead, ScopeTokensWrite, ScopeWebhooksRead, ScopeWebhooksWrite, ScopeOps}
}

// ParseScopes parses scopes separated by commas or spaces. Unknown and duplicate
// scopes are errors, and so is an empty list.
func ParseScopes(text string) ([]Scope, error) {
	var scopes []Scope
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		s := Scope(word)
		if !slices.Contains(AllScopes(), s) {
			return nil, fmt.Errorf("unknown scope %q; allowed: %s", Shorten(word), FormatScopes(AllScopes()))
		}
		if slices.Contains(scopes, s) {
			return nil, fmt.Errorf("scope %q is given twice", word)
		}
		scopes = append(scopes, s)
	}
	if scopes == nil {
		return nil, fmt.Errorf("no scope given; allowed: %s", FormatScopes(AllScopes()))
	}
	return scopes, nil
}

// FormatScopes is the inverse of [ParseScopes].
func FormatScopes(scopes []Scope) string {
	words := make([]string, len(scopes))
	for i, s := range scopes {
		words[i] = string(s)
	}
	return strings.Join(words, ",")
}

// TokenHash is the SHA-256 of a token's secret. The secret itself is never stored.
type TokenHash [sha256.Size]byte

// ID returns a short id for display: the start of the token's hash, which reveals nothing
// about the secret.
func (h TokenHash) ID() string { return hex.EncodeToString(h[:idSize]) }

// idSize is the number of bytes of a hash in its id.
const idSize = 6

// HashesWithID returns the least and the greatest hash with this id. It reports false if none has
// it.
func HashesWithID(id string) (least, greatest TokenHash, ok bool) {
	for i := range greatest {
		greatest[i] = 0xff
	}
	start, err := hex.DecodeString(id)
	copy(least[:], start)
	copy(greatest[:], start)
	return least, greatest, err == nil && least.ID() == id
}

// Actor is who changes tokens or webhooks. The zero Actor is a server that acts by itself.
type Actor struct {
	// Name is what the log of changes records: the public id of a token, the issuer and
	// subject of an identity provider's token, or [Operator].
	Name string
	// Token is the store's token that the actor uses, or nil.
	Token *TokenHash
	// Expires is when the actor's right ends if it does not depend on a token of the store;
	// the zero time means never.
	Expires time.Time
}

// Check returns nil if the actor may still make changes, and otherwise ErrBadToken or
// ErrTokenExpired. A store calls it in the transaction that makes the change. find returns
// a token as that transaction sees it, or ErrNoSuchToken.
func (a *Actor) Check(find func(TokenHash) (Token, error)) error {
	if a.Token == nil {
		if !a.Expires.IsZero() && !time.Now().Before(a.Expires) {
			return Errorf(ErrTokenExpired, "the token has expired: get a new one from the identity provider")
		}
		return nil
	}
	token, err := find(*a.Token)
	if errors.Is(err, ErrNoSuchToken) {
		return Errorf(ErrBadToken, "the token is unknown: ask for a new one")
	}
	if err != nil {
		return err
	}
	return token.Check(time.Now())
}

// Token is the store's record of a bearer token. Times have a precision of seconds; the
// zero time means never.
type Token struct {
	Hash   TokenHash
	Name   string
	Scopes []Scope
	// Rate is the rate limit of the token. The zero Rate means the server's default.
	Rate     Rate
	Created  time.Time
	Expires  time.Time
	Revoked  time.Time
	LastUsed time.Time
}

// TokenInfo is a token as the interface shows it: one of the store's, with an ID and a
// Name, or an identity provider's, with an Issuer and a Subject. The zero time means never.
type TokenInfo struct {
	ID, Name        string
	Issuer, Subject string
	Scopes          []Scope
	Rate            Rate // zero: the server's default
	Created         time.Time
	Expires         time.Time
	Revoked         time.Time
	LastUsed        time.Time
}

// State returns whether the token is "active", "expired" or "revoked" at this time.
func (t TokenInfo) State(at time.Time) string {
	switch {
	case !t.Revoked.IsZero():
		return "revoked"
	case !t.Expires.IsZero() && !at.Before(t.Expires):
		return "expired"
	}
	return "active"
}

// Info returns the token as the interface shows it.
func (t *Token) Info() TokenInfo {
	return TokenInfo{
		ID: t.Hash.ID(), Name: t.Name, Scopes: t.Scopes, Rate: t.Rate,
		Created: t.Created, Expires: t.Expires, Revoked: t.Revoked, LastUsed: t.LastUsed,
	}
}

// Logged returns the token as the log of changes records it: with times in whole seconds of
// UTC, and without its last use.
func (t *Token) Logged() TokenInfo {
	info := t.Info()
	info.LastUsed = time.Time{}
	for _, at := range []*time.Time{&info.Created, &info.Expires, &info.Revoked} {
		*at = at.UTC().Truncate(time.Second)
	}
	return info
}

// NewToken is a caller's request for a token over the interface.
type NewToken struct {
	Name   string
	Scopes []Scope
	// Expires is when the token expires; the zero time means never. If DefaultExpiry is
	// set, the server chooses.
	Expires       time.Time
	DefaultExpiry bool
	// Rate is the rate limit of the token. The zero Rate means the rate of its creator's
	// token or, if that has none, the server's default.
	Rate Rate
}

// DefaultLifetime is how long a token is valid unless its creator says otherwise.
const DefaultLifetime = 90 * 24 * time.Hour

// MaxTokenName is the longest name of a token that is created over the interface, in
// bytes.
const MaxTokenName = 200

// Grant returns the token that a caller with the token own asks for. limit is the caller's
// rate limit, which is the server's default if their token has no rate; the zero Rate is no
// limit. Nobody can grant a scope, a lifetime or a rate beyond their own: that fails with
// ErrPrivilege.
func (n *NewToken) Grant(own *Token, limit Rate, now time.Time) (Token, error) {
	for _, s := range n.Scopes {
		if !own.Allows(s) {
			return Token{}, Errorf(ErrPrivilege, "you cannot grant the scope %s: your own token has only %s", s, FormatScopes(own.Scopes))
		}
	}
	if !n.Rate.IsZero() && n.Rate.Exceeds(limit) {
		return Token{}, Errorf(ErrPrivilege, "you cannot grant the rate %s: your own limit is %s", n.Rate, limit)
	}
	ownExpires := own.Expires
	expires := n.Expires
	if n.DefaultExpiry {
		expires = now.Add(DefaultLifetime)
		if !ownExpires.IsZero() && ownExpires.Before(expires) {
			expires = ownExpires
		}
	}
	switch {
	case !expires.IsZero() && !expires.After(now):
		return Token{}, Errorf(ErrParameter, `"expires" must be in the future, got %s`, expires.Format(time.RFC3339))
	case !ownExpires.IsZero() && (expires.IsZero() || expires.After(ownExpires)):
		return Token{}, Errorf(ErrPrivilege, "the token cannot outlive your own, which expires at %s", ownExpires.UTC().Format(time.RFC3339))
	}
	return Token{Name: n.Name, Scopes: n.Scopes, Rate: cmp.Or(n.Rate, own.Rate), Created: now, Expires: expires}, nil
}

// MaxTokens is the number of active tokens at which only [Operator] can create another.
const MaxTokens = 10_000

// Of the tokens that have ended, by revocation or else by expiry, a store keeps those that
// ended last: at most MaxEndedTokens, and none that ended longer than MaxEndedAge ago.
const (
	MaxEndedTokens = 10_000
	MaxEndedAge    = 30 * 24 * time.Hour
)

// ActiveAt reports whether the token is neither revoked nor expired at this time.
func (t *Token) ActiveAt(now time.Time) bool { return t.Revoked.IsZero() && !t.ExpiredAt(now) }

// Check returns nil if the token is active at this time, and otherwise the error for its
// user: ErrBadToken or ErrTokenExpired.
func (t *Token) Check(now time.Time) error {
	switch {
	case !t.Revoked.IsZero():
		return Errorf(ErrBadToken, "the token has been revoked: ask for a new one")
	case t.ExpiredAt(now):
		return Errorf(ErrTokenExpired, "the token expired at %s: ask for a new one", t.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// CreatesTokens reports whether the token may create others at this time.
func (t *Token) CreatesTokens(now time.Time) bool {
	return t.ActiveAt(now) && t.Allows(ScopeTokensWrite)
}

// Allows reports whether the token has the scope.
func (t *Token) Allows(s Scope) bool { return slices.Contains(t.Scopes, s) }

// ExpiredAt reports whether the token has expired at this time.
func (t *Token) ExpiredAt(now time.Time) bool {
	return !t.Expires.IsZero() && !now.Before(t.Expires)
}

const (
	secretPrefix = "plt_"
	secretRandom = 30 // base62 characters, 178 bits
	secretSum    = 6  // base62 characters of CRC-32
	base62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// NewSecret returns the secret of a new token: plt_, 30 random base62 characters,
// and 6 characters of CRC-32. The checksum lets secret scanners recognise a leaked
// token, and detects typing mistakes without a lookup.
func NewSecret() string {
	random := make([]byte, 0, secretRandom)
	var pool [64]byte
	for len(random) < secretRandom {
		rand.Read(pool[:])
		for _, b := range pool {
			// 248 is the largest multiple of 62 in a byte. Using the values above
			// it would make some characters more likely than others.
			if b < 248 && len(random) < secretRandom {
				random = append(random, base62[b%62])
			}
		}
	}
	return secretPrefix + string(random) + checksum(string(random))
}

// HashSecret returns the hash under which the token with this secret is stored.
func HashSecret(secret string) TokenHash { return sha256.Sum256([]byte(secret)) }

// CheckSecret returns an error if the secret cannot be a token: if it is a placeholder, such as
// <TOKEN> or plt_…, contains characters that RFC 6750 does not allow, or begins with plt_ and
// has the wrong length or checksum. The error never contains the secret.
func CheckSecret(secret string) error {
	err := checkSecret(secret)
	if err != nil && (strings.ContainsAny(secret, "<>…") || strings.HasPrefix(secret, secretPrefix) && strings.Contains(secret, "...")) {
		return errors.New("the token is a placeholder: put a real one in its place")
	}
	return err
}

func checkSecret(secret string) error {
	if !isBearer(secret) {
		return errors.New("the token has characters that are not allowed in a bearer token")
	}
	body, ours := strings.CutPrefix(secret, secretPrefix)
	if !ours {
		return nil
	}
	if len(body) != secretRandom+secretSum {
		return fmt.Errorf("a token that begins with %s has %d characters, this one has %d",
			secretPrefix, len(secretPrefix)+secretRandom+secretSum, len(secret))
	}
	if checksum(body[:secretRandom]) != body[secretRandom:] {
		return errors.New("the token's checksum is wrong: is it complete?")
	}
	return nil
}

// isBearer reports whether s is RFC 6750's b64token.
func isBearer(s string) bool {
	s = strings.TrimRight(s, "=")
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9', 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		case c == '-', c == '.', c == '_', c == '~', c == '+', c == '/':
		default:
			return false
		}
	}
	return s != ""
}

func checksum(random string) string {
	n := crc32.ChecksumIEEE([]byte(random))
	var sum [secretSum]byte
	for i := secretSum - 1; i >= 0; i-- {
		sum[i] = base62[n%62]
		n /= 62
	}
	return string(sum[:])
}
