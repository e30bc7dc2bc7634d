// Package history reads the log of changes of a server up to now, and restores earlier versions of
// plants.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"plantstore"
	"plantstore/client"
)

// Events yields the events up to now. The query's limit is that of a page, or 0.
func Events(ctx context.Context, api *client.Client, q plantstore.EventQuery) iter.Seq2[plantstore.Event, error] {
	q.Limit = cmp.Or(q.Limit, 1000)
	return func(yield func(plantstore.Event, error) bool) {
		for more := true; more; {
			page, err := api.EventPage(ctx, q)
			if err != nil {
				yield(plantstore.Event{}, err)
				return
			}
			for _, e := range page.Events {
				if !yield(e, nil) {
					return
				}
			}
			q.After, q.Before, more = page.Next, page.Next, page.More
		}
	}
}

// Of yields the events of a plant up to now, with their versions, the newest first.
func Of(ctx context.Context, api *client.Client, q plantstore.EventQuery) iter.Seq2[plantstore.Event, error] {
	q.Newest, q.Details = true, true
	return Events(ctx, api, q)
}

// Undelete creates a plant again as it was before its last deletion. It fails with ErrIDTaken if
// the plant exists, and with ErrNoPlant if the log has no deletion of it.
func Undelete(ctx context.Context, api *client.Client, id plantstore.ID) (plantstore.Plant, error) {
	exists := plantstore.Errorf(plantstore.ErrIDTaken, "plant %d exists", id)
	if _, err := api.Get(ctx, id); !errors.Is(err, plantstore.ErrNoPlant) {
		if err == nil {
			err = exists
		}
		return plantstore.Plant{}, err
	}
	deletions := plantstore.EventQuery{ID: &id, Types: []plantstore.EventType{plantstore.PlantDeleted}, Limit: 1}
	for deletion, err := range Of(ctx, api, deletions) {
		if err != nil {
			return plantstore.Plant{}, err
		}
		err = api.Replace(ctx, deletion.Plant, &plantstore.Condition{NoneMatch: []plantstore.ETag{plantstore.AnyETag}})
		if errors.Is(err, plantstore.ErrPrecondition) {
			err = exists
		}
		return deletion.Plant, err
	}
	return plantstore.Plant{}, plantstore.Errorf(plantstore.ErrNoPlant, "the log of changes has no deletion of plant %d: there never was one, or its deletion is no longer kept", id)
}

// Earlier returns a plant as it was in a version.
func Earlier(ctx context.Context, api *client.Client, id plantstore.ID, version plantstore.Version) (plantstore.Plant, error) {
	for event, err := range Of(ctx, api, plantstore.EventQuery{ID: &id}) {
		switch {
		case err != nil:
			return plantstore.Plant{}, err
		case event.Version == version && event.Type == plantstore.PlantDeleted:
			return plantstore.Plant{}, fmt.Errorf("version %s is a deletion of plant %d: choose another, or use plantstore delete", version, id)
		case event.Version == version:
			return event.Plant, nil
		}
		if event.Version.Time < version.Time {
			break
		}
	}
	return plantstore.Plant{}, fmt.Errorf("the log of changes has no version %s of plant %d: see plantstore history %[2]d", version, id)
}
