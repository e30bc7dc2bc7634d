package plantstore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore"
)

func TestProblemsAreReportedTogether(t *testing.T) {
	var p plantstore.Problems
	if err := p.Err(); err != nil {
		t.Errorf("no problems: got %v", err)
	}
	p.Wrap("id", nil)
	p.Wrap("id", plantstore.Errorf(plantstore.ErrMissing, "is missing"))
	p.Add(plantstore.ErrType, "%q is wrong", "name")
	err := p.Err()
	if !errors.Is(err, plantstore.ErrMissing) || err.Error() != `"id" is missing; "name" is wrong` {
		t.Errorf("got %v", err)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	const limit = 4200
	long := strings.Repeat("ü", 100_000)
	for name, err := range map[string]error{
		"many":               problems(3000, "unknown parameter"),
		"one that is long":   problems(1, long),
		"many that are long": problems(3000, long),
		"not a list":         plantstore.Errorf(plantstore.ErrParameter, "x%s", long),
	} {
		if text := err.Error(); len(text) > limit || !utf8.ValidString(text) {
			t.Errorf("%s: the message has %d bytes: %.100s", name, len(text), text)
		}
	}
	all := problems(3000, "unknown parameter").Error()
	shown := strings.Count(all, "unknown parameter")
	if shown < 100 || !strings.HasSuffix(all, fmt.Sprintf("; and %d more", 3000-shown)) {
		t.Errorf("%d are shown: …%s", shown, all[len(all)-50:])
	}
}

func problems(n int, text string) error {
	var p plantstore.Problems
	for range n {
		p.Add(plantstore.ErrParameter, "%s", text)
	}
	return p.Err()
}
