package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/cli"
	"plantstore/internal/history"
	"plantstore/internal/wire"
)

type historyCommand struct {
	clientFlags
	ID    plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	Limit int           `default:"50" min:"0" placeholder:"N" help:"The maximum number of versions to list; 0 for all (${default})."`
	outputFlags
}

func (historyCommand) Help() string {
	return `Prints the changes to a plant, newest first, as far as the log of changes goes back: a table on a terminal, and a JSON array elsewhere. Each version shows its name and tag; a deletion shows those of the plant before it. The token needs the scope events:read. ` + tokenHelp + `

Examples:
  plantstore history 1
  plantstore history 1 --limit 0 | jq '.[].plant.name'`
}

func (c *historyCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	versions := history.Of(ctx, api, plantstore.EventQuery{ID: &c.ID, Limit: pageSize(c.Limit)})
	oldest, more, err := versionRows.print(ctx, c.outputFlags, std.out, versions, c.Limit)
	switch {
	case err != nil:
		return err
	case more:
		std.say("There are older versions: use --limit 0 to list all.")
	case oldest.Type == "":
		std.say(fmt.Sprintf("The log of changes has nothing about plant %d: there never was one, or its last change is no longer kept.", c.ID))
	case oldest.Type != plantstore.PlantCreated:
		std.say("Older versions are no longer kept.")
	}
	return nil
}

var versionRows = rows[plantstore.Event]{"TIME\tVERSION\tTYPE\tNAME\tTAG\tBY\n", versionRow, wire.AppendDetailedEvent}

func versionRow(e plantstore.Event) string {
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\n", e.Time.Local().Format(time.DateTime), e.Version, printable(string(e.Type)),
		printable(plantstore.Shorten(e.Plant.Name)), shortTag(e.Plant.Tag), printable(e.By))
}

type undeleteCommand struct {
	clientFlags
	ID []plantstore.ID `arg:"" placeholder:"ID" help:"The ids of the plants."`
	outputFlags
}

func (undeleteCommand) Help() string {
	return `Creates each plant again as it was before its last deletion, which the log of changes must still have. It never changes a plant that exists. A plant that fails does not stop the rest; the exit code is 1 if any failed. Prints a table of the plants on a terminal, and a JSON array elsewhere. The token needs the scopes plants:read, plants:write and events:read. ` + tokenHelp + `

Examples:
  plantstore undelete 1
  plantstore undelete 4 5 6`
}

func (c *undeleteCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	failed := 0
	undeleted := func(yield func(plantstore.StoredPlant, error) bool) {
		for _, id := range c.ID {
			plant, err := history.Undelete(ctx, api, id)
			if errors.Is(err, plantstore.ErrIDTaken) || errors.Is(err, plantstore.ErrNoPlant) {
				std.say(err.Error())
				failed++
			} else if !yield(plantstore.StoredPlant{Plant: plant}, err) {
				return
			}
		}
	}
	_, _, err := plantRows.print(ctx, c.outputFlags, std.out, undeleted, 0)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %s failed", failed, cli.Count(int64(len(c.ID)), "plant"))
	}
	return err
}

type revertCommand struct {
	clientFlags
	ID plantstore.ID `arg:"" placeholder:"ID" help:"The plant's id."`
	To string        `required:"" placeholder:"VERSION" help:"The version to go back to: see plantstore history."`
	outputFlags
}

func (revertCommand) Help() string {
	return `Replaces a plant by an earlier version of itself, unless someone else changes it at the same time. That makes a new version, so it can be reverted, too. The token needs the scopes plants:read, plants:write and events:read. ` + tokenHelp + `

Example:
  plantstore revert 1 --to 00hy3k9d2c7af1`
}

func (c *revertCommand) Run(ctx context.Context, api *client.Client, std streams) error {
	to, err := plantstore.ParseVersion(c.To)
	if err != nil {
		return usage("--to must be a version of the plant, got %q: see plantstore history %d", c.To, c.ID)
	}
	current, err := api.Get(ctx, c.ID)
	if errors.Is(err, plantstore.ErrNoPlant) {
		return fmt.Errorf("%w: if it was deleted, use plantstore undelete %d", err, c.ID)
	}
	if err != nil {
		return err
	}
	plant, err := history.Earlier(ctx, api, c.ID, to)
	if err != nil {
		return err
	}
	err = api.Replace(ctx, plant, &plantstore.Condition{Match: []plantstore.ETag{current.ETag()}})
	if _, unknown := errors.AsType[*client.OutcomeError](err); !unknown && errors.Is(err, plantstore.ErrPrecondition) {
		return c.lost(ctx, api, err)
	}
	if err != nil {
		return err
	}
	return plantRows.printOne(c.outputFlags, std.out, plantstore.StoredPlant{Plant: plant})
}

// lost says who has changed the plant in the meantime.
func (c *revertCommand) lost(ctx context.Context, api *client.Client, refused error) error {
	for event, err := range history.Of(ctx, api, plantstore.EventQuery{ID: &c.ID, Limit: 1}) {
		if err != nil {
			return errors.Join(refused, err)
		}
		return fmt.Errorf("plant %d was changed in the meantime, and not reverted: %s by %s, see plantstore history %[1]d", c.ID, event.Type, printable(event.By))
	}
	return refused
}
