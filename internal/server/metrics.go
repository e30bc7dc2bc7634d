package server

import (
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are what an operator scrapes at /metrics.
type Metrics struct {
	registry    *prometheus.Registry
	page        http.Handler
	requests    *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	batchSize   prometheus.Histogram
	commitTime  prometheus.Histogram
	routesMutex sync.Mutex // guards routes
	routes      map[string]*routeMetrics
}

// NewMetrics returns metrics that nothing has been counted in. depth says how
// many writes wait or are under way.
func NewMetrics(version string, depth func() int) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "plantstore_requests_total", Help: "Requests answered, by operation and HTTP status.",
		}, []string{"operation", "status"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "plantstore_request_seconds", Help: "Time from a request's header to its answer, by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}, []string{"operation"}),
		batchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_commit_batch_size", Help: "Writes that were committed together.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 14),
		}),
		commitTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_commit_seconds", Help: "Time from the start of a transaction until it was durable.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18),
		}),
		routes: map[string]*routeMetrics{},
	}
	m.page = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
	m.registry.MustRegister(m.requests, m.latency, m.batchSize, m.commitTime,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "plantstore_queue_depth", Help: "Writes that wait or are under way.",
		}, func() float64 { return float64(depth()) }),
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

func (s *Server) metricsPage(w http.ResponseWriter, r *http.Request) error {
	s.metrics.page.ServeHTTP(w, r)
	return nil
}

// routeMetrics are the metrics of one operation, looked up once.
type routeMetrics struct {
	latency prometheus.Observer
	all     *prometheus.CounterVec
	byCode  [600]atomic.Pointer[prometheus.Counter]
	name    string
}

// route returns the metrics of the operation with that name.
func (m *Metrics) route(name string) *routeMetrics {
	m.routesMutex.Lock()
	defer m.routesMutex.Unlock()
	if m.routes[name] == nil {
		m.routes[name] = &routeMetrics{latency: m.latency.WithLabelValues(name), all: m.requests, name: name}
	}
	return m.routes[name]
}

func (r *routeMetrics) observe(status int, took time.Duration) {
	r.latency.Observe(took.Seconds())
	if status < 0 || status >= len(r.byCode) {
		status = 0
	}
	counter := r.byCode[status].Load()
	if counter == nil {
		c := r.all.WithLabelValues(r.name, strconv.Itoa(status))
		counter = &c
		r.byCode[status].Store(counter)
	}
	(*counter).Inc()
}
