package wire_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"plantstore/internal/wire"
)

// readLines reads all lines as "number:text", and the error that ends them.
func readLines(r io.Reader, limit int) (lines []string, err error) {
	reader := wire.NewLineReader(r, limit)
	for {
		line, err := reader.Next()
		switch {
		case errors.Is(err, wire.ErrLineTooLong):
			lines = append(lines, fmt.Sprintf("%d:too long", reader.Line()))
		case err != nil:
			return lines, err
		default:
			lines = append(lines, fmt.Sprintf("%d:%s", reader.Line(), line))
		}
	}
}

func TestLinesAreSplitAndNumbered(t *testing.T) {
	const limit = 10
	fits, over := strings.Repeat("f", limit), strings.Repeat("o", limit+1)
	huge := strings.Repeat("h", 1<<20) // more than the reader's buffer
	for name, tt := range map[string]struct{ in, want string }{
		"nothing":                        {"", ""},
		"last line without a line feed":  {"a\nb", "1:a 2:b"},
		"last line with a line feed":     {"a\nb\n", "1:a 2:b"},
		"blank lines count":              {"\na\n\n \t\n\r\nb\n\n", "2:a 6:b"},
		"CRLF":                           {"a\r\nb\r\n", "1:a 2:b"},
		"white space around":             {" \ta \t\r\n", "1:a"},
		"white space within":             {"a b\rc\n", "1:a b\rc"},
		"only the line feed ends a line": {"a\vb\f\u0085\n\u2028c\n", "1:a\vb\f\u0085 2:\u2028c"},
		"exactly the limit":              {fits + "\nb\n" + fits, "1:" + fits + " 2:b 3:" + fits},
		"over the limit":                 {over + "\nb\n" + over, "1:too long 2:b 3:too long"},
		"the limit counts white space":   {fits + "\r\nb\n " + fits, "1:too long 2:b 3:too long"},
		"too much white space":           {strings.Repeat(" ", limit+1) + "\nb", "1:too long 2:b"},
		"longer than the buffer":         {huge + "\nb\n" + huge + huge, "1:too long 2:b 3:too long"},
	} {
		for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in)), iotest.DataErrReader(strings.NewReader(tt.in))} {
			lines, err := readLines(r, limit)
			if got := strings.Join(lines, " "); got != tt.want || err != io.EOF {
				t.Errorf("%s: got %.80q, %v; want %.80q", name, got, err, tt.want)
			}
		}
	}
}

func TestLineMayBeLongerThanTheBuffer(t *testing.T) {
	line := strings.Repeat("x", 1<<20)
	lines, err := readLines(strings.NewReader("a\n"+line+"\n"+line), len(line))
	if err != io.EOF || len(lines) != 3 || lines[1] != "2:"+line || lines[2] != "3:"+line {
		t.Errorf("got %d lines, %v", len(lines), err)
	}
}

// A line that was cut off must not be mistaken for a complete one.
func TestReadErrorEndsTheLines(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{"", "a\nb\n", "a\nb\ncut", "a\nb\n" + strings.Repeat("x", 100)} {
		in := wire.NewLineReader(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)), 10)
		for want := range strings.FieldsSeq("a b") {
			if text == "" {
				break
			}
			if line, err := in.Next(); err != nil || line.String() != want {
				t.Fatalf("%.20q: got %v, %v; want %s", text, line, err, want)
			}
		}
		for range 2 {
			if line, err := in.Next(); line != nil || err != broken {
				t.Errorf("%.20q: got %v, %v; want nil, %v", text, line, err, broken)
			}
		}
	}
}

func TestLinesAreWhatStringsSplitFinds(t *testing.T) {
	const limit = 5
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab \t\r\n"))).Draw(t, "text")
		var want []string
		for i, line := range strings.Split(text, "\n") {
			trimmed := strings.Trim(line, " \t\r")
			switch {
			case len(line) > limit:
				want = append(want, fmt.Sprintf("%d:too long", i+1))
			case trimmed != "":
				want = append(want, fmt.Sprintf("%d:%s", i+1, trimmed))
			}
		}
		got, err := readLines(strings.NewReader(text), limit)
		if err != io.EOF || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
	})
}
