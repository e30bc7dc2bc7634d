package wire

import (
	"time"

	"plantstore"
)

// aboutBody is the interface's About.
type aboutBody struct {
	Version   string               `json:"version"`
	Interface string               `json:"interface"`
	Store     string               `json:"store"`
	Plants    *int64               `json:"plants,omitzero"`
	Limits    *limitsBody          `json:"limits"`
	Started   time.Time            `json:"started,omitzero"`
	Bytes     int64                `json:"bytes,omitzero"`
	Log       *plantstore.AboutLog `json:"log,omitzero"`

	SearchIndex *plantstore.SearchIndex `json:"search_index,omitzero"`
}

// limitsBody is the interface's Limits. null means no limit.
type limitsBody struct {
	MaxBody        int64            `json:"max_body"`
	MaxHeader      int64            `json:"max_header"`
	MaxPageSize    int              `json:"max_page_size"`
	MaxTokenName   int              `json:"max_token_name"`
	MaxTokens      int              `json:"max_tokens"`
	MaxWebhooks    int              `json:"max_webhooks"`
	RateLimit      *plantstore.Rate `json:"rate_limit"`
	LogKeepSeconds *int64           `json:"log_keep_seconds"`
	LogMaxBytes    *int64           `json:"log_max_bytes"`
}

// EncodeAbout returns the description of a server as JSON.
func EncodeAbout(a plantstore.About) []byte {
	l := a.Limits
	limits := limitsBody{
		MaxBody: l.MaxBody, MaxHeader: l.MaxHeader, MaxPageSize: l.MaxPageSize,
		MaxTokenName: l.MaxTokenName, MaxTokens: l.MaxTokens, MaxWebhooks: l.MaxWebhooks,
		RateLimit: notZero(l.RateLimit), LogKeepSeconds: notZero(int64(l.LogKeep / time.Second)), LogMaxBytes: notZero(l.LogMaxBytes),
	}
	return marshal(aboutBody{a.Version, a.Interface, a.Store, a.Plants, &limits, a.Started, a.Bytes, a.Log, a.SearchIndex})
}

// DecodeAbout reads the description of a server.
func DecodeAbout(body []byte) (plantstore.About, error) {
	return decodeBody(body, (*aboutBody).value)
}

func (b *aboutBody) value() (plantstore.About, error) {
	if b.Version == "" || b.Interface == "" || b.Store == "" || b.Limits == nil {
		return plantstore.About{}, errIncomplete
	}
	l := b.Limits
	return plantstore.About{
		Version: b.Version, Interface: b.Interface, Store: b.Store, Plants: b.Plants, Started: b.Started, Bytes: b.Bytes, Log: b.Log, SearchIndex: b.SearchIndex,
		Limits: plantstore.Limits{
			MaxBody: l.MaxBody, MaxHeader: l.MaxHeader, MaxPageSize: l.MaxPageSize,
			MaxTokenName: l.MaxTokenName, MaxTokens: l.MaxTokens, MaxWebhooks: l.MaxWebhooks,
			RateLimit: orZero(l.RateLimit), LogKeep: time.Duration(orZero(l.LogKeepSeconds)) * time.Second, LogMaxBytes: orZero(l.LogMaxBytes),
		},
	}, nil
}

// notZero returns a pointer to the value, or nil for the zero value.
func notZero[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

func orZero[T any](value *T) (v T) {
	if value != nil {
		v = *value
	}
	return v
}
