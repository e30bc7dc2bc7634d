package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plantstore"
	"plantstore/internal/auth"
	"plantstore/internal/servertest"
	"plantstore/internal/testenv"
)

// startIssuer starts an identity provider on loopback.
func startIssuer(t *testing.T) *servertest.Issuer {
	t.Helper()
	var issuer *servertest.Issuer
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { issuer.ServeHTTP(w, r) }))
	t.Cleanup(web.Close)
	issuer = servertest.NewIssuer(web.URL)
	return issuer
}

// oidcOptions are those of a server that accepts the issuer's tokens.
func oidcOptions(t *testing.T, i *servertest.Issuer) servertest.Options {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return servertest.Options{OIDC: auth.OIDC{
		Issuer: i.URL, Audience: servertest.Audience, Transport: transport, Refresh: 50 * time.Millisecond,
	}}
}

// eventually repeats a call until it gets the status.
func eventually(t *testing.T, want int, call func() reply) (got reply) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if got = call(); got.status != want {
			return fmt.Errorf("got %d, want %d: %s", got.status, want, got.body)
		}
		return nil
	})
	return got
}

type claims = map[string]any

func TestTokensOfAnIdentityProvider(t *testing.T) {
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	onBothPaths(t, func(t *testing.T, path string) {
		issuer, other := startIssuer(t), startIssuer(t)
		s := start(t, oidcOptions(t, issuer))
		s.Fill(t, fern(1))
		good := issuer.Sign(nil, nil)
		// From then on the keys are known.
		eventually(t, 200, func() reply { return s.call(t, "GET", path, "", "Authorization: Bearer "+good) }).wantOK(t)
		flip := func(token string, at int) string {
			b := []byte(token)
			b[at] ^= 1 // in base64url, another character of the alphabet or an invalid one
			return string(b)
		}
		forged := servertest.NewIssuer(issuer.URL)
		for _, tt := range []struct {
			name, token string
			code        plantstore.Code // 0 for 200
		}{
			{"good", good, 0},
			{"typ JWT", issuer.Sign(claims{"typ": "JWT"}, nil), 0},
			{"typ application/at+jwt", issuer.Sign(claims{"typ": "application/at+jwt"}, nil), 0},
			{"typ in other letters", issuer.Sign(claims{"typ": "Application/AT+JWT"}, nil), 0},
			{"without a typ", issuer.Sign(claims{"typ": nil}, nil), 0}, // as Okta's
			{"several audiences", issuer.Sign(nil, claims{"aud": []string{"x", servertest.Audience}}), 0},
			{"without a kid", issuer.Sign(claims{"kid": nil}, nil), 0},
			{"expired within the skew", issuer.Sign(nil, claims{"exp": at(-10 * time.Second)}), 0},

			{"without our scopes", issuer.Sign(nil, claims{"scope": "openid profile"}), plantstore.ErrScope},
			{"without any scope", issuer.Sign(nil, claims{"scope": nil}), plantstore.ErrScope},
			{"with another scope", issuer.Sign(nil, claims{"scope": "plants:write"}), plantstore.ErrScope},
			{"expired", issuer.Sign(nil, claims{"exp": at(-2 * time.Minute)}), plantstore.ErrTokenExpired},
			{"not yet valid", issuer.Sign(nil, claims{"nbf": at(time.Hour)}), plantstore.ErrBadToken},
			{"without exp", issuer.Sign(nil, claims{"exp": nil}), plantstore.ErrBadToken},
			{"exp as text", issuer.Sign(nil, claims{"exp": "tomorrow"}), plantstore.ErrBadToken},
			{"exp too large", issuer.Sign(nil, claims{"exp": 1e300}), plantstore.ErrBadToken},
			{"wrong audience", issuer.Sign(nil, claims{"aud": "https://other.example.com"}), plantstore.ErrBadToken},
			{"without an audience", issuer.Sign(nil, claims{"aud": nil}), plantstore.ErrBadToken},
			{"wrong issuer", issuer.Sign(nil, claims{"iss": "https://other.example.com"}), plantstore.ErrBadToken},
			{"another issuer's", other.Sign(nil, nil), plantstore.ErrBadToken},
			{"signed by another issuer", forged.Sign(nil, nil), plantstore.ErrBadToken},
			{"expired, and signed by another issuer", forged.Sign(nil, claims{"exp": at(-time.Hour)}), plantstore.ErrBadToken},
			{"alg none", issuer.Sign(claims{"alg": "none"}, nil), plantstore.ErrBadToken},
			{"alg None", issuer.Sign(claims{"alg": "None"}, nil), plantstore.ErrBadToken},
			{"HS256 with the public key", issuer.Sign(claims{"alg": "HS256"}, nil), plantstore.ErrBadToken},
			{"RS256 with the key of ES256", issuer.Sign(claims{"alg": "RS256"}, nil), plantstore.ErrBadToken},
			{"unknown kid", issuer.Sign(claims{"kid": "unknown"}, nil), plantstore.ErrBadToken},
			{"typ of an ID token", issuer.Sign(claims{"typ": "id+jwt"}, nil), plantstore.ErrBadToken},
			{"typ of a logout token", issuer.Sign(claims{"typ": "logout+jwt"}, nil), plantstore.ErrBadToken},
			{"empty typ", issuer.Sign(claims{"typ": ""}, nil), plantstore.ErrBadToken},
			{"typ null", issuer.Sign(claims{"typ": json.RawMessage("null")}, nil), plantstore.ErrBadToken},
			{"typ as a list", issuer.Sign(claims{"typ": []string{"JWT"}}, nil), plantstore.ErrBadToken},
			{"unknown critical header", issuer.Sign(claims{"crit": []string{"x"}, "x": 1}, nil), plantstore.ErrBadToken},
			{"without a subject", issuer.Sign(nil, claims{"sub": nil}), plantstore.ErrBadToken},
			{"subject with a line break", issuer.Sign(nil, claims{"sub": "a\nb"}), plantstore.ErrBadToken},
			{"long subject", issuer.Sign(nil, claims{"sub": strings.Repeat("x", 256)}), plantstore.ErrBadToken},
			{"changed signature", flip(good, len(good)-10), plantstore.ErrBadToken},
			{"changed claims", flip(good, strings.IndexByte(good, '.')+20), plantstore.ErrBadToken},
			{"without a signature", good[:strings.LastIndexByte(good, '.')+1], plantstore.ErrBadToken},
			{"cut off", good[:len(good)-5], plantstore.ErrBadToken},
			{"20 KB", issuer.Sign(nil, claims{"padding": strings.Repeat("x", 20_000)}), plantstore.ErrBadToken},
			{"64 KB", issuer.Sign(nil, claims{"padding": strings.Repeat("x", 48<<10)}), plantstore.ErrHeaders},
		} {
			got := s.call(t, "GET", path, "", "Authorization: Bearer "+tt.token)
			if tt.code == 0 {
				if got.status != 200 {
					t.Errorf("%s: got %d %s, want 200", tt.name, got.status, got.body)
				}
				continue
			}
			t.Run(tt.name, func(t *testing.T) { got.wantError(t, tt.code) })
		}
		s.call(t, "GET", path, "").wantOK(t) // our own token
	})
}

func TestIdentityProviderRotatesItsKey(t *testing.T) {
	onBothPaths(t, func(t *testing.T, path string) {
		issuer := startIssuer(t)
		s := start(t, oidcOptions(t, issuer))
		s.Fill(t, fern(1))
		get := func(token string) func() reply {
			return func() reply { return s.call(t, "GET", path, "", "Authorization: Bearer "+token) }
		}
		old := issuer.Sign(nil, nil)
		eventually(t, 200, get(old)).wantOK(t)
		issuer.Rotate()
		eventually(t, 200, get(issuer.Sign(nil, nil))).wantOK(t)
		get(old)().wantError(t, plantstore.ErrBadToken)
	})
}

// A provider that is down, or whose keys are too large, stops neither our tokens nor
// those whose key is known.
func TestIdentityProviderFails(t *testing.T) {
	for name, set := range map[string]func(i *servertest.Issuer, failing bool){
		"down": (*servertest.Issuer).SetDown,
		"keys of 10 MB": func(i *servertest.Issuer, failing bool) {
			if failing {
				i.SetPadding(10 << 20)
			} else {
				i.SetPadding(0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBothPaths(t, func(t *testing.T, path string) {
				issuer := startIssuer(t)
				set(issuer, true)
				s := start(t, oidcOptions(t, issuer))
				s.Fill(t, fern(1))
				get := func(token string) func() reply {
					return func() reply { return s.call(t, "GET", path, "", "Authorization: Bearer "+token) }
				}
				token := issuer.Sign(nil, nil)
				// Whether the token is valid is not known, and it is not the client's fault.
				unknown := get(token)()
				unknown.wantError(t, plantstore.ErrUnavailable, "the keys of the identity provider are not known yet")
				unknown.wantHeader(t, "Retry-After", "1")
				// What cannot be valid is refused anyway.
				for _, bad := range []claims{{"iss": "https://other.example.com"}, {"aud": "x"}, {"exp": nil}} {
					get(issuer.Sign(nil, bad))().wantError(t, plantstore.ErrBadToken)
				}
				get(issuer.Sign(claims{"alg": "none"}, nil))().wantError(t, plantstore.ErrBadToken)
				get(s.Token)().wantOK(t)
				set(issuer, false)
				eventually(t, 200, get(token)).wantOK(t)
				set(issuer, true)
				get(issuer.Sign(nil, claims{"sub": "bob"}))().wantOK(t)
				issuer.Rotate()
				get(issuer.Sign(nil, nil))().wantError(t, plantstore.ErrBadToken)
				get(s.Token)().wantOK(t)
			})
		})
	}
}

func TestCallerOfAnIdentityProviderIsInEventsAndLogs(t *testing.T) {
	onEveryIssuerStore(t, func(t *testing.T, s *service, issuer *servertest.Issuer) {
		token := "Authorization: Bearer " + issuer.Sign(nil, claims{"sub": "alice@example.com"})
		eventually(t, 200, func() reply { return s.create(t, `{"id":1,"name":"Fern"}`, token) }).wantPlant(t, fern(1))
		s.call(t, "POST", "/import", `{"id":2,"name":"Oak"}`, ndjson, token).wantReport(t, 1, 0, 0)
		events, _ := plantEvents(t, s.Server)
		want := issuer.URL + " alice@example.com"
		for _, e := range events {
			if e.By != want {
				t.Errorf("%v: by %q, want %q", e, e.By, want)
			}
		}
		if len(events) != 2 {
			t.Errorf("there are %d events, want 2", len(events))
		}
		if want := `"token":"` + want + `"`; !strings.Contains(s.Log.String(), want) {
			t.Errorf("the log does not have %s", want)
		}
	})
}

// onEveryIssuerStore runs a test with a service that accepts an issuer's tokens, on each
// kind of store.
func onEveryIssuerStore(t *testing.T, test func(t *testing.T, s *service, issuer *servertest.Issuer)) {
	t.Helper()
	for name, store := range map[string]func(*testing.T) plantstore.Store{
		"sqlite":   func(*testing.T) plantstore.Store { return nil },
		"postgres": func(t *testing.T) plantstore.Store { return servertest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			issuer := startIssuer(t)
			opts := oidcOptions(t, issuer)
			opts.Store = store(t)
			test(t, start(t, opts), issuer)
		})
	}
}
