package cli

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Manual returns the manual page of a command line, from its commands and flags.
func Manual(app *kong.Node, version, description string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH PLANTSTORE 1 \"\" \"plantstore %s\"\n.SH NAME\nplantstore \\- a store of plants behind an HTTP API\n", version)
	b.WriteString(".SH SYNOPSIS\n.B plantstore\n.I command\n[\\fIflags\\fR]\n.SH DESCRIPTION\n")
	writeRoff(&b, description)
	b.WriteString(".SH COMMANDS\n")
	for _, n := range app.Leaves(true) {
		fmt.Fprintf(&b, ".SS %s\n", roff(strings.Join(append([]string{n.FullPath()}, arguments(n)...), " ")))
		writeRoff(&b, n.Help+"\n\n"+n.Detail)
		for _, f := range n.Flags {
			name := "--" + f.Name
			if !f.IsBool() {
				name += "=" + f.FormatPlaceHolder()
			}
			fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n", roff(name))
			help := f.Help
			if len(f.Envs) > 0 {
				help += " Environment variable: " + f.Envs[0] + "."
			}
			b.WriteString(roff(help) + "\n")
		}
	}
	b.WriteString(".SH EXIT STATUS\n0 on success, 1 on failure, 2 if the command line or the configuration is invalid, 130 if interrupted.\n")
	return b.String()
}

func arguments(n *kong.Node) (names []string) {
	for _, p := range n.Positional {
		names = append(names, strings.ToUpper(p.Name))
	}
	return names
}

// writeRoff writes paragraphs. Lines that are indented stay as they are.
func writeRoff(b *strings.Builder, text string) {
	verbatim := false
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		if isExample := strings.HasPrefix(line, "  "); isExample != verbatim {
			verbatim = isExample
			b.WriteString(map[bool]string{true: ".nf\n", false: ".fi\n"}[verbatim])
		}
		if line == "" {
			line = ".PP"
		} else {
			line = roff(line)
		}
		b.WriteString(line + "\n")
	}
	if verbatim {
		b.WriteString(".fi\n")
	}
}

// roff escapes text for the manual page.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}
