package server

import "plantstore"

// Limits that tests reach.
const (
	WindowPlants   = windowPlants
	SmallBody      = smallBody
	MaxLargeBodies = maxLargeBodies
	MaxLargePages  = maxLargePages
)

// Route is a row of the table of routes.
type Route struct {
	Method, Path, Name string
	Scope              plantstore.Scope
}

// Routes returns the table of routes.
func Routes() []Route {
	var all []Route
	for _, r := range routes {
		all = append(all, Route{r.method, r.path, r.name, r.scope})
	}
	return all
}

// LargeBodies returns how many large bodies are being received.
func (s *Server) LargeBodies() int { return len(s.largeBodies) }

// LargePages returns how many bytes of large pages are being sent.
func (s *Server) LargePages() int64 { return s.largePages.inUse() }

// ScansQueued returns how many lists, searches and exports wait for their turn.
func (s *Server) ScansQueued() int {
	s.scans.mu.Lock()
	defer s.scans.mu.Unlock()
	return len(s.scans.waiting)
}
