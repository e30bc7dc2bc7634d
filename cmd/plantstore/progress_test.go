package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestProgressCountsOnePlant(t *testing.T) {
	for items, want := range map[int64]string{1: "imported 1 plant, ", 2: "imported 2 plants, "} {
		var out bytes.Buffer
		p := newProgress(&out, "imported", "plant", -1, true)
		p.printed = time.Time{}
		if p.update(10, items); !strings.HasPrefix(out.String(), want) {
			t.Errorf("got %q, want %q first", &out, want)
		}
	}
}
