package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"plantstore"
	"plantstore/internal/plantfile"
	"plantstore/internal/wire"
)

func (s *Server) createPlant(c *call) error {
	plant, err := readJSON(c, wire.DecodeNewPlant)
	if err != nil {
		return err
	}
	if _, err := s.Writer.Write(c.r.Context(), plantstore.Write{Op: plantstore.Create, Plant: plant, By: c.caller.Public}); err != nil {
		return withPlantID(plant.ID, err)
	}
	return writePlant(c, plant)
}

func (s *Server) getPlant(c *call) error {
	id, condition, err := readTarget(c)
	if err != nil {
		return err
	}
	details, err := readDetails(c.r)
	if err != nil {
		return err
	}
	plant, err := s.Store.Plant(c.r.Context(), id)
	if err != nil {
		return withPlantID(id, err)
	}
	setETag(c, plant.Version)
	if at := plant.Version.Updated(); !at.IsZero() {
		c.w.Header()["Last-Modified"] = []string{at.Format(http.TimeFormat)}
	}
	c.w.Header()["Cache-Control"] = headerNoCache
	if condition.Holds(&plant) {
		return writeLargePlant(c, plant, details)
	}
	if !condition.MatchHolds(&plant) {
		return withPlantID(id, plantstore.ErrPrecondition)
	}
	c.w.WriteHeader(http.StatusNotModified)
	return nil
}

func (s *Server) replacePlant(c *call) error {
	id, condition, err := readTarget(c)
	if err != nil {
		return err
	}
	plant, err := readJSON(c, wire.DecodePlant)
	if err != nil {
		return err
	}
	plant.ID = id
	result, err := s.Writer.Write(c.r.Context(), plantstore.Write{Op: plantstore.Replace, Plant: plant, If: condition, By: c.caller.Public})
	if err != nil {
		return withPlantID(id, err)
	}
	setETag(c, result.Version)
	return writePlant(c, plant)
}

func (s *Server) patchPlant(c *call) error {
	id, condition, err := readTarget(c)
	if err != nil {
		return err
	}
	if _, err := readMedia(c.r, wire.MediaMergePatch, wire.MediaJSON); err != nil {
		return err
	}
	patch, err := readValue(c, wire.DecodePlantPatch)
	if err != nil {
		return err
	}
	write := patch.Write(id)
	write.If, write.By = condition, c.caller.Public
	result, err := s.applyPatch(c, write)
	if err != nil {
		return withPlantID(id, err)
	}
	setETag(c, result.Version)
	return writePlant(c, *result.Patched)
}

// applyPatch applies a patch once the call holds the memory for what it leaves, as if that were its
// body: the response of one that was applied must not fail. How much that is only the store knows.
// It refuses what needs more than the call holds.
func (s *Server) applyPatch(c *call, write plantstore.Write) (plantstore.Result, error) {
	for size := min(max(smallBody, c.body/2), s.MaxBody); ; {
		write.MaxText = uint32(size)
		result, err := s.Writer.Write(c.r.Context(), write)
		if !errors.Is(err, plantstore.ErrTooLarge) || size == s.MaxBody {
			return result, err
		}
		size = largerBody(size, s.MaxBody)
		if err := c.takeBody(2 * size); err != nil {
			return plantstore.Result{}, err
		}
	}
}

func (s *Server) deletePlant(c *call) error {
	id, condition, err := readTarget(c)
	if err != nil {
		return err
	}
	write := plantstore.Write{Op: plantstore.Delete, Plant: plantstore.Plant{ID: id}, If: condition, By: c.caller.Public}
	if _, err := s.Writer.Write(c.r.Context(), write); err != nil {
		return withPlantID(id, err)
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) listPlants(c *call) error {
	query, params, err := readQuery(c.r)
	if err != nil {
		return err
	}
	c.w.Header().Add("Vary", "Accept")
	c.w.Header()["Cache-Control"] = headerNoCache
	if media := preferred(c.r, wire.MediaJSON, wire.MediaNDJSON, wire.MediaCSV); media != wire.MediaJSON {
		return s.exportPlants(c, query, params, media)
	}
	name, units := reads, int64(listUnits)
	switch {
	case query.Order.ByName():
		name, units = searches, sortUnits
	case query.Filtered():
		name, units = searches, searchUnits
	}
	page, err := inTurn(c, name, units, func(ctx context.Context) (plantstore.Page, error) { return s.Store.List(ctx, query) })
	if err != nil {
		return err
	}
	if query.Count {
		c.w.Header().Set(wire.HeaderCount, wire.FormatCount(page.Count))
	}
	switch {
	case page.NextName != "":
		params.Set("after", string(page.NextName))
		c.linkNext("/plants", params)
	case page.Next != nil && query.IDs != nil:
		done, _ := slices.BinarySearch(query.IDs, *page.Next+1)
		params.Set("id", wire.FormatIDs(query.IDs[done:]))
		c.linkNext("/plants", params)
	case page.Next != nil:
		params.Set("after", page.Next.String())
		c.linkNext("/plants", params)
	}
	return writePage(c, page.Plants, plantTexts, func(dst []byte, p plantstore.StoredPlant) ([]byte, error) {
		return plantfile.JSON.Append(dst, p, query.Details)
	})
}

func plantTexts(p plantstore.StoredPlant) (name, tag string) { return p.Name, p.Tag.String() }
