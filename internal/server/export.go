package server

import (
	"bufio"
	"net/http"
	"net/url"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// exportPlants responds with every plant that matches, one per line, from one
// snapshot. An export that fails half-way aborts the connection, so that nobody
// takes a part for the whole.
func (s *Server) exportPlants(w http.ResponseWriter, r *http.Request, query plantstore.Query, params url.Values) error {
	if !r.ProtoAtLeast(1, 1) {
		// Without chunks the end of a response cannot be told from an abort.
		return plantstore.Errorf(plantstore.ErrParameter, "an export needs HTTP/1.1, got %s", r.Proto)
	}
	if params.Has("limit") {
		return plantstore.Errorf(plantstore.ErrParameter, `"limit" cannot be combined with %s, which returns every plant`, wire.MediaNDJSON)
	}
	out := bufio.NewWriterSize(&pacedWriter{w: w, timeout: s.streamTimeout}, 64<<10)
	started := false
	var line []byte
	for plant, err := range s.store.Scan(r.Context(), query) {
		if err == nil {
			line, err = wire.AppendNewPlant(line[:0], plant)
		}
		if err != nil && !started {
			return err
		}
		if err != nil {
			s.log.Warn("an export was aborted", "err", err)
			panic(http.ErrAbortHandler)
		}
		if !started {
			w.Header().Set("Content-Type", wire.MediaNDJSON)
			started = true
		}
		line = append(line, '\n')
		if _, err := out.Write(line); err != nil {
			panic(http.ErrAbortHandler) // the client is disconnected, or too slow
		}
	}
	w.Header().Set("Content-Type", wire.MediaNDJSON)
	if err := out.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// pacedWriter gives every write its own deadline, so that a response may take as
// long as it needs while its reader keeps reading.
type pacedWriter struct {
	w       http.ResponseWriter
	timeout time.Duration
}

func (p *pacedWriter) Write(b []byte) (int, error) {
	if err := http.NewResponseController(p.w).SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return 0, err
	}
	return p.w.Write(b)
}
