package wire

import (
	"bytes"
	"time"

	"github.com/go-json-experiment/json"
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
	Plant  jsontext.Value       `json:"plant"`
	By     string               `json:"by"`
}

// AppendEvent appends an event.
func AppendEvent(dst []byte, e plantstore.Event) ([]byte, error) {
	plant, err := AppendNewPlant(nil, e.Plant)
	if err != nil {
		return dst, err
	}
	return append(dst, marshal(eventBody{e.Cursor, e.Time.UTC(), e.Type, plant, e.By})...), nil
}

// DecodeEvent reads an event.
func DecodeEvent(body []byte) (plantstore.Event, error) {
	var b eventBody
	if err := json.Unmarshal(body, &b); err != nil {
		return plantstore.Event{}, err
	}
	return b.value()
}

// DecodeEvents reads an array of events.
func DecodeEvents(body []byte) ([]plantstore.Event, error) {
	return decodeArray(body, (*eventBody).value)
}

func (b *eventBody) value() (plantstore.Event, error) {
	if b.Cursor == "" || b.Time.IsZero() || b.Type == "" || b.Plant == nil {
		return plantstore.Event{}, errIncomplete
	}
	plant, err := DecodeNewPlant(bytes.NewBuffer(b.Plant))
	if err != nil {
		return plantstore.Event{}, err
	}
	return plantstore.Event{Cursor: b.Cursor, Time: b.Time.UTC(), Type: b.Type, Plant: plant, By: b.By}, nil
}
