package rules

import (
	"errors"

	"plantstore"
	"plantstore/internal/match"
)

// maxCounted is how many plants are examined to count those that match a query.
const maxCounted = 50_000

// ErrGaveUp is for a count that would take too much work.
var ErrGaveUp = errors.New("there are too many plants to count")

// CountPlants returns how many plants match the query of a page, or nil if the query does not ask for
// it, or if that takes too much work. each calls a function with the plants that a query may select
// until it returns false, and need not read their names unless names is set; it may return [ErrGaveUp].
func CountPlants(q plantstore.Query, page plantstore.Page, each func(q plantstore.Query, names bool, f func(plantstore.StoredPlant) bool) error) (*plantstore.Count, error) {
	switch {
	case !q.Count:
		return nil, nil
	case q.After == nil && page.Next == nil:
		return &plantstore.Count{Plants: len(page.Plants)}, nil
	}
	q.After, q.Order, q.Details = nil, plantstore.ByID, false
	c := counter{matches: match.Filter(q), words: max(1, match.Words(q.Contains))}
	err := each(q, q.Contains != "", c.add)
	if errors.Is(err, ErrGaveUp) || err == nil && c.gaveUp {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &c.count, nil
}

// counter counts the plants that match a query.
type counter struct {
	matches func(plantstore.Plant) bool
	words   int // that each plant is compared with, 1 at least
	plants  int // examined
	text    int // of the plants examined, for each word
	count   plantstore.Count
	gaveUp  bool
}

// add examines the next plant and reports whether the counter wants another.
func (c *counter) add(p plantstore.StoredPlant) bool {
	if c.plants == maxCounted || c.text >= maxExaminedText {
		c.gaveUp = true
		return false
	}
	c.plants++
	c.text += p.TextSize() * c.words
	if !c.matches(p.Plant) {
		return true
	}
	if c.count.Plants == plantstore.MaxCount {
		c.count.More = true
		return false
	}
	c.count.Plants++
	return true
}
