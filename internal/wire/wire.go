// Package wire encodes and decodes the JSON of the interface, such as plants, events,
// webhooks, errors and import reports, in one place for the server, the client and the
// command.
//
// Everything is strict: RFC 8259 and I-JSON (RFC 7493), so no duplicate names, no
// invalid UTF-8 and no unpaired surrogates. Unknown members are ignored, except in
// requests on webhooks.
package wire

import (
	"errors"

	"github.com/go-json-experiment/json"

	"plantstore"
)

// The media types of the interface.
const (
	MediaJSON       = "application/json"
	MediaMergePatch = "application/merge-patch+json" // RFC 7396
	MediaNDJSON     = "application/x-ndjson"         // one JSON value per line
	MediaCSV        = "text/csv"
)

// errIncomplete is the error of JSON that lacks a required member.
var errIncomplete = errors.New("a required member is missing")

// errorBody is the interface's Error.
type errorBody struct {
	Code    *plantstore.Code `json:"error"`
	Message *string          `json:"message"`
}

// lineErrorBody is the Error of one line of an import.
type lineErrorBody struct {
	Line      *int64 `json:"line"`
	errorBody `json:",inline"`
}

// reportBody is the interface's ImportReport.
type reportBody struct {
	Created   *int64           `json:"created"`
	Replaced  *int64           `json:"replaced,omitzero"`
	Deleted   *int64           `json:"deleted,omitzero"`
	Unchanged *int64           `json:"unchanged"`
	Failed    *int64           `json:"failed"`
	Errors    *[]lineErrorBody `json:"errors"`
	First     *firstBody       `json:"first,omitzero"`
}

// firstBody has the members of a FirstLines.
type firstBody struct {
	Created   []int64 `json:"created"`
	Replaced  []int64 `json:"replaced"`
	Deleted   []int64 `json:"deleted"`
	Unchanged []int64 `json:"unchanged"`
}

func (b *errorBody) value() (*plantstore.Error, error) {
	if b.Code == nil || b.Message == nil {
		return nil, errIncomplete
	}
	return &plantstore.Error{Code: *b.Code, Message: *b.Message}, nil
}

// marshal is for values that always have a JSON form. A message that quotes invalid UTF-8
// is repaired.
func marshal(body any) []byte {
	b, err := json.Marshal(body, allowInvalidUTF8)
	if err != nil {
		panic("marshal " + err.Error())
	}
	return b
}

func decodeBody[Body, Value any](text []byte, value func(*Body) (Value, error)) (v Value, err error) {
	var body Body
	if err := json.Unmarshal(text, &body); err != nil {
		return v, err
	}
	return value(&body)
}

// decodeArray reads an array of bodies and returns their values. null is not an array.
func decodeArray[Body, Value any](text []byte, value func(*Body) (Value, error)) ([]Value, error) {
	var bodies []Body
	if err := json.Unmarshal(text, &bodies); err != nil {
		return nil, err
	}
	if bodies == nil {
		return nil, errIncomplete
	}
	values := make([]Value, len(bodies))
	for i := range bodies {
		var err error
		if values[i], err = value(&bodies[i]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// EncodeError returns an error as JSON.
func EncodeError(e *plantstore.Error) []byte {
	return marshal(errorBody{&e.Code, &e.Message})
}

// DecodeError reads an Error.
func DecodeError(body []byte) (*plantstore.Error, error) {
	return decodeBody(body, (*errorBody).value)
}

// EncodeReport returns an import's report as JSON, with everything that a mode can do or without.
func EncodeReport(r plantstore.ImportReport, withMode bool) []byte {
	lines := make([]lineErrorBody, len(r.Errors))
	for i, e := range r.Errors {
		lines[i] = lineErrorBody{&e.Line, errorBody{&e.Err.Code, &e.Err.Message}}
	}
	body := reportBody{Created: &r.Created, Unchanged: &r.Unchanged, Failed: &r.Failed, Errors: &lines}
	if withMode {
		body.Replaced, body.Deleted = &r.Replaced, &r.Deleted
	}
	body.First = (*firstBody)(r.First)
	return marshal(body)
}

// DecodeReport reads an import's report.
func DecodeReport(body []byte) (plantstore.ImportReport, error) {
	return decodeBody(body, (*reportBody).value)
}

func (b *reportBody) value() (plantstore.ImportReport, error) {
	if b.Created == nil || b.Unchanged == nil || b.Failed == nil || b.Errors == nil {
		return plantstore.ImportReport{}, errIncomplete
	}
	report := plantstore.ImportReport{Created: *b.Created, Unchanged: *b.Unchanged, Failed: *b.Failed, First: (*plantstore.FirstLines)(b.First)}
	if b.Replaced != nil && b.Deleted != nil {
		report.Replaced, report.Deleted = *b.Replaced, *b.Deleted
	}
	for _, line := range *b.Errors {
		e, err := line.value()
		if err != nil || line.Line == nil {
			return plantstore.ImportReport{}, errIncomplete
		}
		report.Errors = append(report.Errors, plantstore.LineError{Line: *line.Line, Err: e})
	}
	return report, nil
}
