package plantstore

import "time"

// The kinds of stores.
const (
	StoreSQLite   = "sqlite"
	StorePostgres = "postgres"
)

// About describes a server, and the limits that a caller meets there.
type About struct {
	// Version is the release of the server, Interface that of the interface.
	Version, Interface string
	// Store is StoreSQLite or StorePostgres.
	Store string
	// Plants is the number of plants, or nil if the caller may not read them.
	Plants *int64
	Limits Limits
	// Started is when the server started, Bytes the size of its store on disk, and Log what it
	// keeps of the log of changes. They are zero if the caller lacks ScopeOps.
	Started time.Time
	Bytes   int64
	Log     *AboutLog
}

// AboutLog describes what is kept of the log of changes.
type AboutLog struct {
	Events int64     `json:"events"`
	Bytes  int64     `json:"bytes"`
	Oldest time.Time `json:"oldest,omitzero"` // when the oldest event was committed; zero if there is none
}

// Limits are the limits that a caller meets.
type Limits struct {
	// MaxBody is the largest body of a request, or line of an import, and MaxHeader the
	// largest header, in bytes.
	MaxBody, MaxHeader int64
	// MaxPageSize is how many items a page has at most.
	MaxPageSize int
	// MaxTokenName is the length of a token's name, in bytes.
	MaxTokenName int
	// MaxTokens and MaxWebhooks are how many there may be, of tokens the active ones.
	MaxTokens, MaxWebhooks int
	// RateLimit is that of the caller's token. The zero Rate is no limit.
	RateLimit Rate
	// LogKeep is how long events are kept, and LogMaxBytes about how large the log of
	// changes may become before the oldest are removed. 0 is no limit.
	LogKeep     time.Duration
	LogMaxBytes int64
}
