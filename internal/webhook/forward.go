package webhook

import (
	"context"
	"iter"
	"net/http"
	"time"

	"plantstore"
	"plantstore/internal/backoff"
	"plantstore/internal/wire"
)

// Forwarder sends events to one receiver, signed as a webhook signs them.
type Forwarder struct {
	URL, Secret string
	// Report is called after every attempt, with how long the next one waits: 0 if the event
	// was accepted.
	Report func(e plantstore.Event, attempt plantstore.Delivery, wait time.Duration) error
}

// Forward sends events until they or ctx end. One that is not accepted is sent again until it
// is, and the later ones wait.
func (f Forwarder) Forward(ctx context.Context, events iter.Seq2[plantstore.Event, error]) error {
	receiver := &http.Client{
		Transport:     &http.Transport{}, // without a proxy
		Timeout:       15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	defer receiver.CloseIdleConnections()
	for e, err := range events {
		if err == nil {
			err = f.deliver(ctx, receiver, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deliver sends an event until it is accepted.
func (f Forwarder) deliver(ctx context.Context, receiver *http.Client, e plantstore.Event) error {
	body, err := wire.EncodeMessage(e)
	if err != nil {
		return err
	}
	for delays := (backoff.Exponential{Min: time.Second, Max: 30 * time.Second}); ; {
		attempt := Send(ctx, receiver, f.URL, []string{f.Secret}, MessageID(e.Cursor), e.Type, body)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if attempt.Status/100 == 2 {
			return f.Report(e, attempt, 0)
		}
		wait := delays.Next()
		if err := f.Report(e, attempt, wait); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
