package plantstore

import "time"

// The kinds of stores.
const (
	StoreSQLite   = "sqlite"
	StorePostgres = "postgres"
)

// About describes a server, and the limits that apply to a caller.
type About struct {
	// Version is the release of the server, Interface the version of the interface.
	Version, Interface string
	// Store is StoreSQLite or StorePostgres.
	Store string
	// Plants is the number of plants, or nil if the caller may not read them.
	Plants *int64
	Limits Limits
	// Started is when the server started, Bytes the size of its store on disk, Log the part of
	// the log of changes that it keeps, and SearchIndex its index of names. They are zero if the
	// caller lacks ScopeOps.
	Started     time.Time
	Bytes       int64
	Log         *AboutLog
	SearchIndex *SearchIndex
}

// AboutLog describes the part of the log of changes that is kept.
type AboutLog struct {
	Events int64     `json:"events"`
	Bytes  int64     `json:"bytes"`
	Oldest time.Time `json:"oldest,omitzero"` // when the oldest event was committed; zero if there is none
}

// The states of a [SearchIndex].
const (
	SearchOff      = "off"      // there is none: a search examines all plants
	SearchBuilding = "building" // it does not have all plants yet: a search still examines all
	SearchReady    = "ready"
)

// SearchIndex describes the index of names that searches use.
type SearchIndex struct {
	State string `json:"state"`
	// Plants is how many plants it has; while it is built, approximately.
	Plants int64 `json:"plants"`
}

// Limits are the limits that apply to a caller.
type Limits struct {
	// MaxBody is the largest body of a request, or line of an import, and MaxHeader the
	// largest header, in bytes.
	MaxBody, MaxHeader int64
	// MaxPageSize is the largest number of items on a page.
	MaxPageSize int
	// MaxTokenName is the length of the longest name of a token, in bytes.
	MaxTokenName int
	// MaxTokens and MaxWebhooks are the largest numbers of active tokens and of webhooks.
	MaxTokens, MaxWebhooks int
	// RateLimit is the rate limit of the caller's token. The zero Rate is no limit.
	RateLimit Rate
	// LogKeep is how long events are kept, and LogMaxBytes the approximate size of the log
	// of changes at which the oldest are removed. 0 is no limit.
	LogKeep     time.Duration
	LogMaxBytes int64
}
