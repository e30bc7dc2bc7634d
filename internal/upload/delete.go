package upload

import (
	"context"
	"fmt"
	"io"

	"plantstore"
	"plantstore/client"
	"plantstore/internal/plantfile"
)

// Seen is the version of a plant that was found.
type Seen struct {
	ID      plantstore.ID
	Version plantstore.Version
}

// Find returns the plants that match a query, without what their deletion does not need. It calls
// progress now and then with how many they are.
func Find(ctx context.Context, api *client.Client, query plantstore.Query, progress func(plants int64)) (found []Seen, err error) {
	query.Details = true
	for plant, err := range api.Export(ctx, query) {
		if err != nil {
			return nil, err
		}
		found = append(found, Seen{plant.ID, plant.Version})
		if len(found)%10_000 == 0 {
			progress(int64(len(found)))
		}
	}
	return found, nil
}

// Deletion returns an upload that deletes each of the plants, if it still has that version.
func Deletion(api *client.Client, plants []Seen) (*Upload, error) {
	u, err := New(api, &deletions{plants: plants}, plantfile.NDJSON, plantfile.Options{MaxRecord: 1 << 10, OnlyID: true})
	if err == nil {
		u.Mode = plantstore.ImportDelete
	}
	return u, err
}

// deletions reads plants as lines of an import.
type deletions struct {
	plants []Seen
	line   []byte
}

func (d *deletions) Read(b []byte) (int, error) {
	if len(d.line) == 0 {
		if len(d.plants) == 0 {
			return 0, io.EOF
		}
		d.line = fmt.Appendf(d.line, `{"id":%d,"if_version":"%s"}`+"\n", d.plants[0].ID, d.plants[0].Version)
		d.plants = d.plants[1:]
	}
	n := copy(b, d.line)
	d.line = d.line[n:]
	return n, nil
}
