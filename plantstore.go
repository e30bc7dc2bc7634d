// Package plantstore defines the domain: [Plant], [Write], [Query], [Token], the
// errors, and the [Store] interface that every store implements.
//
// docs/architecture.md has the map of the packages, and follows one create from the socket
// to the disk.
package plantstore

import (
	"encoding/json"
	"strconv"
)

// Plant is one plant. Plants can be compared with ==. Package encoding/json writes a plant as
// the interface's NewPlant, and reads one with less care than the service does: it accepts a
// plant without an id or a name.
type Plant struct {
	ID ID `json:"id"`
	// Name is any text in valid UTF-8. It may be empty or contain U+0000.
	Name string `json:"name"`
	Tag  Tag    `json:"tag,omitzero"`
}

// String returns a description of the plant for display.
func (p Plant) String() string {
	text := "plant " + p.ID.String() + " " + strconv.Quote(p.Name)
	if p.Tag.present {
		text += " (" + strconv.Quote(p.Tag.text) + ")"
	}
	return text
}

// TextSize returns the length of the plant's name and tag in bytes.
func (p *Plant) TextSize() int { return len(p.Name) + len(p.Tag.text) }

// Tag is the type of a plant. The zero Tag is absent, which is not the same as
// [NewTag]("").
type Tag struct {
	text    string
	present bool
}

// NewTag returns a tag with this text, which must be valid UTF-8.
func NewTag(text string) Tag { return Tag{text: text, present: true} }

// Text returns the tag's text, and whether the tag is present.
func (t Tag) Text() (string, bool) { return t.text, t.present }

// String returns the tag's text, or "" for an absent tag.
func (t Tag) String() string { return t.text }

// MarshalJSON returns the tag as a JSON string, or null for an absent one.
func (t Tag) MarshalJSON() ([]byte, error) {
	if !t.present {
		return []byte("null"), nil
	}
	return json.Marshal(t.text)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (t *Tag) UnmarshalJSON(value []byte) error {
	var text *string
	if err := json.Unmarshal(value, &text); err != nil {
		return err
	}
	*t = Tag{}
	if text != nil {
		*t = NewTag(*text)
	}
	return nil
}
