package server

// page serves a web page or one of its assets, which set their own headers.
func (s *Server) page(c *call) error {
	page := s.Pages(c.r.URL.Path)
	if page == nil {
		return noPath(c.r)
	}
	page.ServeHTTP(&c.w, c.r)
	return nil
}
