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

// Decide decides a write to the current plant, which is nil if there is none: it defines the
// semantics of writes for every store. Outcomes, events and what a batch leaves under each id
// follow from the changes of its writes, in their order. If there is a change, it makes this version.
func Decide(w *plantstore.Write, current *plantstore.StoredPlant, version plantstore.Version) Change {
	c := Change{Result: resultOf(w, current), Before: current, After: current}
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

// resultOf returns the result of a write, without the version of a plant that it creates or
// replaces.
func resultOf(w *plantstore.Write, current *plantstore.StoredPlant) plantstore.Result {
	switch {
	case w.Op == plantstore.Patch:
		return resultOfPatch(w, current)
	case w.Op == plantstore.Delete && current == nil:
		return plantstore.Result{Err: plantstore.ErrNoPlant}
	case !w.If.Holds(current):
		return plantstore.Result{Err: plantstore.ErrPrecondition}
	case w.Op == plantstore.Delete:
		return plantstore.Result{Outcome: plantstore.Deleted}
	case current == nil:
		return plantstore.Result{Outcome: plantstore.Created}
	case current.Plant == w.Plant:
		return plantstore.Result{Outcome: plantstore.Unchanged, Version: current.Version}
	case w.Op == plantstore.Create:
		return plantstore.Result{Err: plantstore.ErrIDTaken}
	}
	return plantstore.Result{Outcome: plantstore.Replaced}
}

// resultOfPatch is resultOf for a Patch. Its condition comes first: a plant that does not exist
// cannot meet a Match.
func resultOfPatch(w *plantstore.Write, current *plantstore.StoredPlant) plantstore.Result {
	switch {
	case !w.If.Holds(current):
		return plantstore.Result{Err: plantstore.ErrPrecondition}
	case current == nil:
		return plantstore.Result{Err: plantstore.ErrNoPlant}
	}
	patched := w.Plant
	if w.KeepName {
		patched.Name = current.Name
	}
	if w.KeepTag {
		patched.Tag = current.Tag
	}
	switch {
	case w.MaxText > 0 && patched.TextSize() > int(w.MaxText):
		return plantstore.Result{Err: plantstore.ErrTooLarge}
	case patched == current.Plant:
		return plantstore.Result{Outcome: plantstore.Unchanged, Patched: &patched, Version: current.Version}
	}
	return plantstore.Result{Outcome: plantstore.Replaced, Patched: &patched}
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
