package auth

import (
	"net/http"
	"testing"
	"time"

	"plantstore"
)

// What a rate limit costs a request: a token of its bucket, and two headers.
func BenchmarkLimiter(b *testing.B) {
	c := Caller{limiter: newLimiter(plantstore.Rate{N: 1_000_000, Burst: 1_000_000, Per: time.Second})}
	b.Run("take", func(b *testing.B) {
		b.ReportAllocs()
		now := time.Now()
		for b.Loop() {
			c.limiter.requests.allow(now)
		}
	})
	b.Run("headers", func(b *testing.B) {
		b.ReportAllocs()
		h, now := http.Header{}, time.Now()
		var value [1]string
		for b.Loop() {
			clear(h)
			c.SetHeaders(h, now, &value)
		}
	})
}
