package webhook

import (
	"testing"
	"time"

	"plantstore"
)

// The example of the specification's own libraries.
func TestSign(t *testing.T) {
	got, err := plantstore.SignWebhook("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

func TestSealedSecretNeedsItsKey(t *testing.T) {
	mine, other, none := newSealer([]byte("key")), newSealer([]byte("another key")), newSealer(nil)
	stored := mine.seal("wh_1", "whsec_secret")
	if got, err := mine.open("wh_1", stored); got != "whsec_secret" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for name, open := range map[string]func() (string, error){
		"another key":         func() (string, error) { return other.open("wh_1", stored) },
		"no key":              func() (string, error) { return none.open("wh_1", stored) },
		"of another webhook":  func() (string, error) { return mine.open("wh_2", stored) },
		"damaged":             func() (string, error) { return mine.open("wh_1", stored[:len(stored)-4]+"AAAA") },
		"damaged, not base64": func() (string, error) { return mine.open("wh_1", stored+"!") },
		"damaged, too short":  func() (string, error) { return mine.open("wh_1", sealPrefix) },
	} {
		if got, err := open(); err == nil {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if again := mine.seal("wh_1", stored); again != stored {
		t.Errorf("sealed twice: %q", again)
	}
	if got, err := mine.open("wh_1", "whsec_plain"); got != "whsec_plain" || err != nil {
		t.Errorf("a secret stored before there was a key: got %q, %v", got, err)
	}
}
