package server

import (
	"context"
	"net/http"
	"net/url"

	"plantstore"
	"plantstore/internal/wire"
)

// exportPlants responds with every plant that matches, one per line of NDJSON or CSV, from one
// snapshot.
func (s *Server) exportPlants(c *call, query plantstore.Query, params url.Values, media string) error {
	if !c.r.ProtoAtLeast(1, 1) {
		// Without chunks the end of a response cannot be told from an abort.
		return plantstore.Errorf(plantstore.ErrParameter, "an export needs HTTP/1.1, got %s", c.r.Proto)
	}
	if params.Has("limit") {
		return plantstore.Errorf(plantstore.ErrParameter, `"limit" cannot be combined with %s, which returns every plant`, media)
	}
	if c.r.Method == http.MethodHead {
		return s.headExport(c, media)
	}
	release, err := c.take(searches, s.exporting, mostExports)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(c.r.Context(), s.ExportTimeout)
	defer cancel()
	format, after := formats[media], "\n"
	if media == wire.MediaCSV {
		after = "" // a record ends its line
	}
	out := newBodyWriter(c, &pacedWriter{&c.w, newPace(minExportRate, s.StreamTimeout)}, exportType(media), format.Append)
	defer out.close()
	out.buf.WriteString(format.Layout().First)
	var at plantstore.Cursor
	sent := 0
	defer func() { s.Metrics.exported.Add(float64(sent)) }()
	for plant, err := range s.Store.Scan(ctx, query, &at) {
		if err != nil {
			return err
		}
		if !out.started {
			c.w.Header().Set(wire.HeaderCursor, string(at))
		}
		if err := out.write("", plant, after); err != nil {
			return err
		}
		sent++
	}
	if !out.started {
		c.w.Header().Set(wire.HeaderCursor, string(at))
	}
	out.flush()
	return nil
}

// exportType is the Content-Type of an export. Many clients take text without a charset for
// ISO 8859-1.
func exportType(media string) string {
	if media == wire.MediaCSV {
		return media + "; charset=utf-8"
	}
	return media
}

// headExport responds with the header of an export, without reading what that would send.
func (s *Server) headExport(c *call, media string) error {
	latest, err := s.readEvents(c, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return err
	}
	h := c.w.Header()
	h.Set(wire.HeaderCursor, string(latest.Next))
	h.Set("Content-Type", exportType(media))
	h["X-Content-Type-Options"] = headerNosniff
	return nil
}
