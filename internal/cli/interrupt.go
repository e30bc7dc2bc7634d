package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// UntilInterrupted runs f, and returns when ctx ends even if f, which may block, does not.
func UntilInterrupted[T any](ctx context.Context, f func() (T, error)) (result T, err error) {
	ended := make(chan struct{})
	var late T
	var lateErr error
	go func() {
		defer close(ended)
		late, lateErr = f()
	}()
	select {
	case <-ended:
		return late, lateErr
	case <-ctx.Done():
		return result, ctx.Err()
	}
}

// ReaderUntil returns a reader whose Read returns when ctx ends, even if in has nothing to read. No
// one may read from in then, or use what it was to read into.
func ReaderUntil(ctx context.Context, in io.Reader) io.Reader { return reader{ctx, in} }

type reader struct {
	ctx context.Context
	in  io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	return UntilInterrupted(r.ctx, func() (int, error) { return r.in.Read(b) })
}

// WriterUntil returns a writer whose Write returns when ctx ends, even if nobody reads out. No one
// may write to it then, or change what was written.
func WriterUntil(ctx context.Context, out io.Writer) io.Writer { return writer{ctx, out} }

type writer struct {
	ctx context.Context
	out io.Writer
}

func (w writer) Write(b []byte) (int, error) {
	return UntilInterrupted(w.ctx, func() (int, error) { return w.out.Write(b) })
}

// IsTerminal reports whether a stream is a terminal: what is written to it is seen, and what is
// read was typed.
func IsTerminal(stream any) bool {
	if w, ok := stream.(writer); ok {
		stream = w.out
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Confirm asks a question on out, and reports whether the line that it reads agrees.
func Confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	fmt.Fprintf(out, "%s [y/N] ", question)
	lines := bufio.NewReader(in)
	line, err := UntilInterrupted(ctx, func() (string, error) { return lines.ReadString('\n') })
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes", nil
}
