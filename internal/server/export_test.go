package server

import "plantstore"

// Limits that tests reach.
const (
	WindowPlants   = windowPlants
	SmallBody      = smallBody
	MaxLargeBodies = maxLargeBodies
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
