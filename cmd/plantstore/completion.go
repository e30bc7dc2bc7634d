package main

import (
	"embed"
	"fmt"

	"github.com/alecthomas/kong"

	"plantstore/internal/cli"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"bash, zsh or fish."`
}

func (completionCommand) Help() string {
	return `Load it in your shell's startup file:
  bash: source <(plantstore completion bash)
  zsh:  source <(plantstore completion zsh)
  fish: plantstore completion fish | source`
}

// Run prints the script, which asks the hidden command complete.
func (c *completionCommand) Run(std streams) error {
	script, err := completionScripts.ReadFile("completion/plantstore." + c.Shell)
	if err != nil {
		return err
	}
	_, err = std.out.Write(script)
	return err
}

// completionScripts pass the words up to the cursor to complete. bash replaces only what
// follows the last : or = of a word.
//
//go:embed completion
var completionScripts embed.FS

type completeCommand struct {
	Words []string `arg:"" optional:""`
}

func (c *completeCommand) Run(app *kong.Kong, std streams) error {
	for _, candidate := range cli.Complete(app.Model.Node, c.Words) {
		if _, err := fmt.Fprintln(std.out, candidate); err != nil {
			return err
		}
	}
	return nil
}
