package backoff_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/internal/backoff"
)

func TestBackoffDoublesUpToMax(t *testing.T) {
	b := backoff.Exponential{Min: 100 * time.Millisecond, Max: 500 * time.Millisecond}
	for i, whole := range []time.Duration{100, 200, 400, 500, 500} {
		whole *= time.Millisecond
		if got := b.Next(); got < whole/2 || got > whole {
			t.Errorf("delay %d is %s, want %s to %s", i+1, got, whole/2, whole)
		}
	}
}

func TestBackoffDelaysDiffer(t *testing.T) {
	var delays []time.Duration
	for range 100 {
		b := backoff.Exponential{Min: time.Second, Max: time.Second}
		delays = append(delays, b.Next())
	}
	if slices.Sort(delays); delays[99]-delays[0] < 100*time.Millisecond {
		t.Errorf("100 delays lie between %s and %s", delays[0], delays[99])
	}
}

func TestBackoffWithoutDelay(t *testing.T) {
	b := backoff.Exponential{}
	if got := b.Next(); got != 0 {
		t.Errorf("the delay is %s, want 0", got)
	}
}

func TestBackoffWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := backoff.Exponential{Min: time.Hour, Max: time.Hour}
		start := time.Now()
		if !b.Wait(t.Context()) {
			t.Error("Wait reports that its context has ended")
		}
		if waited := time.Since(start); waited < time.Hour/2 || waited > time.Hour {
			t.Errorf("Wait took %s, want 30 to 60 minutes", waited)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if b.Wait(ctx) {
			t.Error("Wait reports that it outlasted its context")
		}
	})
}
