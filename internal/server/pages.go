package server

// page serves a web page or one of its assets, which set their own headers.
func (s *Server) page(c *call) error {
	if s.pages != nil {
		if page := s.pages(c.r.URL.Path); page != nil {
			page.ServeHTTP(c, c.r)
			return nil
		}
	}
	return noPath(c.r)
}
