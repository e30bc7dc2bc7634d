package server

import (
	"context"
	"errors"
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

// maxWebhookTests is how many tests may wait for a response at a time.
const maxWebhookTests = 16

func (s *Server) createWebhook(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(s, w, r, wire.DecodeNewWebhook)
	if err != nil {
		return err
	}
	body.Config.By = by(w)
	hook, secret, err := s.webhooks.Create(r.Context(), body.Config, body.After, actor(w))
	if errors.Is(err, plantstore.ErrTooMany) {
		return plantstore.Errorf(plantstore.ErrTooMany, "there are %d webhooks already, the maximum: delete one first", plantstore.MaxWebhooks)
	}
	if err != nil {
		return err
	}
	w.Header().Set("Location", s.baseURL+"/webhooks/"+hook.ID)
	return writeSecret(w, http.StatusCreated, hook, secret)
}

func (s *Server) listWebhooks(w http.ResponseWriter, r *http.Request) error {
	caller := tokenOf(w)
	if err := s.access.acquire(r.Context(), caller, 1); err != nil {
		return err
	}
	hooks, err := s.webhooks.List(r.Context())
	s.access.release(caller, 1)
	if err != nil {
		return err
	}
	return writeUncached(w, wire.EncodeWebhooks(hooks))
}

func (s *Server) getWebhook(w http.ResponseWriter, r *http.Request) error {
	return writeWebhook(w, r, s.webhooks.Webhook)
}

func (s *Server) replaceWebhook(w http.ResponseWriter, r *http.Request) error {
	config, err := readJSON(s, w, r, wire.DecodeWebhookConfig)
	if err != nil {
		return err
	}
	return writeWebhook(w, r, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.webhooks.Replace(ctx, id, config, actor(w))
	})
}

func (s *Server) deleteWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := s.webhooks.Delete(r.Context(), r.PathValue("id"), actor(w)); err != nil {
		return withWebhookID(r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) rotateWebhook(w http.ResponseWriter, r *http.Request) error {
	hook, secret, err := s.webhooks.Rotate(r.Context(), r.PathValue("id"), actor(w))
	if err != nil {
		return withWebhookID(r, err)
	}
	return writeSecret(w, http.StatusOK, hook, secret)
}

func (s *Server) testWebhook(w http.ResponseWriter, r *http.Request) error {
	caller := tokenOf(w)
	if !s.tests.tryAcquire(caller, 1) {
		return s.tests.full
	}
	defer s.tests.release(caller, 1)
	attempt, err := s.webhooks.Test(r.Context(), r.PathValue("id"))
	if err != nil {
		return withWebhookID(r, err)
	}
	return writeUncached(w, wire.EncodeDelivery(attempt))
}

func (s *Server) resumeWebhook(w http.ResponseWriter, r *http.Request) error {
	return writeWebhook(w, r, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.webhooks.Resume(ctx, id, actor(w))
	})
}

func (s *Server) replayWebhook(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(s, w, r, wire.DecodeReplay)
	if err != nil {
		return err
	}
	return writeWebhook(w, r, func(ctx context.Context, id string) (plantstore.Webhook, error) {
		return s.webhooks.Replay(ctx, id, body.After, body.Since, actor(w))
	})
}

func (s *Server) listDeliveries(w http.ResponseWriter, r *http.Request) error {
	attempts, err := s.webhooks.Deliveries(r.Context(), r.PathValue("id"))
	if err != nil {
		return withWebhookID(r, err)
	}
	return writeUncached(w, wire.EncodeDeliveries(attempts))
}

// writeWebhook responds with what the call returns for the webhook in the path.
func writeWebhook(w http.ResponseWriter, r *http.Request, call func(ctx context.Context, id string) (plantstore.Webhook, error)) error {
	hook, err := call(r.Context(), r.PathValue("id"))
	if err != nil {
		return withWebhookID(r, err)
	}
	return writeUncached(w, wire.EncodeWebhook(hook, ""))
}

// writeSecret responds with a webhook and its new secret, which no cache may store.
func writeSecret(w http.ResponseWriter, status int, hook plantstore.Webhook, secret string) error {
	w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(w, status, append(wire.EncodeWebhook(hook, secret), '\n'))
}

func writeUncached(w http.ResponseWriter, body []byte) error {
	w.Header()["Cache-Control"] = headerNoCache
	return writeJSON(w, http.StatusOK, append(body, '\n'))
}

// withWebhookID says which webhook an error is about.
func withWebhookID(r *http.Request, err error) error {
	if errors.Is(err, plantstore.ErrNoWebhook) {
		return plantstore.Errorf(plantstore.ErrNoWebhook, "there is no webhook %q", plantstore.Shorten(r.PathValue("id")))
	}
	return err
}
