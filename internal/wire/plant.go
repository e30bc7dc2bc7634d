package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

var allowInvalidUTF8 = jsontext.AllowInvalidUTF8(true)

// Plants are on the path of every request, so they are written and read without
// reflection.

// AppendNewPlant appends the plant as a NewPlant: with its id. It fails with
// ErrNotJSON if a text is not valid UTF-8.
func AppendNewPlant(dst []byte, p plantstore.Plant) ([]byte, error) {
	dst = strconv.AppendInt(append(dst, `{"id":`...), int64(p.ID), 10)
	return appendFields(append(dst, ','), p)
}

// AppendPlant appends the plant as a Plant: without its id. It fails with
// ErrNotJSON if a text is not valid UTF-8.
func AppendPlant(dst []byte, p plantstore.Plant) ([]byte, error) {
	return appendFields(append(dst, '{'), p)
}

// AppendStored appends the plant as a NewPlant with details: its version and times.
func AppendStored(dst []byte, p plantstore.StoredPlant) ([]byte, error) {
	dst, err := AppendNewPlant(dst, p.Plant)
	return appendDetails(dst, p), err
}

// AppendStoredPlant is AppendStored without the id.
func AppendStoredPlant(dst []byte, p plantstore.StoredPlant) ([]byte, error) {
	dst, err := AppendPlant(dst, p.Plant)
	return appendDetails(dst, p), err
}

// appendDetails adds the version and the times that are known to an object that has ended.
func appendDetails(dst []byte, p plantstore.StoredPlant) []byte {
	dst = append(append(dst[:len(dst)-1], `,"version":"`...), p.Version.String()...)
	if at := p.CreatedAt(); !at.IsZero() {
		dst = AppendTime(append(dst, `","created":"`...), at)
	}
	if at := p.Version.Updated(); !at.IsZero() {
		dst = AppendTime(append(dst, `","updated":"`...), at)
	}
	return append(dst, `"}`...)
}

// AppendImportLine appends the plant as a line of an import: as a NewPlant, or only its id, and the
// version that the plant in the store must have, unless it is empty.
func AppendImportLine(dst []byte, p plantstore.Plant, onlyID bool, ifVersion string) (_ []byte, err error) {
	if onlyID {
		dst = append(strconv.AppendInt(append(dst, `{"id":`...), int64(p.ID), 10), '}')
	} else if dst, err = AppendNewPlant(dst, p); err != nil {
		return dst, err
	}
	if ifVersion == "" {
		return dst, nil
	}
	dst, err = appendText(append(dst[:len(dst)-1], `,"if_version":`...), "if_version", ifVersion)
	return append(dst, '}'), err
}

// appendFields appends name and tag and closes the object.
func appendFields(dst []byte, p plantstore.Plant) ([]byte, error) {
	dst, err := appendText(append(dst, `"name":`...), "name", p.Name)
	if err != nil {
		return dst, err
	}
	if text, ok := p.Tag.Text(); ok {
		if dst, err = appendText(append(dst, `,"tag":`...), "tag", text); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// AppendPlantPatch appends the patch as JSON Merge Patch: null removes the tag.
func AppendPlantPatch(dst []byte, p plantstore.PlantPatch) (_ []byte, err error) {
	dst = append(dst, '{')
	if p.Name != nil {
		if dst, err = appendText(append(dst, `"name":`...), "name", *p.Name); err != nil {
			return dst, err
		}
	}
	if p.Tag != nil {
		if p.Name != nil {
			dst = append(dst, ',')
		}
		dst = append(dst, `"tag":`...)
		if text, ok := p.Tag.Text(); !ok {
			dst = append(dst, "null"...)
		} else if dst, err = appendText(dst, "tag", text); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendText(dst []byte, field, text string) ([]byte, error) {
	dst, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		return dst, plantstore.Errorf(plantstore.ErrNotJSON, "%q must be valid UTF-8, got %q", field, plantstore.Shorten(text))
	}
	return dst, nil
}

// FormatIDs returns ids as the parameter of a list has them.
func FormatIDs(ids []plantstore.ID) string {
	var text []byte
	for i, id := range ids {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(id), 10)
	}
	return string(text)
}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// DecodeNewPlant reads a body that is one NewPlant. It fails with an
// [*plantstore.Error] that names everything that is wrong with it. The body is
// consumed.
func DecodeNewPlant(body *bytes.Buffer) (plantstore.Plant, error) { return decode(body, true) }

// DecodePlant reads a body that is one Plant, which has no id.
func DecodePlant(body *bytes.Buffer) (plantstore.Plant, error) { return decode(body, false) }

// DecodeLine reads a line of an import: a NewPlant, or only its id, and the version that the plant
// in the store must have, which is empty if it does not matter.
func DecodeLine(body *bytes.Buffer, onlyID bool) (p plantstore.Plant, ifVersion string, err error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(body)
	m := members{withID: true, isLine: true, onlyID: onlyID}
	if err := expectEnd(dec, m.decode(dec)); err != nil {
		return p, "", err
	}
	return m.plant.Plant, m.ifVersion, nil
}

// DecodePlantPatch reads a body that is a JSON Merge Patch of a Plant.
func DecodePlantPatch(body *bytes.Buffer) (plantstore.PlantPatch, error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(body)
	m := members{isPatch: true}
	if err := expectEnd(dec, m.decode(dec)); err != nil {
		return plantstore.PlantPatch{}, err
	}
	var p plantstore.PlantPatch
	if m.hasName {
		p.Name = &m.plant.Name
	}
	if m.hasTag {
		p.Tag = &m.plant.Tag
	}
	return p, nil
}

func decode(body *bytes.Buffer, withID bool) (plantstore.Plant, error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(body)
	m := members{withID: withID}
	if err := expectEnd(dec, m.decode(dec)); err != nil {
		return plantstore.Plant{}, err
	}
	return m.plant.Plant, nil
}

// DecodeStoredPlant reads a body that is one Plant, with or without details.
func DecodeStoredPlant(body []byte) (plantstore.StoredPlant, error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	m := members{withDetails: true}
	err := expectEnd(dec, m.decode(dec))
	return m.plant, err
}

// expectEnd refuses anything after the value that err is about, or a body without one. A
// problem with a field matters only in a body that is JSON to its end.
func expectEnd(dec *jsontext.Decoder, err error) error {
	switch {
	case err == io.EOF:
		return plantstore.Errorf(plantstore.ErrNotJSON, "the body is empty: send a JSON object")
	case errors.Is(err, plantstore.ErrNotJSON):
		return err
	}
	at := dec.InputOffset()
	switch _, end := dec.ReadToken(); {
	case end == io.EOF:
		return err
	case end != nil:
		return notJSON(end)
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "not JSON: unexpected data after the value, which ends at byte %d", at)
}

// DecodeStored reads a body that is an array of NewPlants, with or without details.
func DecodeStored(body []byte) (plants []plantstore.StoredPlant, err error) {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if dec.PeekKind() != '[' {
		return nil, errors.New("not a JSON array")
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	for dec.PeekKind() != ']' {
		m := members{withID: true, withDetails: true}
		if err := m.decode(dec); err != nil {
			return nil, err
		}
		plants = append(plants, m.plant)
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, err
	}
	return plants, expectEnd(dec, nil)
}

// PlantReader reads a stream of NewPlants, with or without details.
type PlantReader struct{ dec *jsontext.Decoder }

// NewPlantReader returns a reader of the NewPlants in r.
func NewPlantReader(r io.Reader) *PlantReader { return &PlantReader{jsontext.NewDecoder(r)} }

// Next returns the next plant, or io.EOF after the last.
func (r *PlantReader) Next() (plantstore.StoredPlant, error) {
	m := members{withID: true, withDetails: true}
	err := m.decode(r.dec)
	return m.plant, err
}

// decode reads the next value as a NewPlant, or as a Plant. It returns io.EOF
// if there is none, and reads the whole value unless that is not JSON.
func (m *members) decode(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		return refuseValue(dec)
	}
	if err := m.read(dec); err != nil {
		return notJSON(err)
	}
	if m.withID && !m.hasID {
		m.problems.Add(plantstore.ErrMissing, `"id" is missing: send an integer`)
	}
	if !m.hasName && !m.isPatch && !m.onlyID {
		m.problems.Add(plantstore.ErrMissing, `"name" is missing: send a string`)
	}
	return m.problems.Err()
}

// refuseValue reads a value that is not an object, and returns the error for it, or
// io.EOF if there is none.
func refuseValue(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	switch err := dec.SkipValue(); {
	case err == io.EOF:
		return err
	case err != nil:
		return notJSON(err)
	}
	return plantstore.Errorf(plantstore.ErrNotObject, "not a JSON object: got %s", kindName(kind))
}

// members are the members of an object that have been read.
type members struct {
	withID, withDetails    bool // whether they are members, and not unknown ones
	isPatch                bool // no member is required, and a tag may be null
	isLine, onlyID         bool // of an import, which may have a condition, and of which only the id matters
	ifVersion              string
	plant                  plantstore.StoredPlant
	hasID, hasName, hasTag bool
	problems               plantstore.Problems
}

// read reads an object. An error says that it is not JSON.
func (m *members) read(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return err
		}
		switch member := memberName(name); {
		case member == "id" && m.withID:
			m.hasID = true
			err = m.readID(dec)
		case m.onlyID && (member == "name" || member == "tag"):
			err = dec.SkipValue()
		case m.isLine && member == "if_version":
			err = m.readVersion(dec)
		case member == "name":
			m.hasName = true
			_, err = m.readText(dec, "name", &m.plant.Name)
		case member == "tag" && m.isPatch && dec.PeekKind() == 'n':
			m.hasTag = true
			err = dec.SkipValue()
		case member == "tag":
			m.hasTag = true
			var text string
			var ok bool
			if ok, err = m.readText(dec, "tag", &text); ok {
				m.plant.Tag = plantstore.NewTag(text)
			}
		case m.withDetails && (member == "version" || member == "created" || member == "updated"):
			err = m.readDetail(dec, member)
		default:
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

func (m *members) readID(dec *jsontext.Decoder) error {
	kind := dec.PeekKind()
	value, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if kind != '0' {
		m.problems.Add(plantstore.ErrType, `"id" must be an integer, got %s`, kindName(kind))
		return nil
	}
	m.problems.Wrap("id", m.plant.ID.UnmarshalJSON(value))
	return nil
}

// readVersion reads the version of a condition. No plant has the empty one.
func (m *members) readVersion(dec *jsontext.Decoder) error {
	ok, err := m.readText(dec, "if_version", &m.ifVersion)
	if ok && m.ifVersion == "" {
		m.problems.Add(plantstore.ErrType, `"if_version" must be a version of a plant, got ""`)
	}
	return err
}

func (m *members) readText(dec *jsontext.Decoder, field string, into *string) (bool, error) {
	kind := dec.PeekKind()
	if kind != '"' {
		if err := dec.SkipValue(); err != nil {
			return false, err
		}
		m.problems.Add(plantstore.ErrType, "%q must be a string, got %s", field, kindName(kind))
		return false, nil
	}
	value, err := dec.ReadValue()
	if err != nil {
		return false, err
	}
	*into = unquote(value)
	return true, nil
}

// readDetail reads a version, or a time. One that this release does not know is left out.
func (m *members) readDetail(dec *jsontext.Decoder, member string) error {
	var text string
	if ok, err := m.readText(dec, member, &text); err != nil || !ok {
		return err
	}
	if member == "version" {
		m.plant.Version, _ = plantstore.ParseVersion(text)
	} else if at, err := ParseTime(text); err == nil && member == "created" {
		m.plant.Created = at.UnixMicro()
	}
	return nil
}

// memberName returns the name of a member, or "" for an unknown one. Only an
// escaped name needs to be unquoted.
func memberName(quoted jsontext.Value) string {
	switch string(quoted) {
	case `"id"`:
		return "id"
	case `"name"`:
		return "name"
	case `"tag"`:
		return "tag"
	case `"if_version"`:
		return "if_version"
	case `"version"`:
		return "version"
	case `"created"`:
		return "created"
	case `"updated"`:
		return "updated"
	}
	if bytes.IndexByte(quoted, '\\') < 0 {
		return ""
	}
	return unquote(quoted)
}

func unquote(quoted jsontext.Value) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	text, err := jsontext.AppendUnquote(nil, quoted)
	if err != nil {
		panic("unquote a value that the decoder accepted: " + err.Error())
	}
	return string(text)
}

func kindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[':
		return "an array"
	}
	return "an object"
}

// notJSON says why a text is not JSON, and where.
func notJSON(err error) error {
	at, member := int64(0), ""
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, member, err = syntax.ByteOffset, syntax.JSONPointer.LastToken(), syntax.Err
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		err = fmt.Errorf("duplicate member %q", plantstore.Shorten(member))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = errors.New("unexpected end")
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "not JSON: %v at byte %d", err, at)
}
