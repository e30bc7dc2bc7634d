package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/internal/rules"
)

// selectUpkeep needs no privileges. Without pg_read_all_stats, PostgreSQL does not say when the
// transactions of other roles began. A vacuum has a snapshot that holds back no other.
const selectUpkeep = `WITH sessions AS (
		SELECT xact_start, greatest(age(backend_xid), age(backend_xmin)) AS age FROM pg_stat_activity
		WHERE (datname = current_database() OR datname IS NULL) AND pid <> pg_backend_pid()
			AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
	), prepared AS (
		SELECT prepared, age(transaction) AS age FROM pg_prepared_xacts WHERE database = current_database()
	), archiver AS (
		SELECT substring(coalesce(last_archived_wal, last_failed_wal) FROM '^[0-9A-F]{24}') AS file FROM pg_stat_archiver
		WHERE current_setting('archive_mode') <> 'off'
	)
	SELECT 'snapshot', 'session', coalesce(max(age), 0)::float8 FROM sessions
	UNION ALL SELECT 'snapshot', 'prepared', coalesce(max(age), 0) FROM prepared
	UNION ALL SELECT 'snapshot', 'slot', coalesce(max(greatest(age(xmin), age(catalog_xmin))), 0) FROM pg_replication_slots
	UNION ALL SELECT 'transaction', '', coalesce(date_part('epoch', clock_timestamp() -
		least((SELECT min(xact_start) FROM sessions), (SELECT min(prepared) FROM prepared))), 0)
	UNION ALL SELECT 'wal', 'slot', coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0) FROM pg_replication_slots
	UNION ALL SELECT 'wal', 'archiver', coalesce(max(pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')
		- ('x' || substr(file, 9, 8))::bit(32)::bigint * 4294967296
		- ('x' || substr(file, 17, 8))::bit(32)::bigint * pg_size_bytes(current_setting('wal_segment_size'))), 0) FROM archiver
	UNION ALL SELECT 'dead', tables.relname, n_dead_tup FROM pg_stat_user_tables AS tables JOIN pg_class ON pg_class.oid = relid
		WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'plantstore_schema'::regclass)`

// Upkeep describes what holds back PostgreSQL's upkeep of its files.
func (s *Store) Upkeep(ctx context.Context) (rules.Upkeep, error) {
	return read(ctx, s, s.lookups, func(ctx context.Context, c *pgx.Conn) (rules.Upkeep, error) {
		u := rules.Upkeep{Snapshots: map[string]float64{}, WAL: map[string]float64{}, DeadRows: map[string]float64{}}
		rows, _ := c.Query(ctx, selectUpkeep) // ForEachRow returns the error
		var what, of string
		var value float64
		_, err := pgx.ForEachRow(rows, []any{&what, &of, &value}, func() error {
			switch what {
			case "snapshot":
				u.Snapshots[of] = value
			case "transaction":
				u.Transaction = time.Duration(value * float64(time.Second))
			case "wal":
				u.WAL[of] = value
			case "dead":
				u.DeadRows[of] = value
			}
			return nil
		})
		return u, err
	})
}
