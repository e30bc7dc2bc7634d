package server

import "net/http"

// page serves a web page or one of its assets, which set their own headers.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	if s.pages != nil {
		if page := s.pages(r.URL.Path); page != nil {
			page.ServeHTTP(w, r)
			return nil
		}
	}
	return noPath(r)
}
