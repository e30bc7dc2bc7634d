package server

import (
	"context"
	"net/http"
	"net/url"

	"plantstore"
	"plantstore/internal/wire"
)

// exportPlants responds with every plant that matches, one per line, from one
// snapshot.
func (s *Server) exportPlants(w http.ResponseWriter, r *http.Request, query plantstore.Query, params url.Values) error {
	if !r.ProtoAtLeast(1, 1) {
		// Without chunks the end of a response cannot be told from an abort.
		return plantstore.Errorf(plantstore.ErrParameter, "an export needs HTTP/1.1, got %s", r.Proto)
	}
	if params.Has("limit") {
		return plantstore.Errorf(plantstore.ErrParameter, `"limit" cannot be combined with %s, which returns every plant`, wire.MediaNDJSON)
	}
	if r.Method == http.MethodHead {
		return s.headExport(w, r)
	}
	token := tokenOf(w)
	if !s.exports.tryAcquire(token, 1) {
		return s.exports.full
	}
	defer s.exports.release(token, 1)
	if err := s.scans.acquire(r.Context(), token, 1); err != nil {
		return err
	}
	defer s.scans.release(token, 1)
	ctx, cancel := context.WithTimeout(r.Context(), s.exportTimeout)
	defer cancel()
	out := newBodyWriter(w, &pacedWriter{w, newPace(minExportRate, s.streamTimeout)}, wire.MediaNDJSON, wire.AppendNewPlant)
	defer out.close()
	var at plantstore.Cursor
	sent := 0
	defer func() { s.metrics.exported.Add(float64(sent)) }()
	for plant, err := range s.store.Scan(ctx, query, &at) {
		if err != nil {
			return err
		}
		if !out.started {
			w.Header().Set(wire.HeaderCursor, string(at))
		}
		if err := out.write("", plant, "\n"); err != nil {
			return err
		}
		sent++
	}
	if !out.started {
		w.Header().Set(wire.HeaderCursor, string(at))
	}
	out.flush()
	return nil
}

// headExport responds with the header of an export, without reading what that would send.
func (s *Server) headExport(w http.ResponseWriter, r *http.Request) error {
	latest, err := s.scanEvents(r.Context(), tokenOf(w), plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set(wire.HeaderCursor, string(latest.Next))
	h.Set("Content-Type", wire.MediaNDJSON)
	h["X-Content-Type-Options"] = headerNosniff
	return nil
}
