package server

import (
	"net/http"
	"net/http/pprof"
	"strings"

	"plantstore"
)

// route is one row of the API.
type route struct {
	method string
	// path is a pattern of net/http's ServeMux. {base} is the path of the base URL. Web pages
	// of the other origins that are allowed may call what is below it.
	path string
	// name is the operationId in openapi.yaml, and the operation in the metrics.
	name string
	// scopes are those that the caller's token needs, all of them.
	scopes []plantstore.Scope
	// traits say how the route is served.
	traits traits
	// lanes are the limits that its requests share with others. It must not use others.
	lanes lanes
	// handle responds to the request, or returns why it cannot.
	handle func(*Server, *call) error
}

type traits uint8

const (
	// open routes need no token.
	open traits = 1 << iota
	// fast requests may be served by the fast path of internal/httpd. They have no query.
	fast
	// zipped responses can be large, and are compressed for clients that accept it.
	zipped
)

// The scopes of routes.
var (
	anyToken      []plantstore.Scope // none: it is for everyone with a token
	readPlants    = []plantstore.Scope{plantstore.ScopeRead}
	writePlants   = []plantstore.Scope{plantstore.ScopeWrite}
	readEvents    = []plantstore.Scope{plantstore.ScopeEvents}
	readTokens    = []plantstore.Scope{plantstore.ScopeTokensRead}
	writeTokens   = []plantstore.Scope{plantstore.ScopeTokensWrite}
	readWebhooks  = []plantstore.Scope{plantstore.ScopeWebhooksRead}
	writeWebhooks = []plantstore.Scope{plantstore.ScopeWebhooksWrite}
	// sendEvents are for operations that make a webhook send events: whoever chooses the receiver reads
	// them.
	sendEvents = []plantstore.Scope{plantstore.ScopeWebhooksWrite, plantstore.ScopeEvents}
	readOps    = []plantstore.Scope{plantstore.ScopeOps}
)

// routes is the whole API, and what operators, tools and browsers need in addition.
var routes = []route{
	{"POST", "{base}/plants", "createPlant", writePlants, fast, memory, (*Server).createPlant},
	{"GET", "{base}/plants", "listPlants", readPlants, zipped, reads | searches | memory, (*Server).listPlants},
	{"POST", "{base}/plants/import", "importPlants", writePlants, 0, imports | reads, (*Server).importPlants},
	{"GET", "{base}/plants/{id}", "getPlant", readPlants, fast, memory, (*Server).getPlant},
	{"PUT", "{base}/plants/{id}", "replacePlant", writePlants, fast, memory, (*Server).replacePlant},
	{"PATCH", "{base}/plants/{id}", "patchPlant", writePlants, fast, memory, (*Server).patchPlant},
	{"DELETE", "{base}/plants/{id}", "deletePlant", writePlants, fast, 0, (*Server).deletePlant},
	{"GET", "{base}/tags", "listTags", readPlants, zipped, reads | memory, (*Server).listTags},
	{"GET", "{base}/events", "listEvents", readEvents, zipped, searches | streams | memory, (*Server).listEvents},
	{"GET", "{base}/events/histogram", "getHistogram", readEvents, 0, reads | memory, (*Server).getHistogram},
	{"POST", "{base}/tokens", "createToken", writeTokens, 0, memory, (*Server).createToken},
	{"GET", "{base}/tokens", "listTokens", readTokens, 0, reads | memory, (*Server).listTokens},
	{"GET", "{base}/tokens/{id}", "getToken", readTokens, 0, reads, (*Server).getToken},
	{"DELETE", "{base}/tokens/{id}", "revokeToken", writeTokens, 0, reads, (*Server).revokeToken},
	{"GET", "{base}/token", "getOwnToken", anyToken, 0, 0, (*Server).getOwnToken},
	{"GET", "{base}/about", "getAbout", anyToken, 0, 0, (*Server).getAbout},

	{"POST", "{base}/webhooks", "createWebhook", sendEvents, 0, memory, (*Server).createWebhook},
	{"GET", "{base}/webhooks", "listWebhooks", readWebhooks, 0, reads | memory, (*Server).listWebhooks},
	{"GET", "{base}/webhooks/{id}", "getWebhook", readWebhooks, 0, reads, (*Server).getWebhook},
	{"PUT", "{base}/webhooks/{id}", "replaceWebhook", sendEvents, 0, memory, (*Server).replaceWebhook},
	{"DELETE", "{base}/webhooks/{id}", "deleteWebhook", writeWebhooks, 0, 0, (*Server).deleteWebhook},
	{"POST", "{base}/webhooks/{id}/rotate", "rotateWebhook", writeWebhooks, 0, reads, (*Server).rotateWebhook},
	{"POST", "{base}/webhooks/{id}/test", "testWebhook", sendEvents, 0, streams, (*Server).testWebhook},
	{"POST", "{base}/webhooks/{id}/pause", "pauseWebhook", sendEvents, 0, 0, (*Server).pauseWebhook},
	{"POST", "{base}/webhooks/{id}/retry", "retryWebhook", sendEvents, 0, 0, (*Server).retryWebhook},
	{"POST", "{base}/webhooks/{id}/resume", "resumeWebhook", sendEvents, 0, 0, (*Server).resumeWebhook},
	{"POST", "{base}/webhooks/{id}/replay", "replayWebhook", sendEvents, 0, memory, (*Server).replayWebhook},
	{"GET", "{base}/webhooks/{id}/deliveries", "listDeliveries", readWebhooks, 0, memory, (*Server).listDeliveries},

	{"GET", "/{$}", "console", nil, open, 0, (*Server).page},
	{"GET", "/docs", "docs", nil, open, 0, (*Server).page},
	{"GET", "/docs/{$}", "docs", nil, open, 0, (*Server).page},
	{"GET", "/assets/", "assets", nil, open, 0, (*Server).page},
	{"GET", "/openapi.yaml", "openapiYAML", nil, open, 0, (*Server).openapiYAML},
	{"GET", "/openapi.json", "openapiJSON", nil, open, 0, (*Server).openapiJSON},
	{"GET", "/healthz", "healthz", nil, open, 0, (*Server).healthz},
	{"GET", "/readyz", "readyz", nil, open, 0, (*Server).readyz},
	{"GET", "/metrics", "metrics", readOps, 0, 0, (*Server).metricsPage},
	{"GET", "/debug/pprof/", "pprof", readOps, 0, 0, (*Server).profile},
	{"GET", "/debug/pprof/profile", "pprof", readOps, 0, 0, handler(pprof.Profile)},
	{"GET", "/debug/pprof/symbol", "pprof", readOps, 0, 0, handler(pprof.Symbol)},
	{"GET", "/debug/pprof/trace", "pprof", readOps, 0, 0, handler(pprof.Trace)},
}

func handler(h http.HandlerFunc) func(*Server, *call) error {
	return func(_ *Server, c *call) error {
		h(&c.w, c.r)
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
