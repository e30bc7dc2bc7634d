package server

import (
	"context"
	"errors"
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

func (s *Server) createWebhook(c *call) error {
	body, err := readJSON(c, wire.DecodeNewWebhook)
	if err != nil {
		return err
	}
	body.Config.By = c.caller.Public
	hook, secret, err := s.Webhooks.Create(c.r.Context(), body.Config, body.After, c.caller.Actor())
	if errors.Is(err, plantstore.ErrTooMany) {
		return plantstore.Errorf(plantstore.ErrTooMany, "there are %d webhooks already, the maximum: delete one first", plantstore.MaxWebhooks)
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", s.baseURL+"/webhooks/"+hook.ID)
	return writeNoStore(c, http.StatusCreated, wire.EncodeWebhook(hook, secret))
}

func (s *Server) listWebhooks(c *call) error {
	hooks, err := inTurn(c, reads, accessUnits, s.Webhooks.List)
	if err != nil {
		return err
	}
	return writeUncachedList(c, wire.EncodeWebhooks(hooks))
}

func (s *Server) getWebhook(c *call) error {
	return writeWebhook(c, func(_ context.Context, id string) (plantstore.Webhook, error) {
		return inTurn(c, reads, accessUnits, func(ctx context.Context) (plantstore.Webhook, error) { return s.Webhooks.Webhook(ctx, id) })
	})
}

func (s *Server) replaceWebhook(c *call) error {
	config, err := readJSON(c, wire.DecodeWebhookConfig)
	if err != nil {
		return err
	}
	return writeWebhook(c, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.Webhooks.Replace(ctx, id, config, c.caller.Actor())
	})
}

func (s *Server) deleteWebhook(c *call) error {
	if err := s.Webhooks.Delete(c.r.Context(), c.target, c.caller.Actor()); err != nil {
		return withWebhookID(c, err)
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) rotateWebhook(c *call) error {
	if err := s.checkCaller(c); err != nil {
		return err
	}
	var secret string
	hook, err := inTurn(c, reads, accessUnits, func(ctx context.Context) (hook plantstore.Webhook, err error) {
		hook, secret, err = s.Webhooks.Rotate(ctx, c.target, c.caller.Actor())
		return hook, err
	})
	if err != nil {
		return withWebhookID(c, err)
	}
	return writeNoStore(c, http.StatusOK, wire.EncodeWebhook(hook, secret))
}

func (s *Server) testWebhook(c *call) error {
	if err := s.checkCaller(c); err != nil {
		return err
	}
	release, err := c.take(streams, testUnits, streamsSize)
	if err != nil {
		return err
	}
	defer release()
	attempt, err := s.Webhooks.Test(c.r.Context(), c.target)
	if err != nil {
		return withWebhookID(c, err)
	}
	return writeUncached(c, wire.EncodeDelivery(attempt))
}

func (s *Server) pauseWebhook(c *call) error {
	return writeWebhook(c, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.Webhooks.Pause(ctx, id, c.caller.Actor())
	})
}

func (s *Server) retryWebhook(c *call) error {
	return writeWebhook(c, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.Webhooks.Retry(ctx, id, c.caller.Actor())
	})
}

func (s *Server) resumeWebhook(c *call) error {
	return writeWebhook(c, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.Webhooks.Resume(ctx, id, c.caller.Actor())
	})
}

func (s *Server) replayWebhook(c *call) error {
	body, err := readJSON(c, wire.DecodeReplay)
	if err != nil {
		return err
	}
	return writeWebhook(c, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.Webhooks.Replay(ctx, id, body.After, body.Since, c.caller.Actor())
	})
}

func (s *Server) listDeliveries(c *call) error {
	attempts, err := s.Store.Deliveries(c.r.Context(), c.target)
	if err != nil {
		return withWebhookID(c, err)
	}
	return writeUncachedList(c, wire.EncodeDeliveries(attempts))
}

// writeWebhook responds with the webhook in the path as the call returns it.
func writeWebhook(c *call, do func(ctx context.Context, id string) (plantstore.Webhook, error)) error {
	hook, err := do(c.r.Context(), c.target)
	if err != nil {
		return withWebhookID(c, err)
	}
	return writeUncached(c, wire.EncodeWebhook(hook, ""))
}

// withWebhookID says which webhook an error is about.
func withWebhookID(c *call, err error) error {
	if errors.Is(err, plantstore.ErrNoWebhook) {
		return plantstore.Errorf(plantstore.ErrNoWebhook, "there is no webhook %q", plantstore.Shorten(c.target))
	}
	return err
}
