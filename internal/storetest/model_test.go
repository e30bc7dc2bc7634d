package storetest_test

import (
	"testing"

	"plantstore"
	"plantstore/internal/storetest"
)

func TestModel(t *testing.T) {
	storetest.Run(t, func(*testing.T) func() plantstore.Store {
		m := storetest.NewModel()
		return func() plantstore.Store { return m }
	})
}
