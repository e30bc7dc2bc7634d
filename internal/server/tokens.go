package server

import (
	"net/http"

	"plantstore/internal/wire"
)

// getOwnToken responds with what the caller's token is.
func (s *Server) getOwnToken(w http.ResponseWriter, _ *http.Request) error {
	w.Header()["Cache-Control"] = headerNoCache
	return writeJSON(w, http.StatusOK, append(wire.EncodeToken(w.(*recorder).caller.Info()), '\n'))
}
