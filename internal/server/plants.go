package server

import (
	"net/http"

	"plantstore"
)

func (s *Server) createPlant(w http.ResponseWriter, r *http.Request) error {
	plant, err := s.readNewPlant(w, r)
	if err != nil {
		return err
	}
	if _, err := s.writer.Write(plantstore.Write{Op: plantstore.Create, Plant: plant}); err != nil {
		return aboutPlant(plant.ID, err)
	}
	return writePlant(w, plant)
}
