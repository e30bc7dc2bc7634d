package plantstore

// ImportReport counts the outcomes of the lines of an import.
type ImportReport struct {
	// Created counts the plants that are new, Unchanged those that existed
	// already, exactly as sent, and Failed the lines that were refused.
	Created, Unchanged, Failed int64
	// Errors says why the first lines failed, in order, at most MaxLineErrors.
	Errors []LineError
}

// MaxLineErrors is how many errors an [ImportReport] holds.
const MaxLineErrors = 100

// LineError says why one line of an import failed.
type LineError struct {
	Line int64 // The first line is 1.
	Err  *Error
}
