package server

// page serves a web page or one of its assets, which set their own headers.
func (s *Server) page(c *call) error {
	if s.Pages != nil {
		if page := s.Pages(c.r.URL.Path); page != nil {
			page.ServeHTTP(c, c.r)
			return nil
		}
	}
	return noPath(c.r)
}
