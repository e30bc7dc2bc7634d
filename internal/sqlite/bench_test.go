package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"plantstore"
)

// BenchmarkCreate reports the CPU time of a create in a batch of 256, with its share of the
// flush. Put the temporary folder into memory, and let it create two million.
func BenchmarkCreate(b *testing.B) {
	for _, ids := range []string{"sequential", "random"} {
		b.Run(ids, func(b *testing.B) {
			s, err := Open(b.TempDir()+"/plants.db", Serve)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			ctx, stop := context.WithCancel(b.Context())
			ended := make(chan error)
			go func() { ended <- s.Run(ctx) }()
			defer func() { stop(); <-ended }()
			batch := make([]plantstore.Write, 0, 256)
			tag := plantstore.NewTag("indoor")
			before := cpuTime(b)
			for n := range b.N {
				id := plantstore.ID(n)
				if ids == "random" {
					id = plantstore.ID(rand.Int64())
				}
				batch = append(batch, plantstore.Write{Op: plantstore.Create, By: "5a1f0c22", Plant: plantstore.Plant{ID: id, Name: fmt.Sprintf("Monstera deliciosa %d", n), Tag: tag}})
				if len(batch) < cap(batch) && n < b.N-1 {
					continue
				}
				if _, err := s.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
				batch = batch[:0]
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

func cpuTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
