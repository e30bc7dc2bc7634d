package mirror

import (
	"iter"
	"reflect"
	"testing"

	"plantstore"
)

// What is kept until it is written is bounded, so a deletion keeps no name and no tag.
func TestJoinFindsWhatTheTargetIsMissing(t *testing.T) {
	plants := func(all ...plantstore.Plant) iter.Seq2[plantstore.StoredPlant, error] {
		return func(yield func(plantstore.StoredPlant, error) bool) {
			for _, p := range all {
				if !yield(plantstore.StoredPlant{Plant: p}, nil) {
					return
				}
			}
		}
	}
	fern := plantstore.Plant{ID: 1, Name: "Fern", Tag: plantstore.NewTag("x")}
	oak := plantstore.Plant{ID: 2, Name: "Oak"}
	for _, test := range []struct {
		from, to iter.Seq2[plantstore.StoredPlant, error]
		want     []*difference
	}{
		{plants(), plants(), nil},
		{plants(), plants(fern), []*difference{{plantstore.Plant{ID: 1}, true}}},
		{plants(fern, oak), plants(oak), []*difference{{fern, false}, nil}},
		{plants(oak), plants(fern, oak), []*difference{{plantstore.Plant{ID: 1}, true}, nil}},
		{plants(fern), plants(plantstore.Plant{ID: 1, Name: "Fern"}), []*difference{{fern, false}}},
	} {
		var got []*difference
		err := new(Mirror).join(test.from, test.to, func(d *difference) error {
			got = append(got, d)
			return nil
		})
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("got %v, %v; want %v", got, err, test.want)
		}
	}
}
