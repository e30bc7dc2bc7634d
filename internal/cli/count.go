package cli

import "fmt"

// Count returns a number with its noun: 1 plant, 2 plants.
func Count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
