package server

import (
	"compress/gzip"
	"io"
	"slices"
	"time"

	"plantstore"
)

// Limits that tests reach.
const (
	WindowLines = windowLines
	WindowStep  = windowStep
	ImportBytes = importBytes
	MediumBody  = mediumBody
	SmallBody   = smallBody
	MemoryBytes = memoryBytes
	MostPages   = mostPages
	StreamsSize = streamsSize
	SearchUnits = searchUnits
	AccessUnits = accessUnits
	ExportUnits = exportUnits
	SortUnits   = sortUnits
	TestUnits   = testUnits
)

// Route is a row of the table of routes.
type Route struct {
	Method, Path, Name string
	Open               bool // it needs no token
	Scopes             []plantstore.Scope
}

// Routes returns the table of routes.
func Routes() []Route {
	var all []Route
	for _, r := range routes {
		all = append(all, Route{r.method, r.path, r.name, r.traits&open != 0, r.scopes})
	}
	return all
}

// Used returns how many units of a lane are in use, by its name in the metrics.
func (s *Server) Used(lane string) int64 { return s.named(lane).inUse() }

func (l *lane) inUse() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.used
}

// Queued returns how many requests wait for their turn in a lane.
func (s *Server) Queued(lane string) int {
	l := s.named(lane)
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting)
}

func (s *Server) named(name string) *lane {
	return s.lanes[slices.IndexFunc(s.lanes, func(l *lane) bool { return l.name == name })]
}

// WaitForTurns makes requests wait for their turn as long as it takes, also on a slow
// machine. It is called before the first request.
func (s *Server) WaitForTurns() {
	for _, l := range s.lanes {
		l.maxWait = time.Hour
	}
}

// Followers returns how many clients follow the log.
func (s *Server) Followers() int64 { return s.followers.Load() }

// GzipPool is the pool of gzip writers.
type GzipPool struct{ gzipPool }

func NewGzipPool() GzipPool { return GzipPool{newGzipPool()} }

func (p GzipPool) TryGet(out io.Writer) *gzip.Writer { return p.tryGet(out) }
func (p GzipPool) Put(z *gzip.Writer)                { p.put(z) }

const MaxGzips = maxGzips
