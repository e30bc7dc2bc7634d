package cli

import "testing"

func TestNoPartOfAPasswordIsShown(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://a:5432/plants?user=me&password=hun@ter2":     "postgres://a:5432/plants?user=me&password=xxxxx",
		"postgres://me:hun@ter2@a:5432/plants?sslpassword=h@3&x": "postgres://me:xxxxx@a:5432/plants?sslpassword=xxxxx&x",
		"postgres://me:hunter2\n@a/plants?password=hunter\n3":    "postgres://me:xxxxx@a/plants?password=xxxxx",
		"postgres://me@a:5432/plants?x=y":                        "postgres://me@a:5432/plants?x=y",
		"plants.db":                                              "plants.db",
	} {
		if got := MaskSecrets(url); got != want {
			t.Errorf("%q: got %q, want %q", url, got, want)
		}
	}
}
