package main

import (
	"context"
	"errors"
	"fmt"

	"plantstore/internal/cli"
	"plantstore/internal/mirror"
)

type mirrorCommand struct {
	From   string `required:"" placeholder:"URL" help:"The base URL of the server to copy from."`
	To     string `required:"" placeholder:"URL" help:"The base URL of the server to copy to."`
	Follow bool   `help:"Keep the copy exact until interrupted."`
	State  string `placeholder:"FILE" help:"Record progress in this file, and resume from it."`
	Verify bool   `help:"Compare both stores at the end. Nothing may write to them at that point."`
}

// The variables with the tokens of the two servers.
const (
	fromTokenEnv = "PLANTSTORE_FROM_TOKEN"
	toTokenEnv   = "PLANTSTORE_TO_TOKEN"
)

func (mirrorCommand) Help() string {
	return `Makes the plants of one store exactly those of another: creates, replaces and deletes whatever differs, and then applies the changes made in the meantime. With --follow it keeps applying new changes. It can be killed and run again at any time: with --state it resumes where it left off, and otherwise it compares the stores again. Nothing else may write to the copy.

The tokens are read from the environment variables PLANTSTORE_FROM_TOKEN (scopes plants:read and events:read) and PLANTSTORE_TO_TOKEN (plants:read and plants:write), or both from PLANTSTORE_TOKEN. Without them, the command uses the tokens that plantstore login saved.

Examples:
  plantstore mirror --from http://old:8080 --to http://new:8080 --follow --state mirror.json
  plantstore mirror --from http://old:8080 --to http://new:8080 --state mirror.json --verify`
}

func (c *mirrorCommand) Run(ctx context.Context, std streams) error {
	if c.Verify && c.Follow {
		return usage("--verify compares the stores at the end: run it without --follow, once nothing is writing")
	}
	if cli.ServerKey(c.From) == cli.ServerKey(c.To) {
		return usage("--from and --to are the same server")
	}
	from, err := newClient(std, c.From, fileTimeout, fromTokenEnv, tokenEnv)
	if err != nil {
		return err
	}
	to, err := newClient(std, c.To, fileTimeout, toTokenEnv, tokenEnv)
	if err != nil {
		return err
	}
	file := mirror.StateFile{Name: c.State, From: c.From, To: c.To}
	state, err := file.Load()
	if err != nil {
		return err
	}
	m := &mirror.Mirror{
		From:   mirror.Server{Name: "source " + c.From, Client: from},
		To:     mirror.Server{Name: "target " + c.To, Client: to},
		Follow: c.Follow,
		State:  state,
		Save:   file.Save,
		Say:    std.say,
		Progress: func(verb, noun string) (update func(int64), finish func()) {
			shown := newProgress(std.err, verb, noun, -1, false)
			return shown.items, shown.finish
		},
	}
	err = m.Run(ctx)
	if errors.Is(err, mirror.ErrSameStore) {
		return usage("--from and --to have the same store")
	}
	if err != nil || !c.Verify {
		return err
	}
	return c.verify(ctx, m, std)
}

func (c *mirrorCommand) verify(ctx context.Context, m *mirror.Mirror, std streams) error {
	compared, different, err := m.Verify(ctx)
	if err != nil {
		return err
	}
	if different > 0 {
		err := fmt.Errorf("%d of %d plants differ: is something writing to one of the stores?", different, compared)
		if c.State != "" {
			err = fmt.Errorf("%w If not, delete %s and run the command again: it then compares and repairs every plant", err, c.State)
		}
		return err
	}
	std.say("both stores have the same " + cli.Count(compared, "plant"))
	return nil
}
