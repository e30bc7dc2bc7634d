package rules

import (
	"cmp"

	"plantstore"
)

// Change is what a write does to the plant under its id.
type Change struct {
	plantstore.Result
	Before, After *plantstore.StoredPlant // nil where there is none
}

// Decide decides a write to the current plant, which is nil if there is none. Outcomes, events
// and what a batch leaves under each id follow from the changes of its writes, in their order.
// If there is a change, it makes this version.
func Decide(w *plantstore.Write, current *plantstore.StoredPlant, version plantstore.Version) Change {
	c := Change{Result: w.Decide(current), Before: current, After: current}
	switch c.EventType() {
	case plantstore.PlantCreated, plantstore.PlantReplaced:
		c.Version = version
		c.After = &plantstore.StoredPlant{Plant: *cmp.Or(c.Patched, &w.Plant), Version: version, Created: version.Time}
		if current != nil {
			c.After.Created = current.Created
		}
	case plantstore.PlantDeleted:
		c.After = nil
	}
	return c
}

// Logged returns the plant of the change's event: the one after the change, or before a deletion.
// It is nil if nothing has changed.
func (c *Change) Logged() *plantstore.StoredPlant {
	switch c.EventType() {
	case "":
		return nil
	case plantstore.PlantDeleted:
		return c.Before
	}
	return c.After
}

// PlantsAdded returns how many more plants there are after an event of this type.
func PlantsAdded(kind plantstore.EventType) int64 {
	switch kind {
	case plantstore.PlantCreated:
		return 1
	case plantstore.PlantDeleted:
		return -1
	}
	return 0
}
