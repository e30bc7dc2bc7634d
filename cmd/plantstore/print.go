package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
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

// print prints one result: its JSON, or the table that write writes.
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

// rows are what a command lists: a table on a terminal, and a JSON array elsewhere.
type rows[T any] struct {
	heading string
	row     func(T) string
	encode  func([]byte, T) ([]byte, error)
}

// print prints the items, at most limit of them unless that is 0. It returns the last that it
// has printed, and whether there are more.
func (r rows[T]) print(ctx context.Context, f outputFlags, out io.Writer, items iter.Seq2[T, error], limit int) (last T, more bool, err error) {
	out = cli.WriterUntil(ctx, out)
	buffer := bufio.NewWriter(out)
	show := plantfile.Writer{Layout: plantfile.JSON.Layout(false), Out: buffer}
	encode := r.encode
	if !f.asJSON(out) {
		show = plantfile.Writer{Layout: plantfile.Layout{First: r.heading, None: r.heading}, Out: newTable(buffer)}
		encode = func(_ []byte, item T) ([]byte, error) { return []byte(r.row(item)), nil }
	}
	for item, err := range items {
		if err != nil {
			return last, false, errors.Join(err, show.Out.Flush())
		}
		if limit > 0 && show.Count == int64(limit) {
			return last, true, show.Close()
		}
		encoded, err := encode(nil, item)
		if err == nil {
			err = show.Write(encoded)
		}
		if err != nil {
			return last, false, err
		}
		last = item
	}
	return last, false, show.Close()
}

// printOne prints one item: a table on a terminal, and a JSON object elsewhere.
func (r rows[T]) printOne(f outputFlags, out io.Writer, item T) error {
	encoded, err := r.encode(nil, item)
	if err != nil {
		return err
	}
	return f.print(out, encoded, func(table io.Writer) { io.WriteString(table, r.heading+r.row(item)) })
}

// pageSize is how many items a request asks for, to find out whether there are more than the
// limit, which is 0 for all.
func pageSize(limit int) int {
	if limit == 0 {
		return 1000
	}
	return min(limit+1, 1000)
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
