package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"plantstore"
	"plantstore/internal/rules"
)

// The statements of webhooks. Each locks the row of the webhook before it uses it, so that no
// update is lost, and no deliveries are added to a webhook that is being deleted.
const (
	insertWebhook = `INSERT INTO stored_webhooks (seq, id, value)
		SELECT coalesce(max(seq), 0) + 1, $1::text, $2::text FROM stored_webhooks HAVING count(*) < $3`
	lockWebhook    = `SELECT id, value FROM stored_webhooks WHERE id = $1 FOR UPDATE`
	saveDeliveries = `WITH webhook AS (SELECT id FROM stored_webhooks WHERE id = $1 FOR UPDATE)
		INSERT INTO deliveries (webhook, value) SELECT id, $2::text FROM webhook
		ON CONFLICT (webhook) DO UPDATE SET value = excluded.value`
	// selectBacklogs has for each of the positions $1 how many of the $3 events after it have
	// types in the set of the same index in $2, and when the first was committed.
	selectBacklogs = `SELECT backlog.events, backlog.oldest FROM log_end()
		CROSS JOIN unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS webhook (position, types, n)
		CROSS JOIN LATERAL (
			SELECT greatest(position, trimmed) AS last, array(SELECT t::smallint FROM generate_series(1, 62) AS t WHERE (types >> t) & 1 = 1) AS sent OFFSET 0
		) AS before
		CROSS JOIN LATERAL (
			SELECT count(*) AS events, coalesce(min(log.time), 0) AS oldest
			FROM log CROSS JOIN unnest(log.type[last - first + 2:last - first + 1 + $3::bigint]) AS event (type)
			WHERE first >= (SELECT max(first) FROM log WHERE first > trimmed AND first <= last + 1) AND first <= last + $3
				AND log.type && sent AND event.type = ANY (sent)
		) AS backlog
		ORDER BY n`
	selectWebhooks   = `SELECT id, value FROM stored_webhooks ORDER BY seq`
	selectDeliveries = `SELECT webhooks.id, coalesce(deliveries.value, 'null')
		FROM stored_webhooks AS webhooks LEFT JOIN deliveries ON deliveries.webhook = webhooks.id WHERE webhooks.id = $1`
)

// webhookKey returns an id as it is stored. Clients ask for any id, but type text rejects
// what is not UTF-8, too.
func webhookKey(id string) string { return escape(strings.ToValidUTF8(id, "\ufffd")) }

// Webhooks returns all webhooks in the order of their creation.
func (s *Store) Webhooks(ctx context.Context) ([]plantstore.Webhook, error) {
	return queryAll(ctx, s, rowWebhook, selectWebhooks)
}

var (
	rowWebhook    = rowValue(rules.DecodeWebhook)
	rowDeliveries = rowValue(rules.DecodeDeliveries)
)

// rowValue decodes rows of a webhook's id and a value.
func rowValue[T any](decode func(id, value string) (T, error)) pgx.RowToFunc[T] {
	return func(row pgx.CollectableRow) (T, error) {
		var id, value string
		if err := row.Scan(&id, &value); err != nil {
			return *new(T), err
		}
		return decode(id, value)
	}
}

// CreateWebhook adds a webhook.
func (s *Store) CreateWebhook(ctx context.Context, hook plantstore.Webhook, by plantstore.Actor) error {
	return s.once(ctx, true, lockWebhook, webhookKey(hook.ID), func(tx transaction) error { return rules.CreateWebhook(tx, hook, by) })
}

// UpdateWebhook changes a webhook. If the connection is lost, it does so again, even if
// the change may have been made: change can be called with its own result.
func (s *Store) UpdateWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error) (plantstore.Webhook, error) {
	return s.changeWebhook(ctx, id, by, change)
}

// SaveWebhook is UpdateWebhook without the wait for the disk and the standbys.
func (s *Store) SaveWebhook(ctx context.Context, id string, change func(*plantstore.Webhook) error) error {
	_, err := s.changeWebhook(ctx, id, plantstore.Actor{}, change, commitAsync)
	return err
}

// changeWebhook changes a webhook in a transaction that begins with the given
// statements.
func (s *Store) changeWebhook(ctx context.Context, id string, by plantstore.Actor, change func(*plantstore.Webhook) error, settings ...string) (hook plantstore.Webhook, err error) {
	err = s.retryCall(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
		return inTransaction(ctx, c, func() (err error) {
			hook, err = rules.UpdateWebhook(transaction{ctx, c, lockToken}, id, by, change)
			return err
		}, settings...)
	})
	return hook, err
}

// DeleteWebhook removes a webhook and its deliveries.
func (s *Store) DeleteWebhook(ctx context.Context, id string, by plantstore.Actor) error {
	return s.once(ctx, false, lockWebhook, webhookKey(id), func(tx transaction) error { return rules.DeleteWebhook(tx, id, by) })
}

func (tx transaction) InsertWebhook(id, value string, most int) (bool, error) {
	n, err := tx.exec(insertWebhook, webhookKey(id), value, most)
	return n > 0, err
}

func (tx transaction) Webhook(id string) (plantstore.Webhook, error) {
	return queryOne(tx.ctx, tx.c, rowWebhook, plantstore.ErrNoWebhook, lockWebhook, webhookKey(id))
}

func (tx transaction) SetWebhook(id, value string) error {
	_, err := tx.exec("UPDATE stored_webhooks SET value = $2 WHERE id = $1", webhookKey(id), value)
	return err
}

func (tx transaction) DeleteWebhook(id string) (bool, error) {
	n, err := tx.exec("DELETE FROM stored_webhooks WHERE id = $1", webhookKey(id))
	if err == nil {
		_, err = tx.exec("DELETE FROM deliveries WHERE webhook = $1", webhookKey(id))
	}
	return n > 0, err
}

// Backlogs counts the events after the positions of webhooks, in one statement.
func (s *Store) Backlogs(ctx context.Context, hooks []plantstore.Webhook) ([]plantstore.Backlog, error) {
	positions, types := make([]int64, len(hooks)), make([]int64, len(hooks))
	for i := range hooks {
		var err error
		if positions[i], types[i], err = rules.BacklogOf(&hooks[i]); err != nil {
			return nil, err
		}
	}
	return read(ctx, s, s.list, func(ctx context.Context, c *pgx.Conn) (backlogs []plantstore.Backlog, err error) {
		for b, err := range inOrder(ctx, c, rowBacklog, selectBacklogs, positions, types, plantstore.MaxPending) {
			if err != nil {
				return nil, err
			}
			backlogs = append(backlogs, b)
		}
		if len(backlogs) < len(hooks) {
			return nil, errNoState
		}
		return backlogs, nil
	})
}

func rowBacklog(row pgx.CollectableRow) (plantstore.Backlog, error) {
	var events, oldest int64
	err := row.Scan(&events, &oldest)
	return rules.NewBacklog(events, oldest), err
}

// Deliveries returns the last attempts of a webhook.
func (s *Store) Deliveries(ctx context.Context, id string) ([]plantstore.Delivery, error) {
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) ([]plantstore.Delivery, error) {
		return queryOne(ctx, c, rowDeliveries, plantstore.ErrNoWebhook, selectDeliveries, webhookKey(id))
	})
}

// SaveDeliveries replaces the last attempts of a webhook, without waiting for the disk
// and the standbys.
func (s *Store) SaveDeliveries(ctx context.Context, id string, attempts []plantstore.Delivery) error {
	value, err := rules.EncodeDeliveries(id, attempts)
	if err != nil {
		return err
	}
	return s.retryCall(ctx, s.write, func(ctx context.Context, c *pgx.Conn) error {
		var b pgx.Batch
		queueBegin(&b, commitAsync)
		b.Queue(saveDeliveries, webhookKey(id), value)
		b.Queue("COMMIT")
		return c.SendBatch(ctx, &b).Close()
	})
}
