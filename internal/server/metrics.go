package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"plantstore"
	"plantstore/internal/rules"
)

// Metrics are the metrics at /metrics that are counted. The rest are [figures].
type Metrics struct {
	registry   *prometheus.Registry
	page       http.Handler
	requests   *prometheus.CounterVec
	latency    *prometheus.HistogramVec
	batchSize  prometheus.Histogram
	commitTime prometheus.Histogram
	deliveries *prometheus.CounterVec
	sendTime   prometheus.Histogram
	inFlight   prometheus.Gauge
	imported   *prometheus.CounterVec
	exported   prometheus.Counter
	checks     *prometheus.CounterVec
	validCheck prometheus.Counter // one of the checks
	limitHits  *prometheus.CounterVec
	refused    prometheus.Counter
}

// NewMetrics returns metrics with nothing counted yet.
func NewMetrics(version string) *Metrics {
	registry := prometheus.NewRegistry()
	auto := promauto.With(registry)
	// counters returns a counter for each value of a label. Those that are given begin with 0.
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		all := auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
		for _, value := range values {
			all.WithLabelValues(value)
		}
		return all
	}
	histogram := func(name, help string, start float64, count int) prometheus.Histogram {
		return auto.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(start, 2, count)})
	}
	m := &Metrics{
		registry: registry,
		page:     promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		requests: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_http_requests_total", Help: "Requests served, by operation and HTTP status.",
		}, []string{"operation", "status"}),
		latency: auto.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plantstore_http_request_duration_seconds", Help: "Time from a request's header to its response, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}, []string{"operation"}),
		batchSize:  histogram("plantstore_commit_batch_size", "Writes that were committed together.", 1, 14),
		commitTime: histogram("plantstore_commit_duration_seconds", "Time from the start of a transaction until it was durable.", 0.0001, 18),
		deliveries: counters("plantstore_webhook_deliveries_total", "Attempts to deliver an event to a webhook, by result.", "result",
			"delivered", "failed"),
		sendTime: histogram("plantstore_webhook_delivery_duration_seconds", "Time of an attempt to deliver an event to a webhook.", 0.001, 15),
		inFlight: auto.NewGauge(prometheus.GaugeOpts{Name: "plantstore_http_requests_in_flight", Help: "Requests being served."}),
		imported: counters("plantstore_import_lines_total", "Lines of imports, by result.", "result", "created", "unchanged", "failed"),
		exported: auto.NewCounter(prometheus.CounterOpts{Name: "plantstore_export_plants_total", Help: "Plants sent by exports."}),
		checks: counters("plantstore_token_checks_total", "Checks of the token of a request, by result.", "result",
			append(slices.Collect(maps.Values(checkResults)), checkValid)...),
		limitHits: counters("plantstore_limit_hits_total", "Requests refused because of a limit, by limit.", "limit",
			limitRate, limitAuthFailures, limitQueue, limitRequests),
		refused: auto.NewCounter(prometheus.CounterOpts{
			Name: "plantstore_connections_refused_total", Help: "Connections refused because too many were open.",
		}),
	}
	m.validCheck = m.checks.WithLabelValues(checkValid)
	auto.NewGauge(prometheus.GaugeOpts{
		Name: "plantstore_build_info", Help: "1, with the version as a label.", ConstLabels: prometheus.Labels{"version": version},
	}).Set(1)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Committed counts a batch that was made durable.
func (m *Metrics) Committed(size int, took time.Duration) {
	m.batchSize.Observe(float64(size))
	m.commitTime.Observe(took.Seconds())
}

// Delivered counts an attempt to deliver an event to a webhook.
func (m *Metrics) Delivered(ok bool, took time.Duration) {
	result := "failed"
	if ok {
		result = "delivered"
	}
	m.deliveries.WithLabelValues(result).Inc()
	m.sendTime.Observe(took.Seconds())
}

func (m *Metrics) importedLines(r plantstore.ImportReport) {
	m.imported.WithLabelValues("created").Add(float64(r.Created))
	m.imported.WithLabelValues("replaced").Add(float64(r.Replaced))
	m.imported.WithLabelValues("deleted").Add(float64(r.Deleted))
	m.imported.WithLabelValues("unchanged").Add(float64(r.Unchanged))
	m.imported.WithLabelValues("failed").Add(float64(r.Failed))
}

// checkValid is the result of a check of a token that may make the request, and checkResults
// are the others.
const checkValid = "valid"

var checkResults = map[plantstore.Code]string{
	plantstore.ErrScope:        "forbidden", // valid, without the scope
	plantstore.ErrNoToken:      "missing",
	plantstore.ErrTokenExpired: "expired",
	plantstore.ErrBadToken:     "invalid",     // unknown, malformed or revoked
	plantstore.ErrRate:         "limited",     // not checked: too many failures from the address
	plantstore.ErrUnavailable:  "unavailable", // not checked: the store or the identity provider does not respond
}

// The limits of callers. The others are the lanes.
const (
	limitRate         = "rate"
	limitAuthFailures = "auth_failures"
	limitQueue        = "queue"
	limitRequests     = "requests"
)

// tokenChecked counts a check of a token, by what it returned.
func (m *Metrics) tokenChecked(valid bool, err error) {
	code, _ := errors.AsType[plantstore.Code](err)
	if valid && code != plantstore.ErrScope { // a request over the rate limit has a valid token, too
		m.validCheck.Inc()
		return
	}
	m.checks.WithLabelValues(cmp.Or(checkResults[code], checkResults[plantstore.ErrBadToken])).Inc()
}

// statsTimeout is how long a scrape waits for the store.
const statsTimeout = 2 * time.Second

// figures are the metrics of a server that are read when they are scraped.
type figures struct{ *Server }

// Describe describes nothing: not every store has every figure.
func (f figures) Describe(chan<- *prometheus.Desc) {}

// Collect sends the figures. Those of a store that does not respond are left out.
func (f figures) Collect(metrics chan<- prometheus.Metric) {
	send := func(kind prometheus.ValueType, name, help string, value float64) {
		metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, nil), kind, value)
	}
	gauge := func(name, help string, value float64) { send(prometheus.GaugeValue, name, help, value) }
	counter := func(name, help string, value float64) { send(prometheus.CounterValue, name, help, value) }

	gauge("plantstore_queue_depth", "Writes queued or being committed.", float64(f.Writer.Depth()))
	gauge("plantstore_event_followers", "Clients that follow the events live.", float64(f.followers.Load()))
	counter("plantstore_access_log_dropped_total", "Lines of the access log that could not be written in time.", float64(f.AccessLog.missing()))
	if f.open != nil {
		gauge("plantstore_connections", "Open connections.", float64(f.open()))
	}
	f.collectClocks(metrics)
	untilExpiry, now := math.Inf(1), time.Now()
	if next := f.Guard.NextExpiry(now); !next.IsZero() {
		untilExpiry = next.Sub(now).Seconds()
	}
	gauge("plantstore_token_next_expiry_seconds", "Time until the next token with a lifetime of more than 7 days expires; +Inf if none will.", untilExpiry)
	if f.CertificateExpires != nil {
		if at := f.CertificateExpires(); !at.IsZero() {
			gauge("plantstore_tls_certificate_expiry_timestamp_seconds", "When the TLS certificate in use expires, in seconds since the epoch.", float64(at.Unix()))
		}
	}

	if store, ok := f.Store.(interface{ Damaged() error }); ok {
		damaged := 0.0
		if store.Damaged() != nil {
			damaged = 1
		}
		gauge("plantstore_store_damaged", "1 if the store is damaged, or no longer in its place, and refuses writes, otherwise 0.", damaged)
	}
	if store, ok := f.Store.(interface {
		Connections() int
		Pools() []rules.PoolStats
	}); ok {
		gauge("plantstore_postgres_connections", "Open connections to PostgreSQL.", float64(store.Connections()))
		collectPools(store.Pools(), metrics)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	if store, ok := f.Store.(interface {
		Upkeep(context.Context) (rules.Upkeep, error)
	}); ok {
		if upkeep, err := store.Upkeep(ctx); err == nil {
			collectUpkeep(upkeep, metrics)
		}
	}
	stats, err := f.Store.Stats(ctx)
	if err != nil {
		return
	}
	gauge("plantstore_store_plants", "Plants in the store.", float64(stats.Plants))
	gauge("plantstore_search_index_plants", "Plants in the index of names.", float64(stats.SearchIndex.Plants))
	for _, state := range []string{plantstore.SearchOff, plantstore.SearchBuilding, plantstore.SearchReady} {
		is := 0.0
		if stats.SearchIndex.State == state {
			is = 1
		}
		metrics <- prometheus.MustNewConstMetric(searchIndexState, prometheus.GaugeValue, is, state)
	}
	if stats.FileBytes > 0 {
		gauge("plantstore_store_bytes", "Size of the store's file.", float64(stats.FileBytes))
		gauge("plantstore_wal_bytes", "Size of the write-ahead log.", float64(stats.WALBytes))
		counter("plantstore_checkpoints_total", "Checkpoints of the write-ahead log.", float64(stats.Checkpoints))
	}
	if stats.FileBytes > 0 && stats.FreeBytes >= 0 {
		gauge("plantstore_disk_free_bytes", "Space left on the disk of the store.", float64(stats.FreeBytes))
	}
	age := 0.0
	if !stats.Oldest.IsZero() {
		age = max(0, time.Since(stats.Oldest).Seconds())
	}
	gauge("plantstore_log_events", "Events kept in the log of changes.", float64(stats.Events))
	gauge("plantstore_log_bytes", "Size of the log of changes, in bytes.", float64(stats.Bytes))
	gauge("plantstore_log_oldest_seconds", "Age of the oldest event kept.", age)
	gauge("plantstore_log_last_seq", "Number of the last event.", float64(stats.LastSeq))
	gauge("plantstore_log_unflushed_events", "Changes that may not have been flushed from the log to the table of plants.", float64(stats.Unflushed))

	hooks, err := f.Webhooks.List(ctx)
	if err != nil {
		return
	}
	pending, disabled, lag := 0, 0, time.Duration(0)
	states := make(map[plantstore.HealthState]int)
	for _, w := range hooks {
		states[w.Health.State]++
		if w.Disabled != "" {
			disabled++
			continue
		}
		pending += w.Health.Pending
		lag = max(lag, w.Health.Lag)
	}
	gauge("plantstore_webhook_lag_events", "Events that were not delivered yet to the active webhooks, counted up to 1,000 for each.", float64(pending))
	gauge("plantstore_webhook_lag_seconds", "Age of the oldest of them.", lag.Seconds())
	gauge("plantstore_webhooks_disabled", "Webhooks that are disabled, the paused ones included.", float64(disabled))
	byHealth := prometheus.NewDesc("plantstore_webhooks", "Webhooks, by their health.", []string{"health"}, nil)
	for _, state := range plantstore.HealthStates() {
		metrics <- prometheus.MustNewConstMetric(byHealth, prometheus.GaugeValue, float64(states[state]), string(state))
	}
}

var searchIndexState = prometheus.NewDesc("plantstore_search_index_state", "1 for the state of the index of names, 0 for the others.", []string{"state"}, nil)

// collectClocks sends the figures of the clocks: the server's, and that of a store that has its own.
func (f figures) collectClocks(metrics chan<- prometheus.Metric) {
	clocks := []*rules.Clock{f.Clock}
	if store, ok := f.Store.(interface{ Clock() *rules.Clock }); ok {
		clocks = append(clocks, store.Clock())
	}
	jumps := prometheus.NewDesc("plantstore_clock_jumps_total", "Jumps of a wall clock by more than a minute.", []string{"clock"}, nil)
	for _, c := range clocks {
		metrics <- prometheus.MustNewConstMetric(jumps, prometheus.CounterValue, float64(c.Jumps()), c.Name)
	}
}

// collectPools sends the figures of the pools of connections to PostgreSQL.
func collectPools(pools []rules.PoolStats, metrics chan<- prometheus.Metric) {
	for _, p := range pools {
		send := func(kind prometheus.ValueType, name, help string, value float64) {
			metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{"pool"}, nil), kind, value, p.Name)
		}
		send(prometheus.GaugeValue, "plantstore_postgres_pool_in_use", "Connections in use.", float64(p.InUse))
		send(prometheus.GaugeValue, "plantstore_postgres_pool_max", "Connections that may be in use.", float64(p.Max))
		send(prometheus.CounterValue, "plantstore_postgres_pool_waits_total", "Waits for a connection, because all were in use.", float64(p.Waits))
		send(prometheus.CounterValue, "plantstore_postgres_pool_wait_seconds_total", "Time spent in these waits.", p.Waited.Seconds())
	}
}

// collectUpkeep sends what holds back the upkeep of PostgreSQL.
func collectUpkeep(u rules.Upkeep, metrics chan<- prometheus.Metric) {
	gauges := func(name, help, label string, values map[string]float64) {
		for of, value := range values {
			metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, []string{label}, nil), prometheus.GaugeValue, value, of)
		}
	}
	gauges("plantstore_postgres_oldest_snapshot_transactions", "Transactions since the oldest snapshot, which holds back vacuum.", "holder", u.Snapshots)
	gauges("plantstore_postgres_wal_kept_bytes", "Write-ahead log that is kept for a slot or the archiver.", "holder", u.WAL)
	gauges("plantstore_postgres_dead_rows", "Old versions of rows that vacuum has not removed, as PostgreSQL estimates.", "table", u.DeadRows)
	metrics <- prometheus.MustNewConstMetric(prometheus.NewDesc("plantstore_postgres_oldest_transaction_seconds",
		"Age of the oldest open transaction that the role may see.", nil, nil), prometheus.GaugeValue, u.Transaction.Seconds())
}

// requestSeries are the metrics of requests with the same operation and status.
type requestSeries struct {
	status   int
	requests prometheus.Counter
	latency  prometheus.Observer
}

// observe counts a request. Each route remembers the series of its last one: looking them
// up costs more than counting.
func (m *Metrics) observe(c *call, took time.Duration) {
	var series *requestSeries
	if c.series != nil {
		series = c.series.Load()
	}
	if series == nil || series.status != c.w.status {
		series = &requestSeries{
			c.w.status, m.requests.WithLabelValues(c.route.name, strconv.Itoa(c.w.status)), m.latency.WithLabelValues(c.route.name),
		}
		if c.series != nil {
			c.series.Store(series)
		}
	}
	series.latency.Observe(took.Seconds())
	series.requests.Inc()
}

func (s *Server) metricsPage(c *call) error {
	s.Metrics.page.ServeHTTP(&c.w, c.r)
	return nil
}
