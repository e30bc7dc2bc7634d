package server

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"plantstore"
	"plantstore/internal/storage"
	"plantstore/internal/webhook"
)

// Metrics are the metrics at /metrics.
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
}

// NewMetrics returns metrics with nothing counted yet.
func NewMetrics(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_http_requests_total", Help: "Requests served, by operation and HTTP status.",
		}, []string{"operation", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plantstore_http_request_duration_seconds", Help: "Time from a request's header to its response, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}, []string{"operation"}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_commit_batch_size", Help: "Writes that were committed together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14),
		}),
		commitTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_commit_duration_seconds", Help: "Time from the start of a transaction until it was durable.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}),
		deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_webhook_deliveries_total", Help: "Attempts to deliver an event to a webhook, by result.",
		}, []string{"result"}),
		sendTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_webhook_delivery_duration_seconds", Help: "Time of an attempt to deliver an event to a webhook.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
	}
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "plantstore_http_requests_in_flight", Help: "Requests being served.",
	})
	m.imported = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plantstore_import_lines_total", Help: "Lines of imports, by result.",
	}, []string{"result"})
	m.exported = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "plantstore_export_plants_total", Help: "Plants sent by exports.",
	})
	m.checks = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plantstore_token_checks_total", Help: "Checks of the token of a request, by result.",
	}, []string{"result"})
	for _, result := range checkResults {
		m.checks.WithLabelValues(result)
	}
	m.validCheck = m.checks.WithLabelValues(checkValid)
	m.limitHits = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "plantstore_limit_hits_total", Help: "Requests refused because of a limit, by limit.",
	}, []string{"limit"})
	for _, limit := range []string{limitRate, limitAuthFailures, limitQueue} {
		m.limitHits.WithLabelValues(limit)
	}
	for _, result := range []string{"created", "unchanged", "failed"} {
		m.imported.WithLabelValues(result)
	}
	for _, result := range []string{resultDelivered, resultFailed} {
		m.deliveries.WithLabelValues(result)
	}
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	m.registry.MustRegister(m.requests, m.latency, m.batchSize, m.commitTime, m.deliveries, m.sendTime,
		m.inFlight, m.imported, m.exported, m.checks, m.limitHits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plantstore_build_info", Help: "1, with the version as a label.",
			ConstLabels: prometheus.Labels{"version": version},
		}, func() float64 { return 1 }),
	)
	return m
}

// Committed counts a batch that was made durable.
func (m *Metrics) Committed(size int, took time.Duration) {
	m.batchSize.Observe(float64(size))
	m.commitTime.Observe(took.Seconds())
}

// The results of an attempt to deliver an event.
const (
	resultDelivered = "delivered"
	resultFailed    = "failed"
)

// Delivered counts an attempt to deliver an event to a webhook.
func (m *Metrics) Delivered(ok bool, took time.Duration) {
	result := resultFailed
	if ok {
		result = resultDelivered
	}
	m.deliveries.WithLabelValues(result).Inc()
	m.sendTime.Observe(took.Seconds())
}

// importedLines counts lines of an import that were handled.
func (m *Metrics) importedLines(created, unchanged, failed int64) {
	m.imported.WithLabelValues("created").Add(float64(created))
	m.imported.WithLabelValues("unchanged").Add(float64(unchanged))
	m.imported.WithLabelValues("failed").Add(float64(failed))
}

// The results of a check of a token.
const (
	checkValid       = "valid"
	checkForbidden   = "forbidden" // valid, without the scope
	checkMissing     = "missing"
	checkExpired     = "expired"
	checkInvalid     = "invalid"     // unknown, malformed or revoked
	checkLimited     = "limited"     // not checked: too many failures from the address
	checkUnavailable = "unavailable" // not checked: the store or the identity provider does not respond
)

var checkResults = []string{checkValid, checkForbidden, checkMissing, checkExpired, checkInvalid, checkLimited, checkUnavailable}

// The limits of callers. Those of the server are in [Server.limits].
const (
	limitRate         = "rate"
	limitAuthFailures = "auth_failures"
	limitQueue        = "queue"
)

// tokenChecked counts a check of a token, by what it returned.
func (m *Metrics) tokenChecked(valid bool, err error) {
	result := checkInvalid
	switch {
	case errors.Is(err, plantstore.ErrScope):
		result = checkForbidden
	case valid:
		m.validCheck.Inc()
		return
	case errors.Is(err, plantstore.ErrNoToken):
		result = checkMissing
	case errors.Is(err, plantstore.ErrTokenExpired):
		result = checkExpired
	case errors.Is(err, plantstore.ErrRate):
		result = checkLimited
	case errors.Is(err, plantstore.ErrUnavailable):
		result = checkUnavailable
	}
	m.checks.WithLabelValues(result).Inc()
}

// watchTokens reports when the next token expires.
func (m *Metrics) watchTokens(nextExpiry func(now time.Time) time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_token_next_expiry_seconds", Help: "Time until the next token expires; +Inf if none will.",
	}, func() float64 {
		now := time.Now()
		next := nextExpiry(now)
		if next.IsZero() {
			return math.Inf(1)
		}
		return next.Sub(now).Seconds()
	}))
}

// watchQueue reports the depth of the writer's queue.
func (m *Metrics) watchQueue(depth func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_queue_depth", Help: "Writes queued or being committed.",
	}, func() float64 { return float64(depth()) }))
}

// watchDamage reports whether the store is known to be damaged.
func (m *Metrics) watchDamage(damaged func() error) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_store_damaged", Help: "1 if the store is damaged and refuses writes, otherwise 0.",
	}, func() float64 {
		if damaged() != nil {
			return 1
		}
		return 0
	}))
}

// watchAccessLog reports the lines that are missing in the access log, if there is one.
func (m *Metrics) watchAccessLog(l *AccessLog) {
	m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "plantstore_access_log_dropped_total", Help: "Lines of the access log that could not be written in time.",
	}, func() float64 {
		if l == nil {
			return 0
		}
		return float64(l.dropped.Load())
	}))
}

// watchFollowers reports how many clients follow the log of changes live.
func (m *Metrics) watchFollowers(followers func() int64) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_event_followers", Help: "Clients that follow the events live.",
	}, func() float64 { return float64(followers()) }))
}

// watchConnections reports the open connections, and returns the counter of refused ones.
func (m *Metrics) watchConnections(open func() int) prometheus.Counter {
	refused := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "plantstore_connections_refused_total", Help: "Connections refused because too many were open.",
	})
	m.registry.MustRegister(refused, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_connections", Help: "Open connections.",
	}, func() float64 { return float64(open()) }))
	return refused
}

// statsTimeout is how long a scrape waits for the store.
const statsTimeout = 2 * time.Second

// storeCollector collects the metrics of a store, none if it does not respond.
type storeCollector struct{ store plantstore.Store }

var (
	storePlants = prometheus.NewDesc("plantstore_store_plants", "Plants in the store.", nil, nil)
	storeBytes  = prometheus.NewDesc("plantstore_store_bytes", "Size of the store's file.", nil, nil)
	walBytes    = prometheus.NewDesc("plantstore_wal_bytes", "Size of the write-ahead log.", nil, nil)
	freeBytes   = prometheus.NewDesc("plantstore_disk_free_bytes", "Space left on the disk of the store.", nil, nil)
	checkpoints = prometheus.NewDesc("plantstore_checkpoints_total", "Checkpoints of the write-ahead log.", nil, nil)

	logEvents = prometheus.NewDesc("plantstore_log_events", "Events kept in the log of changes.", nil, nil)
	logBytes  = prometheus.NewDesc("plantstore_log_bytes", "Size of the log of changes, in bytes.", nil, nil)
	logOldest = prometheus.NewDesc("plantstore_log_oldest_seconds", "Age of the oldest event kept.", nil, nil)
	logLast   = prometheus.NewDesc("plantstore_log_last_seq", "Number of the last event.", nil, nil)
	unflushed = prometheus.NewDesc("plantstore_log_unflushed_events", "Changes that may not have been flushed from the log to the table of plants.", nil, nil)
)

func (c storeCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{storePlants, storeBytes, walBytes, freeBytes, checkpoints, logEvents, logBytes, logOldest, logLast, unflushed} {
		descs <- d
	}
}

func (c storeCollector) Collect(metrics chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	stats, err := c.store.Stats(ctx)
	if err != nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
	age := 0.0
	if !stats.Oldest.IsZero() {
		age = max(0, time.Since(stats.Oldest).Seconds())
	}
	gauge(storePlants, float64(stats.Plants))
	if stats.FileBytes > 0 {
		gauge(storeBytes, float64(stats.FileBytes))
		gauge(walBytes, float64(stats.WALBytes))
		metrics <- prometheus.MustNewConstMetric(checkpoints, prometheus.CounterValue, float64(stats.Checkpoints))
	}
	if stats.FileBytes > 0 && stats.FreeBytes >= 0 {
		gauge(freeBytes, float64(stats.FreeBytes))
	}
	gauge(logEvents, float64(stats.Events))
	gauge(logBytes, float64(stats.Bytes))
	gauge(logOldest, age)
	gauge(logLast, float64(stats.LastSeq))
	gauge(unflushed, float64(stats.Unflushed))
}

// poolCollector collects the metrics of the pools of connections to PostgreSQL.
type poolCollector struct {
	pools func() []storage.PoolStats
}

var (
	poolLabel  = []string{"pool"}
	poolInUse  = prometheus.NewDesc("plantstore_postgres_pool_in_use", "Connections in use.", poolLabel, nil)
	poolIdle   = prometheus.NewDesc("plantstore_postgres_pool_idle", "Connections that are open and not in use.", poolLabel, nil)
	poolMax    = prometheus.NewDesc("plantstore_postgres_pool_max", "Connections that may be open.", poolLabel, nil)
	poolWaits  = prometheus.NewDesc("plantstore_postgres_pool_waits_total", "Waits for a connection, because none was idle.", poolLabel, nil)
	poolWaited = prometheus.NewDesc("plantstore_postgres_pool_wait_seconds_total", "Time spent in these waits.", poolLabel, nil)
)

func (c poolCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolInUse, poolIdle, poolMax, poolWaits, poolWaited} {
		descs <- d
	}
}

func (c poolCollector) Collect(metrics chan<- prometheus.Metric) {
	for _, p := range c.pools() {
		collect := func(d *prometheus.Desc, kind prometheus.ValueType, value float64) {
			metrics <- prometheus.MustNewConstMetric(d, kind, value, p.Name)
		}
		collect(poolInUse, prometheus.GaugeValue, float64(p.InUse))
		collect(poolIdle, prometheus.GaugeValue, float64(p.Idle))
		collect(poolMax, prometheus.GaugeValue, float64(p.Max))
		collect(poolWaits, prometheus.CounterValue, float64(p.Waits))
		collect(poolWaited, prometheus.CounterValue, p.Waited.Seconds())
	}
}

// webhookCollector collects the metrics of all webhooks together. GET /webhooks shows each.
type webhookCollector struct{ webhooks *webhook.Sender }

var (
	webhookLagEvents  = prometheus.NewDesc("plantstore_webhook_lag_events", "Events that were not delivered yet to the webhooks for which this server delivers.", nil, nil)
	webhookLagSeconds = prometheus.NewDesc("plantstore_webhook_lag_seconds", "Age of the oldest of them.", nil, nil)
	webhooksDisabled  = prometheus.NewDesc("plantstore_webhooks_disabled", "Webhooks that are disabled.", nil, nil)
)

func (c webhookCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{webhookLagEvents, webhookLagSeconds, webhooksDisabled} {
		descs <- d
	}
}

func (c webhookCollector) Collect(metrics chan<- prometheus.Metric) {
	stats := c.webhooks.Stats()
	metrics <- prometheus.MustNewConstMetric(webhookLagEvents, prometheus.GaugeValue, float64(stats.LagEvents))
	metrics <- prometheus.MustNewConstMetric(webhookLagSeconds, prometheus.GaugeValue, stats.Lag.Seconds())
	metrics <- prometheus.MustNewConstMetric(webhooksDisabled, prometheus.GaugeValue, float64(stats.Disabled))
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
	if series == nil || series.status != c.status {
		series = &requestSeries{
			c.status, m.requests.WithLabelValues(c.route.name, strconv.Itoa(c.status)), m.latency.WithLabelValues(c.route.name),
		}
		if c.series != nil {
			c.series.Store(series)
		}
	}
	series.latency.Observe(took.Seconds())
	series.requests.Inc()
}

func (s *Server) metricsPage(c *call) error {
	s.metrics.page.ServeHTTP(c, c.r)
	return nil
}
