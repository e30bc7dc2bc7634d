package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" placeholder:"SHELL" help:"bash, zsh or fish."`
}

// Help is the long part of the help page.
func (completionCommand) Help() string {
	return `Load it in your shell's startup file:
  bash: source <(plantstore completion bash)
  zsh:  source <(plantstore completion zsh)
  fish: plantstore completion fish | source`
}

// Run prints the script, generated from the commands and flags.
func (c *completionCommand) Run(app *kong.Kong, std streams) error {
	if c.Shell == "fish" {
		return fishCompletion(std.out, app.Model.Node)
	}
	return bashCompletion(std.out, app.Model.Node, c.Shell == "zsh")
}

// bashCompletion writes a function that looks up the words typed so far in a table.
// zsh can run it too.
func bashCompletion(out io.Writer, root *kong.Node, zsh bool) error {
	var b strings.Builder
	if zsh {
		b.WriteString("autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n")
	}
	b.WriteString(`_plantstore() {
  local path="" word i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${COMP_WORDS[i]}"
    [[ "$word" == -* ]] || path="$path $word"
  done
  local words=""
  case "$path" in
`)
	walkCommands(root, nil, func(path []string, n *kong.Node) {
		var words []string
		for _, child := range n.Children {
			words = append(words, child.Name)
		}
		for _, f := range n.Flags {
			words = append(words, "--"+f.Name)
		}
		pattern := strings.Join(path, " ")
		if len(path) > 0 {
			pattern = " " + pattern
		}
		star := ""
		if len(n.Children) == 0 {
			star = "*" // its arguments may have been typed already
		}
		fmt.Fprintf(&b, "    %q%s) words=%q ;;\n", pattern, star, strings.Join(words, " "))
	})
	b.WriteString(`  esac
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _plantstore plantstore
`)
	_, err := io.WriteString(out, b.String())
	return err
}

func fishCompletion(out io.Writer, root *kong.Node) error {
	var b strings.Builder
	walkCommands(root, nil, func(path []string, n *kong.Node) {
		condition := "__fish_use_subcommand"
		if len(path) > 0 {
			condition = "__fish_seen_subcommand_from " + path[len(path)-1]
		}
		for _, child := range n.Children {
			fmt.Fprintf(&b, "complete -c plantstore -f -n %q -a %s -d %q\n", condition, child.Name, child.Help)
		}
		for _, f := range n.Flags {
			fmt.Fprintf(&b, "complete -c plantstore -n %q -l %s -d %q\n", condition, f.Name, f.Help)
		}
	})
	_, err := io.WriteString(out, b.String())
	return err
}

func walkCommands(n *kong.Node, path []string, visit func(path []string, n *kong.Node)) {
	visit(path, n)
	for _, child := range n.Children {
		if child.Type == kong.CommandNode {
			walkCommands(child, append(path[:len(path):len(path)], child.Name), visit)
		}
	}
}
