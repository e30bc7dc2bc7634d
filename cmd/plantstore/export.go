package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"plantstore"
	"plantstore/client"
)

type exportCommand struct {
	clientFlags
	filterFlags
	File   string `arg:"" placeholder:"FILE" help:"The file to write, or - for standard output."`
	Format string `enum:"ndjson,json,csv," default:"" placeholder:"FORMAT" help:"ndjson, json or csv (default: from the file name)."`
	Force  bool   `help:"Replace the file, or the link, if it exists."`

	Spreadsheet bool `help:"In CSV, put an apostrophe before text that a spreadsheet would run as a formula."`
}

// Help is the long part of the help page.
func (exportCommand) Help() string {
	return `Writes a consistent snapshot of every plant, in order of id, in a format that import reads. The file appears under its name only when it is complete, and only its owner can read it. An existing file or link is not replaced without --force.

Open a CSV file in a spreadsheet only if it was exported with --spreadsheet: a name or tag that begins with =, +, -, @, a tab or a line break would be run as a formula. A file exported that way is for people, not for import: the apostrophes would become part of the names. ` + tokenHelp + `

Examples:
  plantstore export plants.ndjson
  plantstore export --tag tropical --format csv - | head`
}

// Run exports to the file.
func (c *exportCommand) Run(ctx context.Context, std streams) error {
	format, err := pickFormat(c.File, c.Format)
	if err != nil {
		return err
	}
	if c.Spreadsheet && format != formatCSV {
		return usage("--spreadsheet is for CSV: use --format csv, or a file name that ends in .csv")
	}
	if c.File != "-" && !c.Force {
		if err := checkUnused(c.File); err != nil {
			return err
		}
	}
	api, err := c.client(std, fileTimeout)
	if err != nil {
		return err
	}
	run := &exportRun{api: api, query: c.query(), format: format, spreadsheet: c.Spreadsheet, progress: newProgress(std.err, "exported", -1), started: time.Now()}
	if c.File == "-" {
		err = run.write(ctx, std.out)
	} else {
		err = writeAtomically(c.File, func(out io.Writer) error { return run.write(ctx, out) })
	}
	run.progress.finish()
	if err != nil {
		return fmt.Errorf("the export failed: %w", err)
	}
	took := time.Since(run.started)
	fmt.Fprintf(std.err, "%s exported in %s (%.0f a second)\n",
		count(run.plants, "plant"), took.Round(time.Millisecond), float64(run.plants)/took.Seconds())
	return nil
}

// checkUnused returns an error if writeAtomically would replace something: a file, or a
// link that does not lead to a pipe or a device.
func checkUnused(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return nil // writing says what is wrong
	}
	if info.Mode().IsRegular() {
		return usage("%s exists already: use --force to replace it", name)
	}
	if target, err := os.Stat(name); err != nil || target.Mode().IsRegular() {
		return usage("%s is a link: use --force to replace it", name)
	}
	return nil
}

// writeAtomically writes a file that only its owner can read, under a temporary name,
// and renames it once all of it is on disk. A pipe or a device is written to directly.
func writeAtomically(name string, write func(io.Writer) error) error {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.partial")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // unless it has been renamed
	if err := errors.Join(write(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

// exportRun is an export in progress.
type exportRun struct {
	api         *client.Client
	query       plantstore.Query
	format      string
	spreadsheet bool
	progress    *progress
	started     time.Time
	plants      int64
	bytes       int64
}

func (r *exportRun) write(ctx context.Context, w io.Writer) error {
	out := bufio.NewWriterSize(w, 256<<10)
	var err error
	if r.format == formatCSV {
		err = r.writeCSV(ctx, out)
	} else {
		err = r.writeLines(ctx, out)
	}
	return errors.Join(err, out.Flush())
}

func (r *exportRun) writeCSV(ctx context.Context, out *bufio.Writer) error {
	if _, err := out.WriteString("id,name,tag\n"); err != nil {
		return err
	}
	var record []byte
	for plant, err := range r.api.Export(ctx, r.query) {
		if err != nil {
			return err
		}
		if r.spreadsheet {
			plant = neutralised(plant)
		}
		record = appendCSV(record[:0], plant)
		if err := r.put(out, "", record); err != nil {
			return err
		}
	}
	return nil
}

// writeLines copies the server's lines, as they are or as the elements of a JSON
// array.
func (r *exportRun) writeLines(ctx context.Context, out *bufio.Writer) error {
	body, err := r.api.ExportLines(ctx, r.query)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := newLineReader(body)
	first, between, last := "", "\n", "\n"
	if r.format == formatJSON {
		first, between, last = "[\n", ",\n", "\n]\n"
	}
	lead := first
	for {
		rec, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := r.put(out, lead, rec.json); err != nil {
			return err
		}
		lead = between
	}
	switch {
	case r.plants == 0 && r.format == formatJSON:
		last = "[]\n"
	case r.plants == 0:
		last = ""
	}
	_, err = out.WriteString(last)
	return err
}

func (r *exportRun) put(out *bufio.Writer, lead string, record []byte) error {
	if _, err := out.WriteString(lead); err != nil {
		return err
	}
	if _, err := out.Write(record); err != nil {
		return err
	}
	r.plants++
	r.bytes += int64(len(lead) + len(record))
	if r.plants%10_000 == 0 {
		r.progress.update(r.bytes, r.plants)
	}
	return nil
}
