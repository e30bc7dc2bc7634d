package wire

import (
	"strconv"

	"plantstore"
)

// tagBody is the interface's TagCount.
type tagBody struct {
	Tag    *string `json:"tag"`
	Plants *int64  `json:"plants"`
}

// AppendTag appends a tag with its number of plants.
func AppendTag(dst []byte, t plantstore.TagCount) ([]byte, error) {
	dst, err := appendText(append(dst, `{"tag":`...), "tag", t.Tag)
	if err != nil {
		return dst, err
	}
	return append(strconv.AppendInt(append(dst, `,"plants":`...), t.Plants, 10), '}'), nil
}

// DecodeTags reads an array of tags with their numbers of plants.
func DecodeTags(body []byte) ([]plantstore.TagCount, error) {
	return decodeArray(body, func(b *tagBody) (plantstore.TagCount, error) {
		if b.Tag == nil || b.Plants == nil {
			return plantstore.TagCount{}, errIncomplete
		}
		return plantstore.TagCount{Tag: *b.Tag, Plants: *b.Plants}, nil
	})
}
