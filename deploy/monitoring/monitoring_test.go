// Package monitoring checks the dashboard and the alert rules in this directory with
// Prometheus's own engine, on scrapes of real servers. It is a module of its own, so that
// Plantstore does not depend on Prometheus.
package monitoring

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// interval is the time between two scrapes.
const interval = 15 * time.Second

// start is when the first scrape is.
var start = time.Unix(1_800_000_000, 0)

// data is what Prometheus has scraped. It implements [storage.Queryable].
type data struct {
	series  map[string]*promql.Series // by their labels
	scrapes int
}

func (d *data) add(l labels.Labels, scrape int, value float64) {
	if d.series == nil {
		d.series = make(map[string]*promql.Series)
	}
	s := d.series[l.String()]
	if s == nil {
		s = &promql.Series{Metric: l}
		d.series[l.String()] = s
	}
	s.Floats = append(s.Floats, promql.FPoint{T: start.Add(time.Duration(scrape) * interval).UnixMilli(), F: value})
	d.scrapes = max(d.scrapes, scrape+1)
}

// addScrape adds the text of a scrape, with the labels that Prometheus adds.
func (d *data) addScrape(text []byte, scrape int) error {
	target := []string{"job", "plantstore", "instance", "127.0.0.1:8080"}
	d.add(labels.FromStrings(append([]string{"__name__", "up"}, target...)...), scrape, 1)
	for p := textparse.NewPromParser(text, labels.NewSymbolTable(), false); ; {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := p.Series()
		var own labels.Labels
		p.Labels(&own)
		b := labels.NewBuilder(own)
		for i := 0; i < len(target); i += 2 {
			b.Set(target[i], target[i+1])
		}
		d.add(b.Labels(), scrape, value)
	}
}

func (d *data) Querier(int64, int64) (storage.Querier, error) { return querier{d: d}, nil }

type querier struct {
	storage.LabelQuerier
	d *data
}

func (querier) Close() error { return nil }

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{next: -1}
	for _, name := range slices.Sorted(maps.Keys(q.d.series)) {
		s := q.d.series[name]
		matches := !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) })
		if matches {
			set.all = append(set.all, promql.NewStorageSeries(*s))
		}
	}
	return set
}

type seriesSet struct {
	all  []storage.Series
	next int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next < len(s.all) }
func (s *seriesSet) At() storage.Series                { return s.all[s.next] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

var engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})

// evaluate returns the value of an expression at a scrape. A warning is an error.
func (d *data) evaluate(t *testing.T, expr string, scrape int) promql.Vector {
	t.Helper()
	query, err := engine.NewInstantQuery(t.Context(), d, nil, expr, start.Add(time.Duration(scrape)*interval))
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if err := errors.Join(append(result.Warnings.AsErrors(), result.Err)...); err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

// fires reports whether a rule fires at some time: whether its expression has had the
// same labels for as long as the rule says.
func (d *data) fires(t *testing.T, r rulefmt.Rule) bool {
	t.Helper()
	pending := map[string]int{} // since which scrape
	for scrape := range d.scrapes {
		now := map[string]int{}
		for _, sample := range d.evaluate(t, r.Expr, scrape) {
			key := sample.Metric.String()
			since, ok := pending[key]
			if !ok {
				since = scrape
			}
			now[key] = since
			if time.Duration(scrape-since)*interval >= time.Duration(r.For) {
				return true
			}
		}
		pending = now
	}
	return false
}

// healthy is the scrapes of a server on each kind of store.
var healthy = map[string]*data{"sqlite": {}, "postgres": {}}

func TestMain(m *testing.M) {
	err := scrape()
	if errors.Is(err, errNoScrapes) {
		fmt.Println(err)
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// errNoScrapes says that the test which makes the scrapes was skipped. It fails if all tests
// must run.
var errNoScrapes = errors.New("nothing is tested: TestScrapes needs PostgreSQL")

// scrape lets the tests of Plantstore run the servers.
func scrape() error {
	dir, err := os.MkdirTemp("", "plantstore-scrapes-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "test", "-count=1", "-run", "^TestScrapes$", "./observe", "-args", "-scrapes", dir)
	cmd.Dir = "../../e2e"
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) == 0 {
		return cmp.Or(err, errNoScrapes)
	}
	for name, d := range healthy {
		files, err := filepath.Glob(filepath.Join(dir, name+"-*.txt"))
		if err != nil {
			return err
		}
		if len(files) < 20 { // five minutes
			return fmt.Errorf("%d scrapes of %s", len(files), name)
		}
		for i, file := range files {
			text, err := os.ReadFile(file)
			if err == nil {
				err = d.addScrape(text, i)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
		}
	}
	return nil
}

// Every expression of the dashboard has a value on one kind of store.
func TestDashboardShowsWhatServersReport(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("dashboard.json")
	if err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*")
	evaluated := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expr := variables.Replace(target.Expr)
			found := 0
			for _, d := range healthy {
				found += len(d.evaluate(t, expr, d.scrapes-1))
			}
			if found == 0 {
				t.Errorf("%s: %s has no value", panel.Title, expr)
			}
			evaluated++
		}
	}
	if evaluated < 30 {
		t.Errorf("only %d expressions were found", evaluated)
	}
}

func readRules(t *testing.T) (rules []rulefmt.Rule) {
	t.Helper()
	text, err := os.ReadFile("alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(text, false, model.UTF8Validation)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		rules = append(rules, g.Rules...)
	}
	return rules
}

func TestNoAlertFiresOnAHealthyServer(t *testing.T) {
	busy := map[string]*data{ // what a busy machine, which is slow and whose disk others fill, would show otherwise
		"PlantstoreSlowCommits": newData(t, `plantstore_commit_duration_seconds_bucket{le="0.1"} 0+9x40`, `plantstore_commit_duration_seconds_bucket{le="+Inf"} 0+9x40`),
		"PlantstoreDiskSpace":   newData(t, `plantstore_disk_free_bytes 100e9x40`),
	}
	for name, d := range healthy {
		for _, rule := range readRules(t) {
			rule.For = min(rule.For, model.Duration(time.Minute)) // a pool may be in use for a moment
			if cmp.Or(busy[rule.Alert], d).fires(t, rule) {
				t.Errorf("%s fires on %s", rule.Alert, name)
			}
		}
	}
}

// newData returns series of Prometheus's own notation: 0+1x9 is ten samples from 0 to 9.
func newData(t *testing.T, descriptions ...string) *data {
	t.Helper()
	d := new(data)
	for _, description := range descriptions {
		name, values, err := parser.ParseSeriesDesc(description)
		if err != nil {
			t.Fatalf("%s: %v", description, err)
		}
		for i, v := range values {
			if !v.Omitted {
				d.add(name, i, v.Value)
			}
		}
	}
	return d
}

// firing has series that make each alert fire.
var firing = map[string][]string{
	"PlantstoreDown":               {`up{job="plantstore"} 0x9`},
	"PlantstoreFailures":           {`plantstore_http_requests_total{operation="createPlant",status="500"} 0 0 1 1`},
	"PlantstoreUnavailable":        {`plantstore_http_requests_total{operation="createPlant",status="503"} 0+1x20`},
	"PlantstoreDamaged":            {`plantstore_store_damaged 0 1`},
	"PlantstoreDiskSpace":          {`plantstore_disk_free_bytes 100e9-10e6x300`},
	"PlantstoreBackupOld":          {`plantstore_backup_last_success_timestamp_seconds{db="/var/lib/plantstore/plants.db"} 1799910000x40`},
	"PlantstoreQueue":              {`plantstore_queue_depth 5000x9`},
	"PlantstoreSlowCommits":        {`plantstore_commit_duration_seconds_bucket{le="0.1"} 0x40`, `plantstore_commit_duration_seconds_bucket{le="0.2"} 0+9x40`, `plantstore_commit_duration_seconds_bucket{le="+Inf"} 0+9x40`},
	"PlantstoreWriteAheadLog":      {`plantstore_wal_bytes 2000000000x60`},
	"PlantstoreUnauthorized":       {`plantstore_token_checks_total{result="invalid"} 0+30x60`},
	"PlantstoreTokenExpires":       {`plantstore_token_next_expiry_seconds 604000-15x40`},
	"PlantstoreCertificateExpires": {`plantstore_tls_certificate_expiry_timestamp_seconds 1800600000x40`},
	"PlantstoreRateLimited":        {`plantstore_limit_hits_total{limit="rate"} 0+30x60`},
	"PlantstoreConnections":        {`plantstore_connections_refused_total 0+1x20`},
	"PlantstoreHistory":            {`plantstore_log_oldest_seconds 80000x250`, `plantstore_log_last_seq 2000x250`, `plantstore_log_events 1000x250`},
	"PlantstoreWebhookDisabled":    {`plantstore_webhooks{health="disabled"} 0 1`},
	"PlantstoreWebhookFailing":     {`plantstore_webhooks{health="failing"} 0 1x80`},
	"PlantstoreWebhookLate":        {`plantstore_webhook_lag_seconds 800+15x40`},
	"PlantstorePoolExhausted":      {`plantstore_postgres_pool_wait_seconds_total{pool="list"} 0+30x60`},
	"PlantstoreOldSnapshot":        {`plantstore_postgres_oldest_snapshot_transactions{holder="slot"} 4e6+1e5x60`},
	"PlantstoreOldTransaction":     {`plantstore_postgres_oldest_transaction_seconds 7000+15x60`},
	"PlantstoreWALKept":            {`plantstore_postgres_wal_kept_bytes{holder="archiver"} 9e9+1e8x100`},
	"PlantstoreFileDescriptors":    {`process_open_fds{job="plantstore"} 900`, `process_max_fds{job="plantstore"} 1000`},
}

func TestEveryAlertFires(t *testing.T) {
	rules := readRules(t)
	if len(rules) != len(firing) {
		t.Errorf("%d rules, and series for %d", len(rules), len(firing))
	}
	for _, rule := range rules {
		if !newData(t, firing[rule.Alert]...).fires(t, rule) {
			t.Errorf("%s does not fire", rule.Alert)
		}
		if rule.Annotations["summary"] == "" || rule.Labels["severity"] == "" {
			t.Errorf("%s has no summary or severity", rule.Alert)
		}
	}
}

// A day has 5,760 scrapes.
func TestAlertsFireOnlyWhenTheyShould(t *testing.T) {
	rules := map[string]rulefmt.Rule{}
	for _, rule := range readRules(t) {
		rules[rule.Alert] = rule
	}
	const backup = `plantstore_backup_last_success_timestamp_seconds{db="plants.db"} `
	for _, c := range []struct {
		alert, when string
		fires       bool
		series      []string
	}{
		{"PlantstoreDown", "everything is scraped", false, []string{`up{job="plantstore"} 1x9`}},
		{"PlantstoreDown", "nothing is scraped", true, []string{`up{job="node"} 1x9`}},
		{"PlantstoreDiskSpace", "a third of the disk is full", false, []string{`plantstore_disk_free_bytes 199e9x300`, `plantstore_store_bytes 100e9x300`}},
		{"PlantstoreDiskSpace", "little is left", true, []string{`plantstore_disk_free_bytes 900e6x300`}},
		{"PlantstoreDiskSpace", "it is full in a month", false, []string{`plantstore_disk_free_bytes 100e9-500e3x5800`}},
		{"PlantstoreDiskSpace", "there was an import", false, []string{`plantstore_disk_free_bytes 50e9x2880 49e9x2880`}},
		{"PlantstoreBackupOld", "a file was never backed up", true, []string{`plantstore_store_bytes 1e9x5800`}},
		{"PlantstoreBackupOld", "a file is new", false, []string{`plantstore_store_bytes 1e9x5700`}},
		{"PlantstoreBackupOld", "a file is backed up", false, []string{`plantstore_store_bytes 1e9x5800`, backup + `1800050000x5800`}},
		{"PlantstoreBackupOld", "the node exporter is down", false, []string{`plantstore_store_bytes 1e9x5800`, backup + `1800050000x5400`}},
		{"PlantstoreBackupOld", "the store is PostgreSQL", false, []string{`plantstore_store_plants 1e9x5800`}},
		{"PlantstoreWebhookDisabled", "a webhook is only paused", false, []string{`plantstore_webhooks{health="paused"} 1x40`, `plantstore_webhooks{health="disabled"} 0x40`}},
		{"PlantstoreWebhookFailing", "a webhook failed for ten minutes", false, []string{`plantstore_webhooks{health="failing"} 1x40 0x80`}},
		{"PlantstoreCertificateExpires", "it is renewed in time", false, []string{`plantstore_tls_certificate_expiry_timestamp_seconds 1800700000x40`}},
	} {
		if got := newData(t, c.series...).fires(t, rules[c.alert]); got != c.fires {
			t.Errorf("%s fires: %t, although %s", c.alert, got, c.when)
		}
	}
}

func TestEveryAlertHasASectionOfTheRunbook(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/operations/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(runbook), -1)
	rules := readRules(t)
	if len(sections) != len(rules) {
		t.Errorf("%d sections for %d alerts", len(sections), len(rules))
	}
	for i, rule := range rules {
		if i < len(sections) && sections[i][1] != rule.Alert {
			t.Errorf("section %d is %s, want %s as in alerts.yaml", i+1, sections[i][1], rule.Alert)
		}
		if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operations/runbook.md#"+strings.ToLower(rule.Alert)) {
			t.Errorf("%s has the runbook_url %q", rule.Alert, url)
		}
	}
}
