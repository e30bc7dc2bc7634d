package main

import (
	"io"

	"github.com/alecthomas/kong"

	"plantstore/internal/cli"
)

type manualCommand struct{}

// Run prints the manual page.
func (manualCommand) Run(app *kong.Kong, std streams) error {
	_, err := io.WriteString(std.out, cli.Manual(app.Model.Node, version, description))
	return err
}
