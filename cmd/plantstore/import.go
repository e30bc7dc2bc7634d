package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"plantstore"
	"plantstore/internal/cli"
	"plantstore/internal/plantfile"
	"plantstore/internal/upload"
)

type importCommand struct {
	clientFlags
	File      string              `arg:"" placeholder:"FILE" help:"The file to read, or - for standard input."`
	Format    string              `enum:"ndjson,json,csv," default:"" placeholder:"FORMAT" help:"ndjson, json or csv (default: from the file name)."`
	Delimiter plantfile.Delimiter `placeholder:"CHAR" help:"The separator of CSV columns: comma, semicolon, tab, or another character (default: from the header)."`
	Errors    string              `placeholder:"FILE" help:"Write the lines that failed to this file, each with its reason, ready to fix and import."`
	Force     bool                `help:"Replace the file of --errors if it exists."`
	Mode      string              `enum:"create,replace,delete" default:"create" placeholder:"MODE" help:"create, replace (creates or replaces) or delete (a line needs only an id) (${default})."`
	DryRun    bool                `help:"Write nothing: say what would happen."`
	JSON      bool                `name:"json" help:"Print the summary as JSON, on standard output."`
}

func (importCommand) Help() string {
	return `Creates the plants in a file, or replaces or deletes them: one JSON object per line (ndjson), a JSON array (json), or a header and one plant per line (csv, with the columns id, name and optionally tag). A line that fails does not stop the rest; the exit code is 1 if any failed.

CSV may come from a spreadsheet: commas, semicolons and tabs are recognised from the header, and a line sep=; before it, UTF-16 and a byte order mark are accepted. An id such as 1.23457E+15 is refused: the spreadsheet has lost its digits.

An interrupted import says how many lines the server has acknowledged, and which lines may or may not have taken effect. It can be run again: plants that are already as they should be stay so, and a line with if_version that was imported fails. It exits with 130.

With --mode replace and delete a line may have a member, or in CSV a column, if_version: a version that export --details shows. The line fails if the plant has another, or is not there.

The file of --errors has the format of the import. It is written only if a line fails, and an existing file is not replaced without --force. Each reason is in a member "error", or in CSV in a first column error, which import ignores. A line that is not a JSON object is kept in a member "source".

The summary of --json contains the members created, unchanged, failed (with --mode or --dry-run also replaced and deleted) and reasons: the number of failed lines in the file of --errors. If the outcome of some lines is unknown, unknown_from and unknown_to are the first and the last of them. ` + tokenHelp + `

Examples:
  plantstore import plants.csv
  plantstore import plants.csv --mode replace --dry-run
  plantstore import --format ndjson --errors failed.ndjson - < plants`
}

func (c *importCommand) Run(ctx context.Context, std streams) error {
	format, err := pickFormat(c.File, c.Format)
	if err != nil {
		return err
	}
	switch {
	case c.Delimiter != 0 && format != plantfile.CSV:
		return usage("--delimiter is for CSV: use --format csv, or a file name that ends in .csv")
	case c.Errors == "-":
		return usage("--errors needs a file, got -")
	case c.Force && c.Errors == "":
		return usage("--force needs --errors FILE: it replaces that file, and never plants")
	case c.DryRun && c.Errors != "":
		return usage("--dry-run writes nothing, so it cannot be combined with --errors")
	}
	api, err := c.client(std, fileTimeout)
	if err != nil {
		return err
	}
	in, info, err := cli.OpenInput(ctx, c.File, std.in)
	if err != nil {
		return err
	}
	defer in.Close()
	file, err := cli.UntilInterrupted(ctx, func() (*upload.Upload, error) { return upload.New(api, in, format, c.options()) })
	if err != nil {
		return fmt.Errorf("%s: %w", c.source(), err)
	}
	if ignored := file.Records.Ignored(); len(ignored) > 0 {
		fmt.Fprintf(std.err, "plantstore: warning: unknown columns are ignored: %s\n", strings.Join(ignored, ", "))
	}
	file.Mode = plantstore.ImportMode(c.Mode)
	run := newImportRun(file, format.Noun(), std.err)
	run.trial = c.DryRun
	run.withMode = c.DryRun || file.Mode != plantstore.ImportCreate
	if c.Errors != "" {
		if err := c.openErrors(run, info); err != nil {
			return err
		}
	}
	size := int64(-1)
	if c.File != "-" && info.Mode().IsRegular() {
		size = info.Size()
	}
	progress := newProgress(std.err, "acknowledged", run.noun, size, true)
	file.Progress, run.pace = progress.update, progress.pace
	if c.DryRun {
		err = file.Try(ctx)
	} else {
		err = file.Run(ctx)
	}
	progress.finish()
	if run.failures != nil {
		if closeErr := run.failures.Close(err == nil); !errors.Is(err, closeErr) { // the error of a full disk is reported once
			err = errors.Join(err, closeErr)
		}
	}
	run.summariseFailures(c.Errors)
	if c.JSON {
		err = errors.Join(err, run.report(std.out))
	} else {
		run.summarise(std.err, err == nil)
	}
	switch {
	case err != nil && c.DryRun:
		return err
	case err != nil:
		return run.stopped(ctx, c.source(), err)
	case file.Refused > 0:
		return fmt.Errorf("%d of %s failed", file.Refused, cli.Count(file.Total(), run.noun))
	}
	return nil
}

// pickFormat returns the format that was requested, or else that of the file name's
// extension.
func pickFormat(file, requested string) (plantfile.Format, error) {
	if requested != "" {
		return plantfile.Format(requested), nil
	}
	if format := plantfile.FormatOf(file); format != "" {
		return format, nil
	}
	if file == "-" {
		return plantfile.NDJSON, nil
	}
	return "", usage("%s: the format is not clear from the name: use --format ndjson, json or csv", file)
}

// maxRecord bounds the memory for one record of a file. It is far above what a server
// accepts.
const maxRecord = 16 << 20

func (c *importCommand) options() plantfile.Options {
	return plantfile.Options{
		MaxRecord:     maxRecord,
		Delimiter:     c.Delimiter,
		OnlyID:        c.Mode == string(plantstore.ImportDelete),
		DelimiterHint: "; for another separator than comma, semicolon or tab, use --delimiter",
		LinesHint:     "; for one plant per line, use --format ndjson",
	}
}

// source is the name of the input in messages.
func (c *importCommand) source() string {
	if c.File == "-" {
		return "standard input"
	}
	return c.File
}

// openErrors opens the file of --errors, which must not be the input.
func (c *importCommand) openErrors(run *importRun, input os.FileInfo) (err error) {
	if info, err := os.Stat(c.Errors); err == nil && info.Mode().IsRegular() {
		switch {
		case os.SameFile(info, input):
			return usage("--errors %s is the file being imported: use another", c.Errors)
		case info.Size() > 0 && !c.Force:
			return usage("%s exists already: use --force to replace it", c.Errors)
		}
	}
	run.WithSources = true
	run.failures, err = upload.OpenFailureFile(c.Errors, run.Records)
	return err
}

// importRun prints the failures and the result of an upload.
type importRun struct {
	*upload.Upload
	noun     string // the name of a record
	withMode bool   // more than creating is reported
	trial    bool   // nothing is written
	show     io.Writer
	shown    int64               // failures
	failures *upload.FailureFile // nil if none is wanted
	pace     func(items int64) string
}

// newImportRun prints the first ten failures, and writes all to the file of failures.
func newImportRun(file *upload.Upload, noun string, show io.Writer) *importRun {
	run := &importRun{Upload: file, noun: noun, show: show}
	file.Failed = func(f upload.Failure) error {
		reason := fmt.Sprintf("%s %d: %s", noun, f.Line, f.Reason)
		if run.shown < 10 {
			run.shown++
			fmt.Fprintln(show, reason)
		}
		if run.failures == nil {
			return nil
		}
		return run.failures.Add(f.Source, reason)
	}
	return run
}

// summarise prints what the server has acknowledged.
func (r *importRun) summarise(out io.Writer, complete bool) {
	lead := ""
	switch {
	case complete:
	case r.Total() == 0:
		fmt.Fprintf(out, "no %s was acknowledged\n", r.noun)
		return
	default:
		lead = cli.Count(r.Total(), r.noun) + " acknowledged: "
	}
	changed := ""
	if r.withMode {
		changed = fmt.Sprintf("%d replaced, %d deleted, ", r.Replaced, r.Deleted)
	}
	fmt.Fprintf(out, "%s%d created, %s%d unchanged, %d failed, %s\n", lead, r.Created, changed, r.Unchanged, r.Refused, r.pace(r.Total()))
}

// report prints what the server has acknowledged, as JSON.
func (r *importRun) report(out io.Writer) error {
	known := map[string]int64{
		"created":   r.Created,
		"unchanged": r.Unchanged,
		"failed":    r.Refused,
		"reasons":   r.written(),
	}
	if r.withMode {
		known["replaced"], known["deleted"] = r.Replaced, r.Deleted
	}
	if from, to, ok := r.Unknown(); ok {
		known["unknown_from"], known["unknown_to"] = int64(from), int64(to)
	}
	return json.NewEncoder(out).Encode(known)
}

// written is how many failures are in the file of failures.
func (r *importRun) written() int64 {
	if r.failures == nil {
		return 0
	}
	return r.failures.Written
}

// stopped says why the import of the source is not complete, and what is not known.
func (r *importRun) stopped(ctx context.Context, source string, err error) error {
	what := "the import of " + source
	switch {
	case r.IsRefused():
		return fmt.Errorf("%s was refused: %w", what, err)
	case r.SendErr() == nil && ctx.Err() == nil:
		return fmt.Errorf("%s stopped: %w", what, err)
	}
	message := what + " was interrupted"
	if from, to, ok := r.Unknown(); ok {
		message += fmt.Sprintf(" while %ss %d to %d were being sent: any of them may have been imported", r.noun, from, to)
	}
	message += "; run it again, plants that are already as they should be stay so"
	if ctx.Err() != nil {
		return interrupted(message)
	}
	return fmt.Errorf("%s: %w", message, err)
}

// summariseFailures says where to find the failures that were not shown.
func (r *importRun) summariseFailures(file string) {
	if file == "" {
		if more := r.Refused - r.shown; more > 0 && r.trial {
			fmt.Fprintf(r.show, "%d more would fail\n", more)
		} else if more > 0 {
			fmt.Fprintf(r.show, "%d more failed: use --errors FILE to get all of them, with their reasons\n", more)
		}
		return
	}
	if more := r.written() - r.shown; more > 0 {
		fmt.Fprintf(r.show, "%d more failed: see %s\n", more, file)
	}
	// The import stopped before it had asked for every reason.
	if unknown := r.Refused - r.written(); unknown > 0 {
		fmt.Fprintf(r.show, "%d more failed, but the reasons are not known: run the import again to get them\n", unknown)
	}
}
