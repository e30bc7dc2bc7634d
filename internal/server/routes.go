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
	// path is a pattern of net/http's ServeMux. {base} is the path of the base URL.
	path string
	// name is the operationId in openapi.yaml, and the operation in the metrics.
	name string
	// scope is what the caller's token needs, auth.Both of two, or auth.AnyScope; without
	// one the route is open.
	scope plantstore.Scope
	// handle responds to the request, or returns why it cannot.
	handle func(*Server, http.ResponseWriter, *http.Request) error
}

// sendEvents is the scope of what makes a webhook send events: whoever chooses the
// receiver reads them.
var sendEvents = auth.Both(plantstore.ScopeWebhooksWrite, plantstore.ScopeEvents)

// routes is the whole API, and what operators, tools and browsers need in addition.
var routes = []route{
	{"POST", "{base}/plants", "createPlant", plantstore.ScopeWrite, (*Server).createPlant},
	{"GET", "{base}/plants", "listPlants", plantstore.ScopeRead, (*Server).listPlants},
	{"POST", "{base}/plants/import", "importPlants", plantstore.ScopeWrite, (*Server).importPlants},
	{"GET", "{base}/plants/{id}", "getPlant", plantstore.ScopeRead, (*Server).getPlant},
	{"PUT", "{base}/plants/{id}", "replacePlant", plantstore.ScopeWrite, (*Server).replacePlant},
	{"DELETE", "{base}/plants/{id}", "deletePlant", plantstore.ScopeWrite, (*Server).deletePlant},
	{"GET", "{base}/tags", "listTags", plantstore.ScopeRead, (*Server).listTags},
	{"GET", "{base}/events", "listEvents", plantstore.ScopeEvents, (*Server).listEvents},
	{"POST", "{base}/tokens", "createToken", plantstore.ScopeTokensWrite, (*Server).createToken},
	{"GET", "{base}/tokens", "listTokens", plantstore.ScopeTokensRead, (*Server).listTokens},
	{"GET", "{base}/tokens/{id}", "getToken", plantstore.ScopeTokensRead, (*Server).getToken},
	{"DELETE", "{base}/tokens/{id}", "revokeToken", plantstore.ScopeTokensWrite, (*Server).revokeToken},
	{"GET", "{base}/token", "getOwnToken", auth.AnyScope, (*Server).getOwnToken},
	{"GET", "{base}/about", "getAbout", auth.AnyScope, (*Server).getAbout},

	{"POST", "{base}/webhooks", "createWebhook", sendEvents, (*Server).createWebhook},
	{"GET", "{base}/webhooks", "listWebhooks", plantstore.ScopeWebhooksRead, (*Server).listWebhooks},
	{"GET", "{base}/webhooks/{id}", "getWebhook", plantstore.ScopeWebhooksRead, (*Server).getWebhook},
	{"PUT", "{base}/webhooks/{id}", "replaceWebhook", sendEvents, (*Server).replaceWebhook},
	{"DELETE", "{base}/webhooks/{id}", "deleteWebhook", plantstore.ScopeWebhooksWrite, (*Server).deleteWebhook},
	{"POST", "{base}/webhooks/{id}/rotate", "rotateWebhook", plantstore.ScopeWebhooksWrite, (*Server).rotateWebhook},
	{"POST", "{base}/webhooks/{id}/test", "testWebhook", sendEvents, (*Server).testWebhook},
	{"POST", "{base}/webhooks/{id}/resume", "resumeWebhook", sendEvents, (*Server).resumeWebhook},
	{"POST", "{base}/webhooks/{id}/replay", "replayWebhook", sendEvents, (*Server).replayWebhook},
	{"GET", "{base}/webhooks/{id}/deliveries", "listDeliveries", plantstore.ScopeWebhooksRead, (*Server).listDeliveries},

	{"GET", "/{$}", "console", "", (*Server).page},
	{"GET", "/docs", "docs", "", (*Server).page},
	{"GET", "/docs/{$}", "docs", "", (*Server).page},
	{"GET", "/assets/", "assets", "", (*Server).page},
	{"GET", "/openapi.yaml", "openapiYAML", "", (*Server).openapiYAML},
	{"GET", "/openapi.json", "openapiJSON", "", (*Server).openapiJSON},
	{"GET", "/healthz", "healthz", "", (*Server).healthz},
	{"GET", "/readyz", "readyz", "", (*Server).readyz},
	{"GET", "/metrics", "metrics", plantstore.ScopeOps, (*Server).metricsPage},
	{"GET", "/debug/pprof/", "pprof", plantstore.ScopeOps, (*Server).profile},
	{"GET", "/debug/pprof/profile", "pprof", plantstore.ScopeOps, handler(pprof.Profile)},
	{"GET", "/debug/pprof/symbol", "pprof", plantstore.ScopeOps, handler(pprof.Symbol)},
	{"GET", "/debug/pprof/trace", "pprof", plantstore.ScopeOps, handler(pprof.Trace)},
}

func handler(h http.HandlerFunc) func(*Server, http.ResponseWriter, *http.Request) error {
	return func(_ *Server, w http.ResponseWriter, r *http.Request) error {
		h(w, r)
		return nil
	}
}

// OnePlant reports whether a request is on one plant: create, get, replace or delete.
// The path is escaped and has no query.
func (s *Server) OnePlant(method, path string) bool {
	rest, ok := strings.CutPrefix(path, s.plants)
	if !ok {
		return false
	}
	switch method {
	case http.MethodPost:
		return rest == ""
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		return len(rest) > 1 && strings.LastIndexByte(rest, '/') == 0
	}
	return false
}
