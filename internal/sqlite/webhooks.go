package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"plantstore"
	"plantstore/internal/rules"
)

const (
	selectWebhooks   = "SELECT id, value FROM webhooks ORDER BY seq"
	selectWebhook    = "SELECT id, value FROM webhooks WHERE id = ?"
	insertWebhook    = "INSERT INTO webhooks (id, value) SELECT ?, ? WHERE (SELECT count(*) FROM webhooks) < ?"
	updateWebhook    = "UPDATE webhooks SET value = ? WHERE id = ?"
	selectDeliveries = `SELECT coalesce(deliveries.value, 'null')
		FROM webhooks LEFT JOIN deliveries ON deliveries.webhook = webhooks.id WHERE webhooks.id = ?`
	// selectBacklog counts those of the ?3 events after ?1 whose types are in the set ?2.
	selectBacklog  = "SELECT count(*), coalesce(min(time), 0) FROM log WHERE seq > ?1 AND seq <= ?1 + ?3 AND ?2 >> type & 1"
	saveDeliveries = `INSERT INTO deliveries (webhook, value) SELECT id, ? FROM webhooks WHERE id = ?
		ON CONFLICT (webhook) DO UPDATE SET value = excluded.value`
)

// Webhooks returns all webhooks in the order of their creation.
func (s *Store) Webhooks(ctx context.Context) ([]plantstore.Webhook, error) {
	return read(ctx, s.tokens, func(c *sqlite.Conn) ([]plantstore.Webhook, error) { return queryAll(c, rowWebhook, selectWebhooks) })
}

func rowWebhook(row *sqlite.Stmt) (hook plantstore.Webhook, err error) {
	if err := json.Unmarshal([]byte(row.ColumnText(1)), &hook); err != nil {
		return hook, fmt.Errorf("webhook %s: %w", row.ColumnText(0), err)
	}
	return hook, nil
}

// CreateWebhook adds a webhook.
func (s *Store) CreateWebhook(ctx context.Context, hook plantstore.Webhook, by plantstore.Actor) error {
	value, err := json.Marshal(hook)
	if err != nil {
		return fmt.Errorf("webhook %s: %w", hook.ID, err)
	}
	return s.withWriter(ctx, func(w *writer) error {
		if err := w.check(by); err != nil {
			return err
		}
		err := exec(w.conn, insertWebhook, hook.ID, string(value), plantstore.MaxWebhooks)
		if err == nil && w.conn.Changes() == 0 {
			return plantstore.ErrTooMany
		}
		return err
	})
}

// UpdateWebhook changes a webhook. Its change must not use the store: nothing can be
// written meanwhile.
func (s *Store) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (hook plantstore.Webhook, err error) {
	err = s.withWriter(ctx, func(w *writer) (err error) {
		if err := w.check(by); err != nil {
			return err
		}
		var value string
		if hook, value, err = w.changedWebhook(id, change); err != nil {
			return err
		}
		// If a row stays the same, SQLite writes nothing and does not sync. But the row
		// may be one that SaveWebhook wrote, which is not on disk yet.
		if err := w.setWebhook(id, ""); err != nil {
			return err
		}
		return w.setWebhook(id, value)
	})
	if err != nil {
		return plantstore.Webhook{}, err
	}
	return hook, nil
}

// SaveWebhook is UpdateWebhook without the wait for the disk.
func (s *Store) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	return s.withUnsyncedWriter(ctx, func(w *writer) error {
		_, value, err := w.changedWebhook(id, change)
		if err != nil {
			return err
		}
		return w.setWebhook(id, value)
	})
}

// changedWebhook returns a webhook after the change, and its JSON.
func (w *writer) changedWebhook(id string, change func(*plantstore.Webhook) error) (hook plantstore.Webhook, value string, err error) {
	hook, err = queryOne(w.conn, rowWebhook, plantstore.ErrNoWebhook, selectWebhook, id)
	if err != nil {
		return hook, "", err
	}
	if err := change(&hook); err != nil {
		return hook, "", err
	}
	encoded, err := json.Marshal(hook)
	if err != nil {
		return hook, "", fmt.Errorf("webhook %s: %w", id, err)
	}
	return hook, string(encoded), nil
}

func (w *writer) setWebhook(id, value string) error {
	return exec(w.conn, updateWebhook, value, id)
}

// Backlogs counts the events after the positions of webhooks.
func (s *Store) Backlogs(ctx context.Context, hooks []plantstore.Webhook) ([]plantstore.Backlog, error) {
	return readSnapshot(ctx, s.lists, func(snap *snapshot) ([]plantstore.Backlog, error) {
		backlogs := make([]plantstore.Backlog, len(hooks))
		for i := range hooks {
			after, types, err := rules.BacklogOf(&hooks[i])
			if err != nil {
				return nil, err
			}
			err = query(snap.conn, func(row *sqlite.Stmt) error {
				backlogs[i] = rules.NewBacklog(row.ColumnInt64(0), row.ColumnInt64(1))
				return nil
			}, selectBacklog, max(after, snap.Trimmed), types, plantstore.MaxPending)
			if err != nil {
				return nil, err
			}
		}
		return backlogs, nil
	})
}

// DeleteWebhook removes a webhook and its deliveries.
func (s *Store) DeleteWebhook(ctx context.Context, id string, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error {
		if err := w.check(by); err != nil {
			return err
		}
		if err := exec(w.conn, "DELETE FROM deliveries WHERE webhook = ?", id); err != nil {
			return err
		}
		err := exec(w.conn, "DELETE FROM webhooks WHERE id = ?", id)
		if err == nil && w.conn.Changes() == 0 {
			return plantstore.ErrNoWebhook
		}
		return err
	})
}

// Deliveries returns the last attempts of a webhook.
func (s *Store) Deliveries(ctx context.Context, id string) ([]plantstore.Delivery, error) {
	rowDeliveries := func(row *sqlite.Stmt) (attempts []plantstore.Delivery, err error) {
		if err := json.Unmarshal([]byte(row.ColumnText(0)), &attempts); err != nil {
			return nil, fmt.Errorf("deliveries of webhook %s: %w", id, err)
		}
		return attempts, nil
	}
	return read(ctx, s.tokens, func(c *sqlite.Conn) ([]plantstore.Delivery, error) {
		return queryOne(c, rowDeliveries, plantstore.ErrNoWebhook, selectDeliveries, id)
	})
}

// SaveDeliveries replaces the last attempts of a webhook, without waiting for the disk.
func (s *Store) SaveDeliveries(ctx context.Context, id string, attempts []plantstore.Delivery) error {
	value, err := json.Marshal(attempts)
	if err != nil {
		return fmt.Errorf("deliveries of webhook %s: %w", id, err)
	}
	return s.withUnsyncedWriter(ctx, func(w *writer) error {
		return exec(w.conn, saveDeliveries, string(value), id)
	})
}
