package plantstore

// TagQuery selects tags.
type TagQuery struct {
	// Prefix selects tags that begin with this text.
	Prefix string
	// Contains, if not empty, selects tags that contain every word of this text, in any order,
	// ignoring case and diacritics.
	Contains string
	// From selects tags that are not before this text, in the order of their bytes.
	From string
	// Limit is the maximum number of tags on a page. It must be at least 1. A page of
	// large tags has fewer.
	Limit int
}

// Start returns the least text that a tag can have to match the query.
func (q TagQuery) Start() string { return max(q.Prefix, q.From) }

// MaxTagPlants is the number up to which the plants of a tag are counted.
const MaxTagPlants = 1000

// TagCount is a tag and its number of plants: Plants, which is at most [MaxTagPlants], or
// more than that if More is set.
type TagCount struct {
	Tag    string
	Plants int
	More   bool
}

// TagPage is one page of tags.
type TagPage struct {
	Tags []TagCount
	// Next is the From of the next page, or empty if this page is the last. It is the
	// shortest text that is after this page, and not after the next.
	Next string
	// Last is the tag that was examined last, whether it matches or not, and Plant a plant with it. If all its
	// plants were deleted, Last is one before it, or empty. Only a [Store] sets them.
	Last  string
	Plant ID
}
