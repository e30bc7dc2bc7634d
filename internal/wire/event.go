package wire

import (
	"bytes"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// MediaEventStream is the media type of server-sent events.
const MediaEventStream = "text/event-stream"

// HeaderCursor carries a position in the log of changes.
const HeaderCursor = "Plantstore-Cursor"

// eventBody is the interface's Event.
type eventBody struct {
	Cursor plantstore.Cursor    `json:"cursor"`
	Time   time.Time            `json:"time"`
	Type   plantstore.EventType `json:"type"`
	Plant  jsontext.Value       `json:"plant,omitzero"`
	Token  *tokenBody           `json:"token,omitzero"`
	By     string               `json:"by"`
	// Version is left out unless details were asked for.
	Version string `json:"version,omitzero"`
}

// AppendEvent appends an event.
func AppendEvent(dst []byte, e plantstore.Event) ([]byte, error) { return appendEvent(dst, e, "") }

// AppendDetailedEvent appends an event with the version of its plant.
func AppendDetailedEvent(dst []byte, e plantstore.Event) ([]byte, error) {
	if e.Token != nil {
		return AppendEvent(dst, e)
	}
	return appendEvent(dst, e, e.Version.String())
}

func appendEvent(dst []byte, e plantstore.Event, version string) ([]byte, error) {
	b := eventBody{Version: version, Cursor: e.Cursor, Time: e.Time.UTC(), Type: e.Type, By: e.By}
	if e.Token != nil {
		b.Token = new(newTokenBody(*e.Token, ""))
		return append(dst, marshal(b)...), nil
	}
	var err error
	if b.Plant, err = AppendNewPlant(nil, e.Plant); err != nil {
		return dst, err
	}
	return append(dst, marshal(b)...), nil
}

// DecodeEvent reads an event. An event of an unknown type needs neither a plant nor a
// token.
func DecodeEvent(body []byte) (plantstore.Event, error) {
	return decodeBody(body, (*eventBody).value)
}

// DecodeEvents reads an array of events.
func DecodeEvents(body []byte) ([]plantstore.Event, error) {
	return decodeArray(body, (*eventBody).value)
}

func (b *eventBody) value() (plantstore.Event, error) {
	if b.Cursor == "" || b.Time.IsZero() || b.Type == "" {
		return plantstore.Event{}, errIncomplete
	}
	e := plantstore.Event{Cursor: b.Cursor, Time: b.Time.UTC(), Type: b.Type, By: b.By}
	e.Version, _ = plantstore.ParseVersion(b.Version) // zero if there is none
	var err error
	switch {
	case b.Plant != nil:
		e.Plant, err = DecodeNewPlant(bytes.NewBuffer(b.Plant))
	case b.Token != nil:
		var token plantstore.TokenInfo
		token, err = b.Token.value()
		e.Token = &token
	case slices.Contains(plantstore.EventTypes(), b.Type):
		err = errIncomplete
	}
	return e, err
}

// bucketBody is the interface's Bucket.
type bucketBody struct {
	Time    *time.Time `json:"time"`
	Events  *int64     `json:"events"`
	Partial bool       `json:"partial,omitzero"`
}

// AppendBucket appends a bucket of a histogram.
func AppendBucket(dst []byte, b plantstore.Bucket) ([]byte, error) {
	return append(dst, marshal(bucketBody{new(b.Time.UTC()), &b.Events, b.Partial})...), nil
}

// DecodeBuckets reads an array of buckets.
func DecodeBuckets(body []byte) ([]plantstore.Bucket, error) {
	return decodeArray(body, func(b *bucketBody) (plantstore.Bucket, error) {
		if b.Time == nil || b.Events == nil {
			return plantstore.Bucket{}, errIncomplete
		}
		return plantstore.Bucket{Time: b.Time.UTC(), Events: *b.Events, Partial: b.Partial}, nil
	})
}
