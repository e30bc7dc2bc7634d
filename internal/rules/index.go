package rules

// IndexMode says when a store has an index of names.
type IndexMode string

// The modes.
const (
	IndexAuto IndexMode = "auto" // once there are many plants
	IndexOn   IndexMode = "on"
	IndexOff  IndexMode = "off"
)

// manyPlants is how many plants a store has when IndexAuto makes an index.
const manyPlants = 1_000_000

// Wants reports whether a store with that many plants should have an index, which exists or not.
func (m IndexMode) Wants(plants int64, exists bool) bool {
	return m == IndexOn || m == IndexAuto && (exists || plants >= manyPlants)
}
