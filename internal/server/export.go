package server

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

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
	if query.Count {
		return plantstore.Errorf(plantstore.ErrParameter, `"count" cannot be combined with %s, which returns every plant`, media)
	}
	if c.r.Method == http.MethodHead {
		return s.headExport(c, media)
	}
	units := s.exporting
	if query.Order.ByName() { // it reads all plants again for each of its pages
		units = max(units, sortUnits)
	}
	release, err := c.take(searches, units, mostExports)
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
	out := newBodyWriter(c, &pacedWriter{&c.w, newPace(minExportRate, s.StreamTimeout)}, exportType(media), func(dst []byte, p plantstore.StoredPlant) ([]byte, error) {
		return format.Append(dst, p, query.Details)
	})
	defer out.close()
	out.buf.WriteString(format.Layout(query.Details).First)
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

// exportEvents responds with every event from the query's position up to now, one per
// line. The position at which it ends is in the header.
func (s *Server) exportEvents(c *call, query plantstore.EventQuery) error {
	if !c.r.ProtoAtLeast(1, 1) {
		return plantstore.Errorf(plantstore.ErrParameter, "an export needs HTTP/1.1, got %s", c.r.Proto)
	}
	if c.r.Method == http.MethodHead {
		query.Limit = 1
		if _, err := s.readEvents(c, query); err != nil {
			return err
		}
		return s.headExport(c, wire.MediaNDJSON)
	}
	release, err := c.take(searches, exportUnits, mostExports)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(c.r.Context(), s.ExportTimeout)
	defer cancel()
	latest, err := s.Store.Events(ctx, plantstore.EventQuery{After: plantstore.LatestCursor, Limit: 1})
	if err != nil {
		return err
	}
	end, err := latest.Next.Position()
	if err != nil {
		return err
	}
	query.Limit = maxLimit
	page, err := s.Store.Events(ctx, query)
	if err != nil {
		return err
	}
	c.w.Header().Set(wire.HeaderCursor, string(latest.Next))
	out := newBodyWriter(c, &pacedWriter{&c.w, newPace(minExportRate, s.StreamTimeout)}, wire.MediaNDJSON, eventEncoder(query.Details))
	defer out.close()
	for {
		for _, e := range page.Events {
			at, err := e.Cursor.Position()
			if err != nil {
				return fmt.Errorf("the store's cursor: %v", err) // not the client's fault
			}
			if at.Seq > end.Seq {
				page.More = false
				break
			}
			if err := out.write("", e, "\n"); err != nil {
				return err
			}
		}
		if !page.More {
			out.flush()
			return nil
		}
		query.After, query.Since = page.Next, time.Time{}
		if page, err = s.Store.Events(ctx, query); err != nil {
			return err
		}
	}
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
