package wire

import (
	"strconv"

	"plantstore"
)

// tagBody is the interface's TagCount.
type tagBody struct {
	Tag    *string `json:"tag"`
	Plants *int    `json:"plants"`
	More   bool    `json:"more"`
}

// AppendTag appends a tag with its number of plants.
func AppendTag(dst []byte, t plantstore.TagCount) ([]byte, error) {
	dst, err := appendText(append(dst, `{"tag":`...), "tag", t.Tag)
	if err != nil {
		return dst, err
	}
	dst = strconv.AppendInt(append(dst, `,"plants":`...), int64(t.Plants), 10)
	if t.More {
		dst = append(dst, `,"more":true`...)
	}
	return append(dst, '}'), nil
}

// DecodeTags reads an array of tags with their numbers of plants.
func DecodeTags(body []byte) ([]plantstore.TagCount, error) {
	return decodeArray(body, func(b *tagBody) (plantstore.TagCount, error) {
		if b.Tag == nil || b.Plants == nil {
			return plantstore.TagCount{}, errIncomplete
		}
		return plantstore.TagCount{Tag: *b.Tag, Plants: *b.Plants, More: b.More}, nil
	})
}
