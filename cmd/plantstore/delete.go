package main

import (
	"context"
	"errors"
	"fmt"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/match"
	"plantstore/internal/upload"
)

type deleteCommand struct {
	clientFlags
	ID *plantstore.ID `arg:"" optional:"" placeholder:"ID" help:"The plant's id."`
	conditionFlags
	searchFlags
	Yes    bool `help:"With a filter: do not ask."`
	DryRun bool `help:"With a filter: delete nothing, and say how many plants would be deleted."`
}

func (deleteCommand) Help() string {
	return `Deletes one plant, or with a filter (--tag, --tag-prefix, --untagged, --q) all plants that match, after it has said how many they are and asked. A plant that somebody changes in the meantime is left alone, and the exit code is then 1. Without a terminal to ask on, it needs --yes; otherwise it deletes nothing and exits with 2. ` + tokenHelp + `

Examples:
  plantstore delete 1
  plantstore delete --tag tropical
  plantstore delete --q 'deliciosa monst' --dry-run`
}

func (c *deleteCommand) Run(ctx context.Context, std streams) error {
	query := c.query()
	search := query.ByTag() || match.Words(c.Contains) > 0
	switch {
	case c.ID == nil && !search:
		return usage("give the id of a plant, or --tag, --tag-prefix, --untagged or --q to delete all that match")
	case c.ID != nil && (query.ByTag() || c.Contains != "" || c.Yes || c.DryRun):
		return usage("an id cannot be combined with --tag, --tag-prefix, --untagged, --q, --yes or --dry-run")
	case c.ID == nil && c.IfMatch != nil:
		return usage("--if-match needs the id of a plant")
	case search && !c.Yes && !c.DryRun && !cli.IsTerminal(std.in):
		return usage("nothing was deleted: there is no terminal to ask on; use --yes, or --dry-run to see how many plants match")
	}
	timeout := callTimeout
	if search {
		timeout = fileTimeout
	}
	api, err := c.client(std, timeout)
	if err != nil {
		return err
	}
	if search {
		return c.deleteMatches(ctx, api, std)
	}
	if err := api.Delete(ctx, *c.ID, c.condition()); err != nil {
		return err
	}
	std.say(fmt.Sprintf("Plant %d is deleted.", *c.ID))
	return nil
}

func (c *deleteCommand) deleteMatches(ctx context.Context, api *client.Client, std streams) error {
	progress := newProgress(std.err, "found", "plant", -1, false)
	found, err := upload.Find(ctx, api, c.query(), progress.items)
	progress.finish()
	if err != nil {
		return err
	}
	number := cli.Count(int64(len(found)), "plant")
	if len(found) == 0 {
		std.say("No plant matches.")
		return nil
	}
	if c.DryRun {
		std.say(number + " would be deleted.")
		return nil
	}
	if !c.Yes {
		agreed, err := cli.Confirm(ctx, std.in, std.err, "Delete "+number+"?")
		if err != nil {
			return err
		}
		if !agreed {
			return errors.New("nothing was deleted")
		}
	}
	file, err := upload.Deletion(api, found)
	if err != nil {
		return err
	}
	progress = newProgress(std.err, "acknowledged", "plant", int64(len(found)), false)
	file.Progress = func(_, plants int64) { progress.items(plants) }
	err = file.Run(ctx)
	progress.finish()
	std.say(cli.Count(file.Deleted, "plant") + " deleted " + progress.pace(file.Deleted))
	switch {
	case err != nil:
		return stoppedDeletion(ctx, file, err)
	case file.Refused > 0: // their versions no longer hold, and nothing else can be wrong with these lines
		return fmt.Errorf("left alone: %s changed or deleted in the meantime", cli.Count(file.Refused, "plant"))
	}
	return nil
}

// stoppedDeletion says why a deletion is not complete, and what is not known.
func stoppedDeletion(ctx context.Context, file *upload.Upload, err error) error {
	if file.IsRefused() {
		return err
	}
	message := "the deletion was interrupted"
	if from, to, ok := file.Unknown(); ok {
		message += fmt.Sprintf(", and up to %d more plants may be deleted", to-from+1)
	}
	message += "; run it again to delete the rest"
	if ctx.Err() != nil {
		return interrupted(message)
	}
	return fmt.Errorf("%s: %w", message, err)
}
