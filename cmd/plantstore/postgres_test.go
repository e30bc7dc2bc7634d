package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// What the server tries first, TLS here, is not why it is refused.
func TestRefusedConnectionIsAFailureWithItsReason(t *testing.T) {
	pg := pgtest.Start(t)
	pg.Exec(t, "CREATE ROLE gardener LOGIN PASSWORD 'right'")
	pg.Exec(t, `DO $$ BEGIN EXECUTE format(
		'COPY (VALUES (''host all gardener all scram-sha-256''), (''host all all all trust'')) TO %L', current_setting('hba_file')
	); END $$`)
	pg.Exec(t, "SELECT pg_reload_conf()")
	for url, reason := range map[string]string{
		"postgres://gardener:wrong@%s/postgres": `FATAL: password authentication failed for user "gardener" (SQLSTATE 28P01)`,
		"postgres://nobody@%s/postgres":         `FATAL: role "nobody" does not exist (SQLSTATE 28000)`,
		"postgres://postgres@%s/greenhouse":     `FATAL: database "greenhouse" does not exist (SQLSTATE 3D000)`,
	} {
		db := fmt.Sprintf(url, pg.Addr())
		name := "postgres://" + db[strings.Index(db, "@")+1:]
		for _, command := range []string{"serve --addr 127.0.0.1:0", "token create --name ci", "token list", "token revoke ci", "check"} {
			want := "plantstore: " + name + ": " + reason + "\n"
			testenv.Eventually(t, func() error { // PostgreSQL reads its new file soon
				var problems bytes.Buffer
				args := append(strings.Fields(command), "--db", db)
				// A server that serves ends by itself, with success.
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				code := run(ctx, args, streams{strings.NewReader(""), io.Discard, &problems})
				if code != exitFailure || problems.String() != want {
					return fmt.Errorf("%s --db %s: exit code %d, want %d and %q, got %q", command, db, code, exitFailure, want, &problems)
				}
				return nil
			})
		}
	}
}
