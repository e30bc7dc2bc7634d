package plantstore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
	"plantstore/internal/wire/wiretest"
)

// FuzzID reads any text as an id, and compares the result with big.Rat's. Nothing
// panics, even if the text is not JSON.
func FuzzID(f *testing.F) {
	for _, body := range wiretest.Bodies {
		if number, ok := strings.CutPrefix(body.Text, `{"id":`); ok {
			number, _, _ = strings.Cut(number, ",")
			f.Add(number)
		}
	}
	for _, text := range []string{"", "-", "1e", "1e-", "1e+", ".", "1.", "e", "-e", "null", `"1"`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got plantstore.ID
		err := got.UnmarshalJSON([]byte(text))
		want, ok := wiretest.Integer(text)
		switch {
		case !ok:
		case !want.IsInt():
			if !errors.Is(err, plantstore.ErrType) || got != 0 {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, plantstore.ErrType)
			}
		case !want.Num().IsInt64():
			if !errors.Is(err, plantstore.ErrRange) || got != 0 {
				t.Errorf("%s: got %d, %v; want %v", text, got, err, plantstore.ErrRange)
			}
		case err != nil || int64(got) != want.Num().Int64():
			t.Errorf("%s: got %d, %v; want %s", text, got, err, want)
		}
	})
}

func TestIDIsMarshalledInDecimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := plantstore.ID(rapid.Int64().Draw(t, "id"))
		text, err := json.Marshal(id)
		if want := fmt.Sprintf("%d", int64(id)); err != nil || string(text) != want || id.String() != want {
			t.Fatalf("got %s, %v and %s; want %s", text, err, id, want)
		}
	})
}
