package plantstore_test

import (
	"fmt"
	"hash/crc32"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"

	"plantstore"
)

var bearerToken = regexp.MustCompile(`\A[0-9A-Za-z._~+/-]+=*\z`)

// sumOf is the checksum of a secret's random part, computed in a different way than in
// the code: by math/big, whose digits are in another order.
func sumOf(random string) string {
	text := big.NewInt(int64(crc32.ChecksumIEEE([]byte(random)))).Text(62)
	swapped := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		}
		return r
	}, text)
	return strings.Repeat("0", 6-len(swapped)) + swapped
}

// placeholder matches what documentation has in place of a token.
var placeholder = regexp.MustCompile(`(?s)[<>…]|^plt_.*\.\.\.`)

// wantRefusal is the error that CheckSecret must return for a secret, or "". It
// depends on no character of the secret that would help to guess it.
func wantRefusal(secret string) (want string) {
	switch {
	case !bearerToken.MatchString(secret):
		want = "the token has characters that are not allowed in a bearer token"
	case !strings.HasPrefix(secret, "plt_"):
		return ""
	case len(secret) != 40:
		want = fmt.Sprintf("a token that begins with plt_ has 40 characters, this one has %d", len(secret))
	case sumOf(secret[4:34]) != secret[34:]:
		want = "the token's checksum is wrong: is it complete?"
	}
	if want != "" && placeholder.MatchString(secret) {
		want = "the token is a placeholder: put a real one in its place"
	}
	return want
}

func checkSecret(t *testing.T, secret string) {
	t.Helper()
	got := ""
	if err := plantstore.CheckSecret(secret); err != nil {
		got = err.Error()
	}
	if want := wantRefusal(secret); got != want {
		t.Errorf("CheckSecret(%q): got %q, want %q", secret, got, want)
	}
}

// FuzzCheckSecret checks CheckSecret against its description for any text, and then
// makes a token out of the text: that is accepted, and with one character changed,
// two neighbours swapped, or one character more or less it is not.
func FuzzCheckSecret(f *testing.F) {
	for _, secret := range goodSecrets {
		f.Add(secret, byte('x'))
		f.Add(secret[:39], byte('0'))
		f.Add(secret+"=", byte('='))
		f.Add(strings.ToUpper(secret), byte('\n'))
	}
	for _, text := range []string{
		"", "=", "==", "a", "a=b", "hunter2", "plt_", "PLT_", "plt", "plt_=", "plt_" + strings.Repeat("=", 36), "plt_" + strings.Repeat("-", 36),
		"plt_" + strings.Repeat("-", 30) + sumOf(strings.Repeat("-", 30)), "\x00", "\xff", "häunter", " plt_", "plt_\n", "a b", "~+/-._",
		"<TOKEN>", "plt_…", "plt_...", "...",
	} {
		f.Add(text, byte(0xff))
	}
	f.Fuzz(func(t *testing.T, text string, c byte) {
		checkSecret(t, text)
		checkSecret(t, "plt_"+text)

		random := make([]byte, 30)
		for i := range random {
			random[i] = base62[0]
			if i < len(text) {
				random[i] = base62[int(text[i])%len(base62)]
			}
		}
		secret := "plt_" + string(random) + sumOf(string(random))
		if err := plantstore.CheckSecret(secret); err != nil {
			t.Fatalf("CheckSecret(%q): %v", secret, err)
		}
		for i := 4; i < len(secret); i++ {
			for what, wrong := range map[string]string{
				"another character": secret[:i] + string([]byte{c}) + secret[i+1:],
				"one more":          secret[:i] + string([]byte{c}) + secret[i:],
				"one less":          secret[:i] + secret[i+1:],
				"neighbours":        secret[:i-1] + secret[i:i+1] + secret[i-1:i] + secret[i+1:],
			} {
				// Without its prefix it is another issuer's token, which cannot be
				// checked.
				if wrong == secret || !strings.HasPrefix(wrong, "plt_") {
					continue
				}
				if plantstore.CheckSecret(wrong) == nil {
					t.Errorf("CheckSecret accepts %q (%s), where %q is right", wrong, what, secret)
				}
			}
		}
	})
}

// FuzzParseScopes checks ParseScopes against a simple implementation of its description.
func FuzzParseScopes(f *testing.F) {
	for _, text := range []string{
		"", ",", " ", "plants:write", "plants:read,plants:write", "ops:read plants:read", "plants:read,,plants:read", "plants:read,ops:read plants:read", "plants:read\tops:read",
		"Plants:Read", "plants:", ":read", "plants:read\x00", "plants:read;ops:read", "\xff", "plants:read,plants:write,ops:read", "events:read,plants:read", "webhooks:read,webhooks:write",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want []plantstore.Scope
		good := true
		for _, word := range strings.Split(strings.ReplaceAll(text, " ", ","), ",") {
			scope := plantstore.Scope(word)
			switch {
			case word == "":
			case word != "plants:write" && word != "plants:read" && word != "events:read" && word != "webhooks:read" && word != "webhooks:write" && word != "ops:read", slices.Contains(want, scope):
				good = false
			default:
				want = append(want, scope)
			}
		}
		good = good && want != nil
		got, err := plantstore.ParseScopes(text)
		if (err == nil) != good {
			t.Fatalf("ParseScopes(%q): %v, %v, want it accepted: %t", text, got, err, good)
		}
		if !good {
			return
		}
		again, err := plantstore.ParseScopes(plantstore.FormatScopes(got))
		if !slices.Equal(got, want) || !slices.Equal(again, want) || err != nil {
			t.Errorf("ParseScopes(%q): %v, and formatted and parsed again %v, %v; want %v", text, got, again, err, want)
		}
	})
}
