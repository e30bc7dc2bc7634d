package plantstore

import (
	"cmp"
	"slices"
)

// ImportMode is what an import does with its lines.
type ImportMode string

// The modes.
const (
	ImportCreate  ImportMode = "create"  // what createPlant does
	ImportReplace ImportMode = "replace" // what replacePlant does
	ImportDelete  ImportMode = "delete"  // what deletePlant does; a line needs only an id
)

// ImportModes lists every mode.
func ImportModes() []ImportMode { return []ImportMode{ImportCreate, ImportReplace, ImportDelete} }

// ImportReport counts the outcomes of the lines of an import.
type ImportReport struct {
	// Created counts the plants that are new, Unchanged those that already were exactly
	// as sent, or not there to be deleted, and Failed the lines that were refused.
	Created, Unchanged, Failed int64
	// Replaced and Deleted are 0 unless the import has a mode.
	Replaced, Deleted int64
	// Errors lists the reasons for the first failed lines, in order, at most MaxLineErrors.
	Errors []LineError
	// First is nil except in the report of a dry run.
	First *FirstLines
}

// FirstLines has the first lines of an import with each outcome, in order, at most
// MaxFirstLines of each.
type FirstLines struct {
	Created, Replaced, Deleted, Unchanged []int64
}

// MaxFirstLines is how many lines of each outcome [FirstLines] holds.
const MaxFirstLines = 5

// Add adds a line after those before it.
func (f *FirstLines) Add(outcome Outcome, line int64) {
	lines := [...]*[]int64{Created: &f.Created, Replaced: &f.Replaced, Deleted: &f.Deleted, Unchanged: &f.Unchanged}[outcome]
	if len(*lines) < MaxFirstLines {
		*lines = append(*lines, line)
	}
}

// Add adds the counts and errors of a report on other lines of the same import.
func (r *ImportReport) Add(other ImportReport) {
	r.Created += other.Created
	r.Unchanged += other.Unchanged
	r.Failed += other.Failed
	r.Replaced += other.Replaced
	r.Deleted += other.Deleted
	r.Errors = append(r.Errors, other.Errors...)
	slices.SortFunc(r.Errors, func(a, b LineError) int { return cmp.Compare(a.Line, b.Line) })
	r.Errors = slices.Delete(r.Errors, min(len(r.Errors), MaxLineErrors), len(r.Errors))
}

// MaxLineErrors is how many errors an [ImportReport] holds.
const MaxLineErrors = 100

// LineError is the reason for which one line of an import failed.
type LineError struct {
	Line int64 // The first line is 1.
	Err  *Error
}
