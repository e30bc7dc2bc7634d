package main

import (
	"context"
	"fmt"
	"io"
	"iter"

	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/plantfile"
)

type exportCommand struct {
	clientFlags
	filterFlags
	// DB has no variable: one that is set for serve must not silently change an export.
	DB     string `name:"db" placeholder:"FILE" help:"Read the store in this file instead of calling a server."`
	File   string `arg:"" placeholder:"FILE" help:"The file to write, or - for standard output."`
	Format string `enum:"ndjson,json,csv," default:"" placeholder:"FORMAT" help:"ndjson, json or csv (default: from the file name)."`
	Force  bool   `help:"Replace the file, or the link, if it exists."`

	Details     bool `help:"Add the version of each plant, and when it was created and last changed."`
	Spreadsheet bool `help:"In CSV, put an apostrophe before text that a spreadsheet would run as a formula."`
}

func (exportCommand) Help() string {
	return `Writes a consistent snapshot of every plant, in order of id unless --order is given, in a format that import reads. The file appears under its name only when it is complete, and only its owner can read it. An existing file or link is not replaced without --force.

With --db no server and no token are needed: the store is read from its file, which is not changed, even if an older release wrote it or a server is using it.

Open a CSV file in a spreadsheet only if it was exported with --spreadsheet: a name or tag that begins with =, +, -, @, a tab or a line break would be run as a formula. A file exported that way is for people, not for import: the apostrophes would become part of the names. ` + tokenHelp + `

Examples:
  plantstore export plants.ndjson
  plantstore export --tag tropical --format csv - | head
  plantstore export --db plants-2026-11-15.db plants.ndjson`
}

func (c *exportCommand) Run(ctx context.Context, std streams) error {
	if err := c.check(); err != nil {
		return err
	}
	format, err := pickFormat(c.File, c.Format)
	if err != nil {
		return err
	}
	if c.Spreadsheet && format != plantfile.CSV {
		return usage("--spreadsheet is for CSV: use --format csv, or a file name that ends in .csv")
	}
	if c.DB != "" {
		file := storeFlags{DB: c.DB}
		if file.isPostgres() {
			return usage("--db reads a store in a file: export from PostgreSQL through a server, with --url")
		}
		if err := file.check(); err != nil {
			return err
		}
	}
	if c.File != "-" && !c.Force {
		if err := cli.CheckUnused(c.File); err != nil {
			return err
		}
	}
	var api *client.Client
	if c.DB == "" {
		if api, err = c.client(std, fileTimeout); err != nil {
			return err
		}
	}
	shown := newProgress(std.err, "exported", "plant", -1, true)
	plants, err := c.export(ctx, std, api, format, shown)
	shown.finish()
	if err != nil {
		return fmt.Errorf("the export failed: %w", err)
	}
	fmt.Fprintf(std.err, "%s exported %s\n", cli.Count(plants, "plant"), shown.pace(plants))
	return nil
}

// export writes the plants of the server, or of the store in a file, and returns how many.
func (c *exportCommand) export(ctx context.Context, std streams, api *client.Client, format plantfile.Format, shown *progress) (plants int64, err error) {
	query := c.query()
	query.Details = c.Details
	var records iter.Seq2[[]byte, error]
	switch {
	case c.DB != "":
		store, err := lookAt(ctx, c.DB, std)
		if err != nil {
			return 0, err
		}
		defer store.Close()
		records = plantfile.Records(store.Scan(ctx, query, nil), format, c.Details, c.Spreadsheet)
	case format == plantfile.CSV:
		records = plantfile.Records(api.Export(ctx, query), format, c.Details, c.Spreadsheet)
	default:
		// To decode the lines would take twice as long.
		records = plantfile.Lines(func() (io.ReadCloser, error) { return api.ExportLines(ctx, query) })
	}
	write := func(out io.Writer) error {
		plants, err = plantfile.WriteRecords(cli.WriterUntil(ctx, out), format.Layout(c.Details), records, shown.update)
		return err
	}
	if c.File == "-" {
		err = write(std.out)
	} else {
		err = cli.WriteFile(ctx, c.File, write)
	}
	return plants, err
}
