package crash

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"plantstore"
	"plantstore/client"
	"plantstore/e2e/harness"
)

// importSize is how many plants an importer imports at a time. Each counts as a page,
// and a checkpoint is due after 4096.
const importSize = 4200

// importer is a writer of a workload that imports so much that a checkpoint is due.
type importer struct {
	*harness.Writer
	seed uint64
	wg   sync.WaitGroup
}

// newImporter adds an importer to a workload that has not stopped.
func newImporter(w *harness.Workload, c *client.Client) *importer {
	return &importer{Writer: w.AddWriter(c), seed: w.Seed}
}

// start begins another import after the last one has ended.
func (i *importer) start() {
	i.wg.Wait()
	i.wg.Go(func() {
		if err := i.run(); err != nil {
			i.Errs = append(i.Errs, err)
		}
	})
}

// wait waits until the import has ended.
func (i *importer) wait() { i.wg.Wait() }

// run imports plants. If that fails, each of them may exist or not.
func (i *importer) run() error {
	lines, from := new(strings.Builder), len(i.Records)
	for n := range importSize {
		plant := plantstore.Plant{ID: i.First + plantstore.ID(from+n), Name: fmt.Sprintf("%x imported", i.seed)}
		i.Records = append(i.Records, harness.Record{Unacked: &plantstore.Write{Op: plantstore.Create, Plant: plant}})
		fmt.Fprintf(lines, "{\"id\":%d,\"name\":%q}\n", plant.ID, plant.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	report, err := i.Client.ImportLines(ctx, strings.NewReader(lines.String()))
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if report.Failed > 0 {
		return fmt.Errorf("import: %d lines were refused: %v", report.Failed, report.Errors)
	}
	for n := range importSize {
		i.Records[from+n] = harness.Record{Acked: &i.Records[from+n].Unacked.Plant}
	}
	i.Ack(importSize)
	return nil
}
