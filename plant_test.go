package plantstore_test

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"plantstore"
)

func plantOf(name string, tag ...string) plantstore.Plant {
	p := plantstore.Plant{Name: name}
	if len(tag) > 0 {
		p.Tag = plantstore.NewTag(tag[0])
	}
	return p
}

func TestTagIsAbsentOrReadsItsText(t *testing.T) {
	if text, ok := (plantstore.Tag{}).Text(); ok || text != "" {
		t.Errorf("the zero tag: got %q, %t", text, ok)
	}
	for _, want := range []string{"", "tropical", "\x00"} {
		if text, ok := plantstore.NewTag(want).Text(); !ok || text != want {
			t.Errorf("NewTag(%q): got %q, %t", want, text, ok)
		}
	}
	if plantOf("fern") == plantOf("fern", "") {
		t.Error("an absent tag equals an empty one")
	}
}

func TestETagsOfDifferentPlantsDiffer(t *testing.T) {
	plants := []plantstore.Plant{
		plantOf(""), plantOf("", ""),
		plantOf("abc"), plantOf("abc", ""), plantOf("ab", "c"), plantOf("a", "bc"), plantOf("", "abc"),
		plantOf("\x00"), plantOf("", "\x00"), plantOf("\x00", ""), plantOf("\x01"), plantOf("", "\x01"),
		plantOf("fern"), plantOf("Fern"), plantOf("fern "), plantOf("fern", "fern"), plantOf("fernfern"),
		plantOf("\u00e9"), plantOf("e\u0301"),
	}
	seen := map[plantstore.ETag]plantstore.Plant{}
	for _, p := range plants {
		if other, ok := seen[p.ETag()]; ok {
			t.Errorf("%+v and %+v have the same ETag", other, p)
		}
		seen[p.ETag()] = p
	}
}

// Replicas of different versions must agree, so the values are fixed. They were
// computed by another program.
func TestETagNeverChanges(t *testing.T) {
	for want, p := range map[plantstore.ETag]plantstore.Plant{
		`"C_k6PXdL1QteDcVoFnkH"`: plantOf("Monstera", "tropical"),
		`"PnB3_S9m1ongzuanz1s3"`: plantOf(""),
		`"KuHBnAy9N45GySep82EZ"`: plantOf("", ""),
	} {
		if got := p.ETag(); got != want {
			t.Errorf("ETag of %+v: got %s, want %s", p, got, want)
		}
	}
}

func TestETagsAreEqualExactlyWhereNameAndTagAre(t *testing.T) {
	// Few letters make equal texts, and texts that are equal when joined, likely.
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab\x00é")), 0, 4, -1)
	plants := rapid.Custom(func(t *rapid.T) plantstore.Plant {
		p := plantstore.Plant{ID: plantstore.ID(rapid.Int64().Draw(t, "id")), Name: text.Draw(t, "name")}
		if rapid.Bool().Draw(t, "tagged") {
			p.Tag = plantstore.NewTag(text.Draw(t, "tag"))
		}
		return p
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := plants.Draw(t, "a"), plants.Draw(t, "b")
		same := a.Name == b.Name && a.Tag == b.Tag
		if (a.ETag() == b.ETag()) != same {
			t.Fatalf("%+v has %s, %+v has %s", a, a.ETag(), b, b.ETag())
		}
	})
}

func TestETagsSeparateNameFromTag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 20, -1).Draw(t, "text")
		seen := map[plantstore.ETag]plantstore.Plant{plantOf(text).ETag(): plantOf(text)}
		for i := range len(text) + 1 {
			p := plantOf(text[:i], text[i:])
			if other, ok := seen[p.ETag()]; ok {
				t.Fatalf("%+v and %+v have the same ETag", other, p)
			}
			seen[p.ETag()] = p
		}
	})
}

func TestETagIsAStrongHTTPETag(t *testing.T) {
	strong := regexp.MustCompile(`^"[\x21\x23-\x7e]+"$`)
	rapid.Check(t, func(t *rapid.T) {
		p := plantOf(rapid.String().Draw(t, "name"), rapid.String().Draw(t, "tag"))
		if got := p.ETag(); !strong.MatchString(string(got)) {
			t.Fatalf("ETag of %+v: %s", p, got)
		}
	})
}
