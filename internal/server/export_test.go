package server

import (
	"compress/gzip"
	"io"
	"time"

	"plantstore"
)

// Limits that tests reach.
const (
	WindowLines    = windowLines
	MaxImports     = maxImports
	SmallBody      = smallBody
	MaxLargeBodies = maxLargeBodies
	MaxLargePages  = maxLargePages
	MaxFollowers   = maxFollowers
)

// Route is a row of the table of routes.
type Route struct {
	Method, Path, Name string
	Scope              plantstore.Scope
}

// Scopes returns the two scopes that a route needs, if it needs two.
func (r Route) Scopes() (first, second plantstore.Scope, both bool) {
	if r.Scope != sendEvents {
		return "", "", false
	}
	return plantstore.ScopeWebhooksWrite, plantstore.ScopeEvents, true
}

// Routes returns the table of routes.
func Routes() []Route {
	var all []Route
	for _, r := range routes {
		all = append(all, Route{r.method, r.path, r.name, r.scope})
	}
	return all
}

// LargeBodies returns how many large bodies are being processed.
func (s *Server) LargeBodies() int64 { return s.largeBodies.inUse() }

// LargePages returns how many bytes of large pages are being sent.
func (s *Server) LargePages() int64 { return s.largePages.inUse() }

// LargePlants returns how many bytes of single large plants are being sent.
func (s *Server) LargePlants() int64 { return s.largePlants.inUse() }

// ScansQueued returns how many searches, filtered lists and exports wait for their turn.
func (s *Server) ScansQueued() int { return s.scans.queued() }

// WaitForTurns makes searches, lists and exports wait for their turn as long as it takes,
// also on a slow machine. It is called before the first request.
func (s *Server) WaitForTurns() {
	for _, l := range []*lane{s.scans, s.lists, s.tags} {
		l.maxWait = time.Hour
	}
}

// Followers returns how many clients follow the log.
func (s *Server) Followers() int64 { return s.followers.inUse() }

// ImportsQueued returns how many imports wait for their turn.
func (s *Server) ImportsQueued() int { return s.imports.queued() }

func (l *lane) queued() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

// Imports returns how many imports are running.
func (s *Server) Imports() int64 { return s.imports.inUse() }

// ImportBytes returns how much memory their windows have taken.
func (s *Server) ImportBytes() int64 { return s.windows.inUse() }

// Scans returns how many searches, filtered lists and exports are running.
func (s *Server) Scans() int64 { return s.scans.inUse() }

// GzipPool is the pool of gzip writers.
type GzipPool struct{ gzipPool }

func NewGzipPool() GzipPool { return GzipPool{newGzipPool()} }

func (p GzipPool) TryGet(out io.Writer) *gzip.Writer { return p.tryGet(out) }
func (p GzipPool) Put(z *gzip.Writer)                { p.put(z) }

const MaxGzips = maxGzips
