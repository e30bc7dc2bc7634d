package plantstore_test

import (
	"testing"

	"plantstore"
)

// Every store that exists has these numbers in its log.
func TestNumbersOfEventTypesNeverChange(t *testing.T) {
	for number, want := range map[int64]plantstore.EventType{
		-1: "", 0: "", 1: "plant.created", 2: "plant.replaced", 3: "plant.deleted", 4: "token.created", 5: "token.revoked", 6: "",
	} {
		got := plantstore.EventTypeOf(number)
		if got != want || want != "" && got.Number() != number {
			t.Errorf("the type %d is %q with the number %d, want %q", number, got, got.Number(), want)
		}
	}
	if n := plantstore.EventType("plant.moved").Number(); n != 0 {
		t.Errorf("an unknown type has the number %d", n)
	}
}
