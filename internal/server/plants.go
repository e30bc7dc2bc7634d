package server

import (
	"context"
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

func (s *Server) createPlant(w http.ResponseWriter, r *http.Request) error {
	plant, err := readJSON(s, w, r, wire.DecodeNewPlant)
	if err != nil {
		return err
	}
	if _, err := s.writer.Write(r.Context(), plantstore.Write{Op: plantstore.Create, Plant: plant, By: by(w)}); err != nil {
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
	w.Header()["Cache-Control"] = headerNoCache
	if condition.Holds(&plant) {
		if n := s.largePlant(plant); n > 0 {
			if !s.largePlants.tryAcquire(tokenOf(w), n) {
				return s.largePlants.full
			}
			defer s.largePlants.release(tokenOf(w), n)
		}
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
	plant, err := readJSON(s, w, r, wire.DecodePlant)
	if err != nil {
		return err
	}
	plant.ID = id
	if _, err := s.writer.Write(r.Context(), plantstore.Write{Op: plantstore.Replace, Plant: plant, If: condition, By: by(w)}); err != nil {
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
	write := plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}, If: condition, By: by(w)}
	if _, err := s.writer.Write(r.Context(), write); err != nil {
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
	w.Header()["Cache-Control"] = headerNoCache
	if preferred(r, wire.MediaJSON, wire.MediaNDJSON) == wire.MediaNDJSON {
		return s.exportPlants(w, r, query, params)
	}
	page, err := s.listPage(r.Context(), tokenOf(w), query)
	if err != nil {
		return err
	}
	if page.Next != nil {
		w.Header().Set("Link", s.nextLink(params, *page.Next))
	}
	return writePage(s, w, page.Plants, plantTexts, wire.AppendNewPlant)
}

// listPage reads a page when it is the token's turn. A page without a filter is read
// quickly, so many of them may wait.
func (s *Server) listPage(ctx context.Context, token plantstore.TokenHash, query plantstore.Query) (plantstore.Page, error) {
	turn := s.lists
	if query.Filtered() {
		turn = s.scans
	}
	if err := turn.acquire(ctx, token, 1); err != nil {
		return plantstore.Page{}, err
	}
	defer turn.release(token, 1)
	return s.store.List(ctx, query)
}

func plantTexts(p plantstore.Plant) (name, tag string) { return p.Name, p.Tag.String() }

// by returns the public name of the caller.
func by(w http.ResponseWriter) string { return w.(*recorder).caller.Public }

// actor returns the caller as a store checks it.
func actor(w http.ResponseWriter) plantstore.Actor { return w.(*recorder).caller.Actor() }
