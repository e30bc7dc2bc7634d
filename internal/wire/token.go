package wire

import (
	"time"

	"github.com/go-json-experiment/json"

	"plantstore"
)

// HeaderTokenExpires announces when the request's token expires, if that is soon.
const HeaderTokenExpires = "Plantstore-Token-Expires"

// tokenBody is the interface's Token.
type tokenBody struct {
	ID      string             `json:"id,omitzero"`
	Name    string             `json:"name,omitzero"`
	Issuer  string             `json:"issuer,omitzero"`
	Subject string             `json:"subject,omitzero"`
	Scopes  []plantstore.Scope `json:"scopes"`
	Created time.Time          `json:"created"`
	Expires *time.Time         `json:"expires"`
}

// EncodeToken returns a token as JSON.
func EncodeToken(t plantstore.TokenInfo) []byte {
	b := tokenBody{ID: t.ID, Name: t.Name, Issuer: t.Issuer, Subject: t.Subject, Scopes: t.Scopes, Created: t.Created.UTC()}
	if !t.Expires.IsZero() {
		b.Expires = new(t.Expires.UTC())
	}
	return marshal(b)
}

// DecodeToken reads a token. Scopes that are not known here are kept.
func DecodeToken(body []byte) (plantstore.TokenInfo, error) {
	var b tokenBody
	if err := json.Unmarshal(body, &b); err != nil {
		return plantstore.TokenInfo{}, err
	}
	if b.Scopes == nil || b.Created.IsZero() || b.ID == "" && b.Subject == "" {
		return plantstore.TokenInfo{}, errIncomplete
	}
	t := plantstore.TokenInfo{ID: b.ID, Name: b.Name, Issuer: b.Issuer, Subject: b.Subject, Scopes: b.Scopes, Created: b.Created}
	if b.Expires != nil {
		t.Expires = *b.Expires
	}
	return t, nil
}
