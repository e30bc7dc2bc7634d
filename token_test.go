package plantstore_test

import (
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func TestNewSecretHasTheFormat(t *testing.T) {
	format := regexp.MustCompile(`^plt_[0-9A-Za-z]{36}$`)
	seen := map[string]bool{}
	for range 1000 {
		secret := plantstore.NewSecret()
		if !format.MatchString(secret) {
			t.Fatalf("NewSecret: %q does not match %s", secret, format)
		}
		if err := plantstore.CheckSecret(secret); err != nil {
			t.Fatalf("CheckSecret refuses the new secret %q: %v", secret, err)
		}
		if seen[secret] {
			t.Fatalf("NewSecret made %q twice", secret)
		}
		seen[secret] = true
	}
}

// A byte modulo 62 would make the first eight characters a quarter likelier than
// the others: chi-squared would be near 900. Fairness exceeds 200 less than once
// in 10^15 runs.
func TestNewSecretFavoursNoCharacter(t *testing.T) {
	const secrets, random, limit = 4500, 30, 200
	var count [256]int
	for range secrets {
		body := strings.TrimPrefix(plantstore.NewSecret(), "plt_")
		for _, c := range []byte(body[:random]) {
			count[c]++
		}
	}
	expected := float64(secrets*random) / float64(len(base62))
	var chiSquared float64
	for _, c := range []byte(base62) {
		d := float64(count[c]) - expected
		chiSquared += d * d / expected
	}
	if chiSquared > limit {
		t.Errorf("chi-squared is %.0f over %d characters, want at most %d", chiSquared, secrets*random, limit)
	}
}

// The checksums were computed by another program. The last one begins with zeros.
var goodSecrets = []string{
	"plt_0000000000000000000000000000002C8GjS",
	"plt_abcdefghijklmnopqrstuvwxyz01232LolCm",
	"plt_ZYXWVUTSRQPONMLKJIHGFEDCBA98761LLyM6",
	"plt_000000000000000000000000000001010Ohw",
}

func TestCheckSecretVerifiesTheChecksum(t *testing.T) {
	for _, secret := range goodSecrets {
		if err := plantstore.CheckSecret(secret); err != nil {
			t.Errorf("CheckSecret(%q): %v", secret, err)
		}
	}
}

func TestCheckSecretRecognisesPlaceholders(t *testing.T) {
	for _, secret := range []string{"<TOKEN>", "<token>", "plt_…", "plt_...", "plt_<TOKEN>", "…"} {
		if err := plantstore.CheckSecret(secret); err == nil || !strings.Contains(err.Error(), "is a placeholder") {
			t.Errorf("CheckSecret(%q): %v, want that it is a placeholder", secret, err)
		}
	}
}

func TestCheckSecretRecognisesEveryTypingMistake(t *testing.T) {
	const prefix = len("plt_")
	for _, secret := range goodSecrets {
		for at := prefix; at < len(secret); at++ {
			for _, c := range base62 {
				wrong := secret[:at] + string(c) + secret[at+1:]
				if err := plantstore.CheckSecret(wrong); (err == nil) != (wrong == secret) {
					t.Fatalf("CheckSecret(%q): %v, where %q is right", wrong, err, secret)
				}
			}
			if at+1 == len(secret) || secret[at] == secret[at+1] {
				continue
			}
			swapped := secret[:at] + secret[at+1:at+2] + secret[at:at+1] + secret[at+2:]
			if plantstore.CheckSecret(swapped) == nil {
				t.Fatalf("CheckSecret accepts %q, where %q is right", swapped, secret)
			}
		}
	}
}

func TestCheckSecret(t *testing.T) {
	ours := goodSecrets[1]
	tests := []struct {
		name   string
		secret string
		want   string // part of the error, or nothing
	}{
		{"ours", ours, ""},
		{"another issuer's", "hunter2", ""},
		{"one character", "a", ""},
		{"every character of RFC 6750", base62 + "-._~+/==", ""},
		{"like ours, except for the prefix's case", "PLT_" + ours[4:], ""},
		{"ours inside another", "x" + ours, ""},

		{"empty", "", "characters"},
		{"only padding", "==", "characters"},
		{"padding before the end", "a=b", "characters"},
		{"space inside", "hunter 2", "characters"},
		{"space before", " " + ours, "characters"},
		{"newline after", ours + "\n", "characters"},
		{"quoted", `"` + ours + `"`, "characters"},
		{"comma", "hunter,2", "characters"},
		{"U+0000", "hunter\x002", "characters"},
		{"not ASCII", "häunter2", "characters"},
		{"not UTF-8", "hunter\xff2", "characters"},
		{"digits that are not ASCII", "plt_" + strings.Repeat("٣", 18), "characters"},

		{"prefix alone", "plt_", "has 40 characters, this one has 4"},
		{"cut off", ours[:len(ours)-1], "has 40 characters, this one has 39"},
		{"pasted twice", ours + ours, "has 40 characters, this one has 80"},
		{"padded", ours + "=", "has 40 characters, this one has 41"},
		{"without its checksum", ours[:len(ours)-6], "has 40 characters, this one has 34"},
		{"wrong checksum", ours[:len(ours)-6] + "000000", "checksum"},
		{"wrong case", strings.ToLower(ours), "checksum"},
		{"characters that are not base62", "plt_" + strings.Repeat("-", 36), "checksum"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := plantstore.CheckSecret(tt.secret)
			if tt.want == "" {
				if err != nil {
					t.Errorf("CheckSecret(%q): %v", tt.secret, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("CheckSecret(%q): %v, want an error about %q", tt.secret, err, tt.want)
			}
			if revealing := strings.TrimPrefix(tt.secret, "plt_"); revealing != "" && strings.Contains(err.Error(), revealing) {
				t.Errorf("CheckSecret(%q): the error %q contains the secret", tt.secret, err)
			}
		})
	}
}

func TestTokenHashIsSHA256(t *testing.T) {
	hash := plantstore.HashSecret("abc")
	const want = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	if got := hex.EncodeToString(hash[:]); got != want {
		t.Errorf("HashSecret: got %s, want %s", got, want)
	}
	if got := hash.ID(); got != want[:12] {
		t.Errorf("ID: got %s, want %s", got, want[:12])
	}
}

func TestParseScopes(t *testing.T) {
	const write, read, ops = plantstore.ScopeWrite, plantstore.ScopeRead, plantstore.ScopeOps
	tests := []struct {
		text    string
		want    []plantstore.Scope
		problem string
	}{
		{"plants:write", []plantstore.Scope{write}, ""},
		{"plants:read,plants:write", []plantstore.Scope{read, write}, ""},
		{"plants:read plants:write ops:read", []plantstore.Scope{read, write, ops}, ""},
		{"events:read", []plantstore.Scope{plantstore.ScopeEvents}, ""},
		{" ,plants:read, ops:read,", []plantstore.Scope{read, ops}, ""},

		{"", nil, "no scope given; allowed: plants:write,plants:read,events:read,tokens:read,tokens:write,webhooks:read,webhooks:write,ops:read"},
		{" , ", nil, "no scope"},
		{"plants:delete", nil, `unknown scope "plants:delete"; allowed: plants:write,plants:read,events:read,tokens:read,tokens:write,webhooks:read,webhooks:write,ops:read`},
		{"plants:write,plants", nil, `unknown scope "plants"`},
		{"Plants:Write", nil, `unknown scope "Plants:Write"`},
		{"plants:write\tplants:read", nil, "unknown scope"},
		{"plants:write;plants:read", nil, "unknown scope"},
		{"plants:read,plants:write,plants:read", nil, `"plants:read" is given twice`},
	}
	for _, tt := range tests {
		got, err := plantstore.ParseScopes(tt.text)
		if tt.problem != "" {
			if err == nil || !strings.Contains(err.Error(), tt.problem) || got != nil {
				t.Errorf("ParseScopes(%q): %v, %v, want the error %q", tt.text, got, err, tt.problem)
			}
			continue
		}
		if err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("ParseScopes(%q): %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

func TestFormatScopesIsTheInverseOfParseScopes(t *testing.T) {
	all := plantstore.AllScopes()
	for set := 1; set < 1<<len(all); set++ {
		var scopes []plantstore.Scope
		for i, s := range all {
			if set&(1<<i) != 0 {
				scopes = append(scopes, s)
			}
		}
		text := plantstore.FormatScopes(scopes)
		if got, err := plantstore.ParseScopes(text); err != nil || !slices.Equal(got, scopes) {
			t.Errorf("ParseScopes(%q): %v, %v, want %v", text, got, err, scopes)
		}
	}
}

func TestAllScopesReturnsACopy(t *testing.T) {
	plantstore.AllScopes()[0] = "spoiled"
	if slices.Contains(plantstore.AllScopes(), "spoiled") {
		t.Error("a change to the result of AllScopes is visible to the next caller")
	}
}

func TestTokenAllowsItsScopesOnly(t *testing.T) {
	token := plantstore.Token{Scopes: []plantstore.Scope{plantstore.ScopeRead}}
	for _, s := range append(plantstore.AllScopes(), "", "plants") {
		if got, want := token.Allows(s), s == plantstore.ScopeRead; got != want {
			t.Errorf("Allows(%q): got %t, want %t", s, got, want)
		}
	}
	if new(plantstore.Token).Allows("") {
		t.Error("a token without scopes allows the empty one")
	}
}

func TestTokenExpiresAtItsTime(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := []struct {
		expires, now time.Time
		want         bool
	}{
		{at, at.Add(-time.Nanosecond), false},
		{at, at, true},
		{at, at.Add(time.Hour), true},
		{at, at.In(time.FixedZone("east", 3600)), true},
		{time.Time{}, at.AddDate(10_000, 0, 0), false},
	}
	for _, tt := range tests {
		token := plantstore.Token{Expires: tt.expires}
		if got := token.ExpiredAt(tt.now); got != tt.want {
			t.Errorf("a token that expires at %s, checked at %s: got %t, want %t", tt.expires, tt.now, got, tt.want)
		}
	}
}

// Every pair of own and asked scopes: a token gives what it has, and nothing else.
func TestGrant(t *testing.T) {
	all := plantstore.AllScopes()
	subset := func(set int) (scopes []plantstore.Scope) {
		for i, scope := range all {
			if set>>i&1 == 1 {
				scopes = append(scopes, scope)
			}
		}
		return scopes
	}
	now := time.Unix(1_700_000_000, 0).UTC()
	for own := range 1 << len(all) {
		for asked := range 1 << len(all) {
			n := plantstore.NewToken{Name: "x", Scopes: subset(asked), DefaultExpiry: true}
			got, err := n.Grant(&plantstore.Token{Scopes: subset(own)}, plantstore.Rate{}, now)
			if allowed := asked&^own == 0; allowed != (err == nil) || !allowed && !errors.Is(err, plantstore.ErrPrivilege) || allowed && !slices.Equal(got.Scopes, n.Scopes) {
				t.Fatalf("%v asked for %v: got %v, %v", subset(own), n.Scopes, got.Scopes, err)
			}
		}
	}
}
