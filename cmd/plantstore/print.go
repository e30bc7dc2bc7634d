package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"plantstore/internal/cli"
	"plantstore/internal/plantfile"
)

// outputFlags say how a command prints its result: as text on a terminal, and as JSON
// elsewhere.
type outputFlags struct {
	JSON bool `name:"json" help:"Print JSON even on a terminal."`
}

func (f outputFlags) asJSON(out io.Writer) bool { return f.JSON || !cli.IsTerminal(out) }

// print prints a result: its JSON, or the table that write writes.
func (f outputFlags) print(out io.Writer, encoded []byte, write func(table io.Writer)) error {
	if f.asJSON(out) {
		_, err := fmt.Fprintf(out, "%s\n", encoded)
		return err
	}
	return printTable(out, write)
}

func printTable(out io.Writer, write func(table io.Writer)) error {
	table := newTable(bufio.NewWriter(out))
	write(table)
	return table.Flush()
}

// listing prints rows as a table on a terminal, and as a JSON array elsewhere.
type listing struct {
	plantfile.Writer
	isTable bool
}

func (f outputFlags) listing(out io.Writer, heading string) *listing {
	buffer := bufio.NewWriter(out)
	if f.asJSON(out) {
		return &listing{plantfile.Writer{Layout: plantfile.JSON.Layout(false), Out: buffer}, false}
	}
	return &listing{plantfile.Writer{Layout: plantfile.Layout{First: heading, None: heading}, Out: newTable(buffer)}, true}
}

// row adds a row, given as a line of the table and as JSON.
func (l *listing) row(line string, encoded []byte) error {
	if l.isTable {
		return l.Write([]byte(line))
	}
	return l.Write(encoded)
}

// table aligns the columns between tabs.
type table struct {
	*tabwriter.Writer
	out *bufio.Writer
}

func newTable(out *bufio.Writer) table {
	return table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), out}
}

func (t table) Flush() error { return errors.Join(t.Writer.Flush(), t.out.Flush()) }

// printable returns text in a form that fits one cell of a table.
func printable(text string) string {
	quoted := strconv.Quote(text)
	if quoted[1:len(quoted)-1] == text {
		return text
	}
	return quoted
}

func when(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04")
}
