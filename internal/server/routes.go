package server

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"plantstore"
	"plantstore/internal/auth"
)

// route is one row of the API.
type route struct {
	method string
	// path is a pattern of net/http's ServeMux. {base} is the path of the base URL. Web pages
	// of the other origins that are allowed may call what is below it.
	path string
	// name is the operationId in openapi.yaml, and the operation in the metrics.
	name string
	// scope is what the caller's token needs, auth.Both of two, or auth.AnyScope; without
	// one the route is open.
	scope plantstore.Scope
	// traits say how the route is served.
	traits traits
	// lanes are the limits that its requests share with others. It can use no other.
	lanes lanes
	// handle responds to the request, or returns why it cannot.
	handle func(*Server, *call) error
}

type traits uint8

const (
	// fast requests may be served by the fast path of internal/http1. They have no query.
	fast traits = 1 << iota
	// zipped responses can be large, and are compressed for clients that accept it.
	zipped
)

// sendEvents is the scope of what makes a webhook send events: whoever chooses the
// receiver reads them.
var sendEvents = auth.Both(plantstore.ScopeWebhooksWrite, plantstore.ScopeEvents)

// routes is the whole API, and what operators, tools and browsers need in addition.
var routes = []route{
	{"POST", "{base}/plants", "createPlant", plantstore.ScopeWrite, fast, memory, (*Server).createPlant},
	{"GET", "{base}/plants", "listPlants", plantstore.ScopeRead, zipped, reads | searches | memory, (*Server).listPlants},
	{"POST", "{base}/plants/import", "importPlants", plantstore.ScopeWrite, 0, imports | reads, (*Server).importPlants},
	{"GET", "{base}/plants/{id}", "getPlant", plantstore.ScopeRead, fast, memory, (*Server).getPlant},
	{"PUT", "{base}/plants/{id}", "replacePlant", plantstore.ScopeWrite, fast, memory, (*Server).replacePlant},
	{"DELETE", "{base}/plants/{id}", "deletePlant", plantstore.ScopeWrite, fast, 0, (*Server).deletePlant},
	{"GET", "{base}/tags", "listTags", plantstore.ScopeRead, zipped, reads | memory, (*Server).listTags},
	{"GET", "{base}/events", "listEvents", plantstore.ScopeEvents, zipped, searches | streams | memory, (*Server).listEvents},
	{"GET", "{base}/events/histogram", "getHistogram", plantstore.ScopeEvents, 0, reads | memory, (*Server).getHistogram},
	{"POST", "{base}/tokens", "createToken", plantstore.ScopeTokensWrite, 0, memory, (*Server).createToken},
	{"GET", "{base}/tokens", "listTokens", plantstore.ScopeTokensRead, 0, reads | memory, (*Server).listTokens},
	{"GET", "{base}/tokens/{id}", "getToken", plantstore.ScopeTokensRead, 0, reads, (*Server).getToken},
	{"DELETE", "{base}/tokens/{id}", "revokeToken", plantstore.ScopeTokensWrite, 0, reads, (*Server).revokeToken},
	{"GET", "{base}/token", "getOwnToken", auth.AnyScope, 0, 0, (*Server).getOwnToken},
	{"GET", "{base}/about", "getAbout", auth.AnyScope, 0, 0, (*Server).getAbout},

	{"POST", "{base}/webhooks", "createWebhook", sendEvents, 0, memory, (*Server).createWebhook},
	{"GET", "{base}/webhooks", "listWebhooks", plantstore.ScopeWebhooksRead, 0, reads | memory, (*Server).listWebhooks},
	{"GET", "{base}/webhooks/{id}", "getWebhook", plantstore.ScopeWebhooksRead, 0, reads, (*Server).getWebhook},
	{"PUT", "{base}/webhooks/{id}", "replaceWebhook", sendEvents, 0, memory, (*Server).replaceWebhook},
	{"DELETE", "{base}/webhooks/{id}", "deleteWebhook", plantstore.ScopeWebhooksWrite, 0, 0, (*Server).deleteWebhook},
	{"POST", "{base}/webhooks/{id}/rotate", "rotateWebhook", plantstore.ScopeWebhooksWrite, 0, reads, (*Server).rotateWebhook},
	{"POST", "{base}/webhooks/{id}/test", "testWebhook", sendEvents, 0, streams, (*Server).testWebhook},
	{"POST", "{base}/webhooks/{id}/resume", "resumeWebhook", sendEvents, 0, 0, (*Server).resumeWebhook},
	{"POST", "{base}/webhooks/{id}/replay", "replayWebhook", sendEvents, 0, memory, (*Server).replayWebhook},
	{"GET", "{base}/webhooks/{id}/deliveries", "listDeliveries", plantstore.ScopeWebhooksRead, 0, memory, (*Server).listDeliveries},

	{"GET", "/{$}", "console", "", 0, 0, (*Server).page},
	{"GET", "/docs", "docs", "", 0, 0, (*Server).page},
	{"GET", "/docs/{$}", "docs", "", 0, 0, (*Server).page},
	{"GET", "/assets/", "assets", "", 0, 0, (*Server).page},
	{"GET", "/openapi.yaml", "openapiYAML", "", 0, 0, (*Server).openapiYAML},
	{"GET", "/openapi.json", "openapiJSON", "", 0, 0, (*Server).openapiJSON},
	{"GET", "/healthz", "healthz", "", 0, 0, (*Server).healthz},
	{"GET", "/readyz", "readyz", "", 0, 0, (*Server).readyz},
	{"GET", "/metrics", "metrics", plantstore.ScopeOps, 0, 0, (*Server).metricsPage},
	{"GET", "/debug/pprof/", "pprof", plantstore.ScopeOps, 0, 0, (*Server).profile},
	{"GET", "/debug/pprof/profile", "pprof", plantstore.ScopeOps, 0, 0, handler(pprof.Profile)},
	{"GET", "/debug/pprof/symbol", "pprof", plantstore.ScopeOps, 0, 0, handler(pprof.Symbol)},
	{"GET", "/debug/pprof/trace", "pprof", plantstore.ScopeOps, 0, 0, handler(pprof.Trace)},
}

func handler(h http.HandlerFunc) func(*Server, *call) error {
	return func(_ *Server, c *call) error {
		h(c, c.r)
		return nil
	}
}

// fastRoute is a route that the fast path may serve. Its path is escaped.
type fastRoute struct {
	method, path string
	id           bool // an id follows the path
}

// IsFast reports whether the fast path may serve a request. The path is escaped and has
// no query.
func (s *Server) IsFast(method, path string) bool {
	for _, f := range s.fast {
		rest, ok := strings.CutPrefix(path, f.path)
		if ok && f.method == method && (rest != "") == f.id && strings.IndexByte(rest, '/') < 0 {
			return true
		}
	}
	return false
}
