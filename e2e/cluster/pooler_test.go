package cluster

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"plantstore/client"
	"plantstore/e2e/harness"
	"plantstore/internal/postgres/pgtest"
	"plantstore/internal/testenv"
)

// PgBouncer, in transaction mode, is killed and restarted while 32 clients write through two
// servers, mirrors follow, and a webhook is delivered.
func TestPoolerRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	pooler := pgtest.Start(t).Pooler(t)
	servers := startWithWebhooks(t, pooler.URL())
	clients := []*client.Client{servers[0].Client(client.Options{}), servers[1].Client(client.Options{})}
	r := harness.NewReceiver(t)
	r.Register(clients[0])
	mirrors := []*harness.Mirror{harness.MirrorByStream(t, servers[1]), harness.MirrorByPolling(t, servers[0])}
	w := harness.StartWorkload(t, 32, harness.AllWrites, rand.Uint64(), clients...)
	restarts := harness.Times(2, 20)
	for i := range restarts {
		w.AwaitAcked(200)
		pooler.Restart(t)
		mirrors = append(mirrors, harness.MirrorFromExport(t, servers[i%2]))
		token := servers[i%2].Command("token", "create", "--name", fmt.Sprint("restart ", i))
		testenv.Eventually(t, func() error {
			if status, body := servers[1-i%2].Call(token, "GET", "/plants?limit=1", ""); status != 200 {
				return fmt.Errorf("a list with a new token got %d %s", status, body)
			}
			return nil
		})
	}
	w.AwaitAcked(200)
	r.Recover()
	written := w.Finish(clients[0])
	followed := harness.VerifyMirrors(t, clients[0], int(w.Acked()), mirrors...)
	harness.Report(t, "%d restarts, %s, %s, webhook: %s", restarts, written, followed, r.Verify(mirrors[0]))
	for _, s := range servers {
		s.AwaitReady(200)
	}
}
