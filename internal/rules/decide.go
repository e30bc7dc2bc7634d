package rules

import "plantstore"

// DecideEach decides each write by itself, as the Decide of [plantstore.Plants] promises. find calls found
// with the plants that exist among those with the ids. It may call it again with the same ones.
func DecideEach(batch []plantstore.Write, find func(ids []plantstore.ID, found func(plantstore.StoredPlant)) error) ([]plantstore.Result, error) {
	results := make([]plantstore.Result, len(batch))
	writes := make(map[plantstore.ID][]int, len(batch)) // indexes by id
	ids := make([]plantstore.ID, 0, len(batch))
	for i := range batch {
		id := batch[i].Plant.ID
		if writes[id] == nil {
			ids = append(ids, id)
		}
		writes[id] = append(writes[id], i)
		results[i] = resultOf(&batch[i], nil)
	}
	err := find(ids, func(p plantstore.StoredPlant) {
		for _, i := range writes[p.ID] {
			results[i] = resultOf(&batch[i], &p)
		}
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}
