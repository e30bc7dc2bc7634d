package main

import (
	"bufio"
	"fmt"
	"io"
	"slices"
)

// scatter maps the number of a plant to a random id of 63 bits (splitmix64), like
// scatter in load.lua.
func scatter(n uint64) int64 {
	z := (n + 1) * 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return int64((z ^ z>>31) >> 1)
}

// passes is the number of passes over the ids in which a store is filled. Each is
// sorted, so that filling takes minutes and not an hour. The later ones split the
// pages that the first one filled, as inserts in random order do.
const passes = 4

// plant is a plant that a store is filled with.
type plant struct {
	id   int64
	name string
	tag  string
}

// preload yields the first n random plants in the order in which a store is filled.
func preload(n int) func(yield func(plant) bool) {
	type numbered struct{ id, number int64 }
	return func(yield func(plant) bool) {
		for pass := range passes {
			var part []numbered
			for i := pass; i < n; i += passes {
				part = append(part, numbered{scatter(uint64(i)), int64(i)})
			}
			slices.SortFunc(part, func(a, b numbered) int {
				if a.id < b.id {
					return -1
				}
				return 1
			})
			for _, p := range part {
				if !yield(newPlant(p.id, p.number)) {
					return
				}
			}
		}
	}
}

func newPlant(id, number int64) plant {
	return plant{id, fmt.Sprintf("Monstera deliciosa %d", number), fmt.Sprintf("tropical %d", number%20)}
}

// writeLines writes plants as NDJSON, for an import.
func writeLines(to io.Writer, plants func(yield func(plant) bool)) error {
	w := bufio.NewWriterSize(to, 1<<20)
	for p := range plants {
		fmt.Fprintf(w, `{"id":%d,"name":%q,"tag":%q}`+"\n", p.id, p.name, p.tag)
	}
	return w.Flush()
}
