package server

import (
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

func (s *Server) createPlant(w http.ResponseWriter, r *http.Request) error {
	plant, err := s.readPlant(w, r, wire.DecodeNewPlant)
	if err != nil {
		return err
	}
	if _, err := s.writer.Write(plantstore.Write{Op: plantstore.Create, Plant: plant}); err != nil {
		return withPlantID(plant.ID, err)
	}
	return writePlant(w, plant)
}

func (s *Server) getPlant(w http.ResponseWriter, r *http.Request) error {
	id, condition, err := readTarget(r)
	if err != nil {
		return err
	}
	plant, err := s.store.Plant(r.Context(), id)
	if err != nil {
		return withPlantID(id, err)
	}
	setETag(w, plant)
	if condition.Holds(&plant) {
		return writePlant(w, plant)
	}
	if !condition.MatchHolds(&plant) {
		return withPlantID(id, plantstore.ErrPrecondition)
	}
	w.WriteHeader(http.StatusNotModified)
	return nil
}

func (s *Server) replacePlant(w http.ResponseWriter, r *http.Request) error {
	id, condition, err := readTarget(r)
	if err != nil {
		return err
	}
	plant, err := s.readPlant(w, r, wire.DecodePlant)
	if err != nil {
		return err
	}
	plant.ID = id
	if _, err := s.writer.Write(plantstore.Write{Op: plantstore.Replace, Plant: plant, If: condition}); err != nil {
		return withPlantID(id, err)
	}
	setETag(w, plant)
	return writePlant(w, plant)
}

func (s *Server) deletePlant(w http.ResponseWriter, r *http.Request) error {
	id, condition, err := readTarget(r)
	if err != nil {
		return err
	}
	write := plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}, If: condition}
	if _, err := s.writer.Write(write); err != nil {
		return withPlantID(id, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listPlants(w http.ResponseWriter, r *http.Request) error {
	query, params, err := readQuery(r)
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept")
	if wantsNDJSON(r) {
		return s.exportPlants(w, r, query, params)
	}
	page, err := s.store.List(r.Context(), query)
	if err != nil {
		return err
	}
	if page.Next != nil {
		w.Header().Set("Link", s.nextLink(params, *page.Next))
	}
	return writePlants(w, page.Plants)
}
