// Command plantstore serves a store of plants, and is a client of one.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/alecthomas/kong"

	"plantstore/internal/cli"
)

// The exit codes. exitUsage is for an invalid command line.
const (
	exitOK = iota
	exitFailure
	exitUsage
	// exitInterrupted is 128 plus the number of SIGINT, as in shells.
	exitInterrupted = 130
)

type commands struct {
	Serve serveCommand `cmd:"" help:"Serve the store over HTTP."`
	Token tokenCommand `cmd:"" help:"Create, list and revoke the tokens that clients need."`

	Login  loginCommand  `cmd:"" help:"Save a token for a server."`
	Logout logoutCommand `cmd:"" help:"Remove the saved token of a server."`

	Create createCommand `cmd:"" help:"Create a plant."`
	Get    getCommand    `cmd:"" help:"Show a plant."`
	List   listCommand   `cmd:"" help:"List plants."`
	Tags   tagsCommand   `cmd:"" help:"List tags and the number of plants with each."`
	Put    putCommand    `cmd:"" help:"Create or replace a plant."`
	Patch  patchCommand  `cmd:"" help:"Change the name or the tag of a plant."`
	Delete deleteCommand `cmd:"" help:"Delete a plant, or all that match."`

	History  historyCommand  `cmd:"" help:"Show the versions of a plant."`
	Undelete undeleteCommand `cmd:"" help:"Create deleted plants again."`
	Revert   revertCommand   `cmd:"" help:"Replace a plant by an earlier version."`

	Import importCommand `cmd:"" help:"Create plants from a file."`
	Export exportCommand `cmd:"" help:"Write all plants to a file."`
	Events eventsCommand `cmd:"" help:"Show changes, and follow them."`
	Mirror mirrorCommand `cmd:"" help:"Copy one store to another, and keep the copy exact."`

	Webhook webhookCommand `cmd:"" help:"Create and manage webhooks, to which changes are sent."`

	Backup  backupCommand  `cmd:"" help:"Copy the store to a file, even while it is in use."`
	Restore restoreCommand `cmd:"" help:"Replace the store with a copy."`
	Check   checkCommand   `cmd:"" help:"Check the store for damage."`

	Healthcheck healthcheckCommand `cmd:"" help:"Check whether the server on this machine is ready."`
	Completion  completionCommand  `cmd:"" help:"Print a completion script for a shell."`
	Complete    completeCommand    `cmd:"" hidden:"" help:"Print completions for the last word."`
	Manual      manualCommand      `cmd:"" hidden:"" help:"Print the manual page."`
	Version     versionCommand     `cmd:"" help:"Print the version, like --version."`
}

const description = `Plantstore keeps a store of plants behind the Plant Store interface.

Start it:
  plantstore serve

It prints a first token and a curl command to try. A flag can also be set by the environment variable shown after it, if any.`

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal shuts down gracefully, the second ends the process immediately.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// run runs the command line and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	var cmd commands
	exited := -1
	parser := kong.Must(&cmd, append(cli.Mappers,
		kong.Name("plantstore"),
		kong.Description(description),
		kong.Writers(std.out, std.err),
		kong.Exit(func(code int) { exited = code }),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(std),
		kong.BindToProvider(clientOf),
	)...)
	args = spellOut(args)
	if args[0] != "serve" { // serve logs them
		for _, warning := range cli.UnknownVariables(parser.Model.Node, os.Environ(), flaglessVariables...) {
			fmt.Fprintln(std.err, "plantstore: warning:", warning)
		}
	}
	args, err := cli.Prepare(parser.Model.Node, args)
	if err != nil {
		fmt.Fprintln(std.err, "plantstore:", err)
		return exitUsage
	}
	line, err := parser.Parse(args)
	if exited >= 0 { // --help has been printed
		return exited
	}
	if err != nil {
		fmt.Fprintln(std.err, "plantstore:", cli.Explain(err))
		return exitUsage
	}
	err = line.Run()
	code := exitFailure
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, cli.ErrUsage):
		code = exitUsage
	// The error of a store need not say so: it is about a statement. serve ends without one.
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || args[0] != "serve"):
		code = exitInterrupted
		if _, ok := errors.AsType[interrupted](err); !ok {
			err = interrupted(line.Selected().Path() + " was interrupted")
		}
	}
	fmt.Fprintln(std.err, "plantstore:", err)
	return code
}

// interrupted says which command was interrupted, and what is not known.
type interrupted string

func (i interrupted) Error() string { return string(i) }

// spellOut turns what people type by habit into the commands that are meant.
func spellOut(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "--version":
		return []string{"version"}
	}
	return args
}

// wrap adds what failed to err, and returns nil for nil.
func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

func usage(format string, args ...any) error { return cli.Usagef(format, args...) }
