package wire

import (
	"bytes"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// HeaderTokenExpires announces when the request's token expires, if that is soon.
const HeaderTokenExpires = "Plantstore-Token-Expires"

// tokenBody is the interface's Token.
type tokenBody struct {
	ID       string             `json:"id,omitzero"`
	Name     *string            `json:"name,omitzero"`
	Issuer   string             `json:"issuer,omitzero"`
	Subject  string             `json:"subject,omitzero"`
	Scopes   []plantstore.Scope `json:"scopes"`
	Rate     plantstore.Rate    `json:"rate,omitzero"`
	Created  time.Time          `json:"created"`
	Expires  *time.Time         `json:"expires"`
	Revoked  time.Time          `json:"revoked,omitzero"`
	LastUsed time.Time          `json:"last_used,omitzero"`
	Token    string             `json:"token,omitzero"`
}

func newTokenBody(t plantstore.TokenInfo, secret string) tokenBody {
	b := tokenBody{
		ID: t.ID, Issuer: t.Issuer, Subject: t.Subject, Scopes: t.Scopes, Rate: t.Rate,
		Created: t.Created.UTC(), Expires: notZero(t.Expires.UTC()), Revoked: t.Revoked, LastUsed: t.LastUsed, Token: secret,
	}
	if t.ID != "" {
		b.Name = &t.Name
	}
	return b
}

func (b *tokenBody) value() (plantstore.TokenInfo, error) {
	if b.Scopes == nil || b.Created.IsZero() || b.ID == "" && b.Subject == "" || b.ID != "" && b.Name == nil {
		return plantstore.TokenInfo{}, errIncomplete
	}
	return plantstore.TokenInfo{
		ID: b.ID, Name: orZero(b.Name), Issuer: b.Issuer, Subject: b.Subject, Scopes: b.Scopes, Rate: b.Rate,
		Created: b.Created, Expires: orZero(b.Expires), Revoked: b.Revoked, LastUsed: b.LastUsed,
	}, nil
}

// EncodeToken returns a token as JSON, with its secret if that is not empty.
func EncodeToken(t plantstore.TokenInfo, secret string) []byte {
	return marshal(newTokenBody(t, secret))
}

// DecodeToken reads a token, and its secret if there is one. Unknown scopes are kept.
func DecodeToken(body []byte) (t plantstore.TokenInfo, secret string, err error) {
	var b tokenBody
	if err := json.Unmarshal(body, &b); err != nil {
		return t, "", err
	}
	t, err = b.value()
	return t, b.Token, err
}

// DecodeTokens reads an array of tokens.
func DecodeTokens(body []byte) ([]plantstore.TokenInfo, error) {
	return decodeArray(body, (*tokenBody).value)
}

// EncodeNewToken returns the body that creates a token. It fails with ErrNotJSON if the
// name is not valid UTF-8.
func EncodeNewToken(n plantstore.NewToken) ([]byte, error) {
	body := struct {
		Name    string             `json:"name"`
		Scopes  []plantstore.Scope `json:"scopes"`
		Expires jsontext.Value     `json:"expires,omitzero"`
		Rate    plantstore.Rate    `json:"rate,omitzero"`
	}{Name: n.Name, Scopes: n.Scopes, Rate: n.Rate}
	switch {
	case n.DefaultExpiry:
	case n.Expires.IsZero():
		body.Expires = jsontext.Value("null")
	default:
		body.Expires = jsontext.Value(n.Expires.UTC().Format(`"` + time.RFC3339 + `"`))
	}
	b, err := json.Marshal(body)
	if err != nil {
		return nil, plantstore.Errorf(plantstore.ErrNotJSON, `"name" must be valid UTF-8`)
	}
	return b, nil
}

// DecodeNewToken reads the body that creates a token. It fails with an
// [*plantstore.Error] that names everything that is wrong. Unknown members are errors: a
// misspelt expiry must not be ignored.
func DecodeNewToken(body *bytes.Buffer) (plantstore.NewToken, error) {
	n := plantstore.NewToken{DefaultExpiry: true}
	var problems plantstore.Problems
	hasName, hasScopes := false, false
	err := readMembers(body, func(member string, value jsontext.Value) {
		switch member {
		case "name":
			hasName = true
			decodeName(value, &n, &problems)
		case "scopes":
			hasScopes = true
			decodeScopes(value, &n, &problems)
		case "expires":
			decodeExpires(value, &n, &problems)
		case "rate":
			decodeRate(value, &n, &problems)
		default:
			problems.Add(plantstore.ErrParameter, "unknown member %q; allowed: name, scopes, expires, rate", plantstore.Shorten(member))
		}
	})
	if err != nil {
		return n, err
	}
	if !hasName {
		problems.Add(plantstore.ErrMissing, `"name" is missing: send a string`)
	}
	if !hasScopes {
		problems.Add(plantstore.ErrMissing, `"scopes" is missing: send an array of strings`)
	}
	return n, problems.Err()
}

func decodeName(v jsontext.Value, n *plantstore.NewToken, problems *plantstore.Problems) {
	text, ok := readString("name", v, problems)
	if n.Name = text; ok && (strings.TrimSpace(text) == "" || len(text) > plantstore.MaxTokenName) {
		problems.Add(plantstore.ErrParameter, `"name" must say what the token is for, in at most %d bytes`, plantstore.MaxTokenName)
	}
}

func decodeScopes(v jsontext.Value, n *plantstore.NewToken, problems *plantstore.Problems) {
	var words []string
	if v.Kind() != '[' || json.Unmarshal(v, &words) != nil {
		problems.Add(plantstore.ErrType, `"scopes" must be an array of strings`)
		return
	}
	for _, word := range words {
		if strings.ContainsAny(word, ", ") || word == "" {
			problems.Add(plantstore.ErrParameter, `"scopes": unknown scope %q`, plantstore.Shorten(word))
			return
		}
	}
	var err error
	if n.Scopes, err = plantstore.ParseScopes(strings.Join(words, ",")); err != nil {
		problems.Add(plantstore.ErrParameter, `"scopes": %v`, err)
	}
}

func decodeExpires(v jsontext.Value, n *plantstore.NewToken, problems *plantstore.Problems) {
	n.DefaultExpiry = false
	if v.Kind() == 'n' {
		return
	}
	if v.Kind() != '"' {
		problems.Add(plantstore.ErrType, `"expires" must be an RFC 3339 time or null, got %s`, kindName(v.Kind()))
		return
	}
	text := unquote(v)
	at, err := ParseTime(text)
	if err != nil || at.IsZero() {
		problems.Add(plantstore.ErrParameter, `"expires" must be an RFC 3339 time or null, got %q`, plantstore.Shorten(text))
		return
	}
	n.Expires = at.UTC().Truncate(time.Second)
}

func decodeRate(v jsontext.Value, n *plantstore.NewToken, problems *plantstore.Problems) {
	if v.Kind() == 'n' {
		return
	}
	if v.Kind() != '"' {
		problems.Add(plantstore.ErrType, `"rate" must be a string such as 200/s,burst=400 or null, got %s`, kindName(v.Kind()))
		return
	}
	var err error
	if n.Rate, err = plantstore.ParseTokenRate(unquote(v)); err != nil {
		problems.Add(plantstore.ErrParameter, `"rate": %v`, err)
	}
}
