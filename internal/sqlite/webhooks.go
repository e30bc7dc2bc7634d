package sqlite

import (
	"context"

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

func rowWebhook(row *sqlite.Stmt) (plantstore.Webhook, error) {
	return rules.DecodeWebhook(row.ColumnText(0), row.ColumnText(1))
}

// CreateWebhook adds a webhook.
func (s *Store) CreateWebhook(ctx context.Context, hook plantstore.Webhook, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error { return rules.CreateWebhook(w, hook, by) })
}

// UpdateWebhook changes a webhook. Its change must not use the store: nothing can be
// written meanwhile.
func (s *Store) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (hook plantstore.Webhook, err error) {
	err = s.withWriter(ctx, func(w *writer) (err error) {
		hook, err = rules.UpdateWebhook(w, id, by, change)
		return err
	})
	return hook, err
}

// SaveWebhook is UpdateWebhook without the wait for the disk.
func (s *Store) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	return s.withUnsyncedWriter(ctx, func(w *writer) error {
		_, err := rules.UpdateWebhook(w, id, plantstore.Actor{}, change)
		return err
	})
}

// DeleteWebhook removes a webhook and its deliveries.
func (s *Store) DeleteWebhook(ctx context.Context, id string, by plantstore.Actor) error {
	return s.withWriter(ctx, func(w *writer) error { return rules.DeleteWebhook(w, id, by) })
}

// What follows is, with Token, the [rules.WebhookTx] of a transaction.

func (w *writer) InsertWebhook(id, value string, most int) (bool, error) {
	err := exec(w.conn, insertWebhook, id, value, most)
	return w.conn.Changes() > 0, err
}

func (w *writer) Webhook(id string) (plantstore.Webhook, error) {
	return queryOne(w.conn, rowWebhook, plantstore.ErrNoWebhook, selectWebhook, id)
}

// SetWebhook writes twice. If a row stays the same, SQLite writes nothing and does not sync, but
// the row may be one that SaveWebhook wrote, which is not on disk yet.
func (w *writer) SetWebhook(id, value string) error {
	if err := exec(w.conn, updateWebhook, "", id); err != nil {
		return err
	}
	return exec(w.conn, updateWebhook, value, id)
}

func (w *writer) DeleteWebhook(id string) (bool, error) {
	if err := exec(w.conn, "DELETE FROM deliveries WHERE webhook = ?", id); err != nil {
		return false, err
	}
	err := exec(w.conn, "DELETE FROM webhooks WHERE id = ?", id)
	return w.conn.Changes() > 0, err
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

// Deliveries returns the last attempts of a webhook.
func (s *Store) Deliveries(ctx context.Context, id string) ([]plantstore.Delivery, error) {
	rowDeliveries := func(row *sqlite.Stmt) ([]plantstore.Delivery, error) {
		return rules.DecodeDeliveries(id, row.ColumnText(0))
	}
	return read(ctx, s.tokens, func(c *sqlite.Conn) ([]plantstore.Delivery, error) {
		return queryOne(c, rowDeliveries, plantstore.ErrNoWebhook, selectDeliveries, id)
	})
}

// SaveDeliveries replaces the last attempts of a webhook, without waiting for the disk.
func (s *Store) SaveDeliveries(ctx context.Context, id string, attempts []plantstore.Delivery) error {
	value, err := rules.EncodeDeliveries(id, attempts)
	if err != nil {
		return err
	}
	return s.withUnsyncedWriter(ctx, func(w *writer) error {
		return exec(w.conn, saveDeliveries, value, id)
	})
}
