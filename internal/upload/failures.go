package upload

import (
	"bufio"
	"errors"
	"os"

	"plantstore/internal/plantfile"
)

// FailureFile is a file of the records that failed, in the format of the import and with their
// reasons.
type FailureFile struct {
	// Written is how many records the file has.
	Written int64

	records  plantfile.Reader
	file     *os.File
	isNew    bool // it did not exist
	isDevice bool // it cannot be emptied
	out      plantfile.Writer
}

// OpenFailureFile opens the file for the failures among the records. What an existing file has is
// kept until there is something to put in its place.
func OpenFailureFile(name string, records plantfile.Reader) (*FailureFile, error) {
	info, err := os.Stat(name)
	f := &FailureFile{records: records, isNew: err != nil, isDevice: err == nil && !info.Mode().IsRegular()}
	if f.file, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	f.out = plantfile.Writer{Layout: records.Failures(), Out: bufio.NewWriter(f.file)}
	return f, nil
}

func (f *FailureFile) empty() error {
	if f.isDevice {
		return nil
	}
	return f.file.Truncate(0)
}

// Add writes a record with the reason why it failed.
func (f *FailureFile) Add(source []byte, reason string) error {
	if f.Written == 0 {
		if err := f.empty(); err != nil {
			return err
		}
	}
	f.out.Write(f.records.WithReason(source, reason)) // Flush returns the error
	if err := f.out.Out.Flush(); err != nil {
		return err
	}
	f.Written++
	return nil
}

// Close ends the file. If nothing was written to it, a new one is removed, and an old one
// emptied if the import is complete.
func (f *FailureFile) Close(complete bool) error {
	var err error
	switch {
	case f.Written > 0:
		err = f.out.Close()
	case complete:
		err = f.empty()
	}
	err = errors.Join(err, f.file.Close())
	if f.Written == 0 && f.isNew {
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	return err
}
