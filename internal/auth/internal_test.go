package auth

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"plantstore"
	"plantstore/internal/storetest"
)

// Tokens that come and go do not fill the memory.
func TestGuardForgetsEndedTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewModel()
		g := New(store, Options{})
		check := func(secret string) error {
			_, err := g.Check(t.Context(), []string{"Bearer " + secret})
			return err
		}
		for range 100 {
			secret := plantstore.NewSecret()
			token := plantstore.Token{Hash: plantstore.HashSecret(secret), Scopes: plantstore.AllScopes(), Created: time.Now()}
			if err := store.CreateToken(t.Context(), token, plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
			if err := check(secret); err != nil {
				t.Fatal(err)
			}
			if err := store.RevokeToken(t.Context(), token.Hash, time.Now(), plantstore.Actor{Name: plantstore.Operator}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			g.reload(t.Context())
			if err := check(secret); !errors.Is(err, plantstore.ErrBadToken) {
				t.Fatal(err)
			}
		}
		g.touch(t.Context(), plantstore.MaxTokens)
		if tokens, uses := len(g.cache.Load().tokens), len(g.unrecorded); tokens != 0 || uses != 0 {
			t.Errorf("the guard remembers %d tokens and %d uses of tokens that have ended", tokens, uses)
		}
	})
}

// Many valid tokens of many subjects do not fill the memory.
func TestProviderRemembersABoundedNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProvider(OIDC{Issuer: "https://login.example.com"}, plantstore.Rate{N: 1, Burst: 2, Per: time.Minute}, nil)
		remember := func(i int) *limiter {
			hash := plantstore.HashSecret(fmt.Sprint(i))
			p.remember(hash, &verified{caller: Caller{Token: plantstore.Token{Hash: hash}}})
			return p.verified[hash].caller.limiter
		}
		first := remember(0)
		for i := range 3 * maxSubjects {
			remember(i).requests.allow(time.Now())
			if len(p.verified) > maxVerified || len(p.limiters) > maxSubjects+1 {
				t.Fatalf("after %d there are %d tokens and %d limiters", i, len(p.verified), len(p.limiters))
			}
		}
		if remember(0) != first {
			t.Error("a subject lost the limiter that it has used")
		}
		if remember(5*maxSubjects) != remember(5*maxSubjects+1) {
			t.Error("too many subjects do not share a limiter")
		}
		time.Sleep(2 * time.Minute) // all limiters are full again
		if remember(6*maxSubjects) == remember(6*maxSubjects+1) || len(p.limiters) > 2 {
			t.Errorf("unused limiters are kept: %d", len(p.limiters))
		}
	})
}
