package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

const mediaJSON = "application/json"

// The header values that every answer carries, made once.
var (
	headerJSON    = []string{mediaJSON}
	headerNosniff = []string{"nosniff"}
	headerClose   = []string{"close"}
)

// buffers holds bodies and answers. One that grew large is left to the collector.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const keepBuffer = 64 << 10

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= keepBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// readPlant reads the request's body as a plant with these fields.
func (s *Server) readPlant(w http.ResponseWriter, r *http.Request, want fields) (plantstore.Plant, error) {
	if err := checkMedia(r, mediaJSON); err != nil {
		return plantstore.Plant{}, err
	}
	body := buffers.Get().(*bytes.Buffer)
	defer putBuffer(body)
	if err := s.readBody(w, r, body); err != nil {
		return plantstore.Plant{}, err
	}
	return decodePlant(body, want)
}

// checkMedia refuses a body of another media type than want, or a compressed one.
func checkMedia(r *http.Request, want string) error {
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return refuse(plantstore.ErrMediaType, "the body has the Content-Encoding %q: send it without one", encoding)
		}
	}
	// Several lines are one, with commas.
	got := strings.Join(r.Header["Content-Type"], ", ")
	if got == want {
		return nil
	}
	if media, _, err := mime.ParseMediaType(got); err == nil && media == want {
		return nil
	}
	if got == "" {
		return refuse(plantstore.ErrMediaType, "the request has no Content-Type: send %s", want)
	}
	return refuse(plantstore.ErrMediaType, "the Content-Type must be %s, got %q", want, got)
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) error {
	if r.ContentLength > s.maxBody {
		return s.tooLarge()
	}
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		select {
		case s.largeBodies <- struct{}{}:
			defer func() { <-s.largeBodies }()
		default:
			return refuse(plantstore.ErrUnavailable, "too many large bodies are on their way: try again later")
		}
	}
	// The caller has not sent what it announces: memory comes with the bytes.
	body.Grow(int(min(max(r.ContentLength, 0), keepBuffer/2)) + bytes.MinRead)
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, s.maxBody))
	var large *http.MaxBytesError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return s.tooLarge()
	}
	return bodyError(err)
}

func (s *Server) tooLarge() error {
	return refuse(plantstore.ErrTooLarge, "the body is larger than the %d bytes that are allowed", s.maxBody)
}

// Bodies that may be large have a common bound while they are on their way: callers
// that send slowly could fill the memory with them.
const (
	smallBody    = 64 << 10
	bodiesAtOnce = 64 << 20
)

// fields says which members a body has beside name and tag.
type fields struct{ id bool }

// The bodies of the interface.
var (
	newPlantFields = fields{id: true}
	plantFields    = fields{}
)

// problems gathers what is wrong with the fields of a body, so that the caller
// hears of all at once. Its code is that of the first.
type problems []plantstore.Error

func (p *problems) add(code plantstore.Code, format string, args ...any) {
	*p = append(*p, plantstore.Error{Code: code, Message: fmt.Sprintf(format, args...)})
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	texts := make([]string, len(p))
	for i := range p {
		texts[i] = p[i].Message
	}
	return &plantstore.Error{Code: p[0].Code, Message: strings.Join(texts, "; ")}
}

var decoders = sync.Pool{New: func() any { return new(jsontext.Decoder) }}

// decodePlant reads one JSON object, strictly: RFC 8259 and I-JSON, so no
// duplicate names, no invalid UTF-8, no unpaired surrogates, nothing behind it.
func decodePlant(body *bytes.Buffer, want fields) (plantstore.Plant, error) {
	dec := decoders.Get().(*jsontext.Decoder)
	defer decoders.Put(dec)
	dec.Reset(body)
	if kind := dec.PeekKind(); kind != '{' {
		if err := dec.SkipValue(); err != nil {
			return plantstore.Plant{}, notJSON(err)
		}
		if err := atEnd(dec); err != nil {
			return plantstore.Plant{}, err
		}
		return plantstore.Plant{}, refuse(plantstore.ErrNotObject, "not a JSON object: got %s", kindName(kind))
	}
	plant, err := decodeMembers(dec, want)
	if err != nil {
		return plantstore.Plant{}, err
	}
	return plant, nil
}

func decodeMembers(dec *jsontext.Decoder, want fields) (plant plantstore.Plant, err error) {
	if _, err := dec.ReadToken(); err != nil {
		return plant, notJSON(err)
	}
	var bad problems
	var hasID, hasName bool
	for dec.PeekKind() != '}' {
		name, err := dec.ReadValue()
		if err != nil {
			return plant, notJSON(err)
		}
		switch member := memberName(name); {
		case member == "id" && want.id:
			hasID = true
			err = decodeID(dec, &plant.ID, &bad)
		case member == "name":
			hasName = true
			_, err = decodeString(dec, "name", &plant.Name, &bad)
		case member == "tag":
			var text string
			var ok bool
			if ok, err = decodeString(dec, "tag", &text, &bad); ok {
				plant.Tag = plantstore.NewTag(text)
			}
		default:
			err = dec.SkipValue()
		}
		if err != nil {
			return plant, notJSON(err)
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return plant, notJSON(err)
	}
	if err := atEnd(dec); err != nil {
		return plant, err
	}
	if want.id && !hasID {
		bad.add(plantstore.ErrMissing, `"id" is missing: send an integer`)
	}
	if !hasName {
		bad.add(plantstore.ErrMissing, `"name" is missing: send a string`)
	}
	return plant, bad.err()
}

// atEnd refuses anything behind the value.
func atEnd(dec *jsontext.Decoder) error {
	switch _, err := dec.ReadToken(); {
	case err == io.EOF:
		return nil
	case err != nil:
		return notJSON(err)
	}
	return refuse(plantstore.ErrNotJSON, "not JSON: something follows the value before byte %d", dec.InputOffset())
}

// memberName returns the name of a member, or "" for one that is none of ours.
// Only an escaped name needs to be unquoted.
func memberName(quoted jsontext.Value) string {
	switch string(quoted) {
	case `"id"`:
		return "id"
	case `"name"`:
		return "name"
	case `"tag"`:
		return "tag"
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
		panic("unquote what the decoder accepted: " + err.Error())
	}
	return string(text)
}

func decodeString(dec *jsontext.Decoder, field string, into *string, bad *problems) (bool, error) {
	if kind := dec.PeekKind(); kind != '"' {
		if err := dec.SkipValue(); err != nil {
			return false, err
		}
		bad.add(plantstore.ErrType, "%q must be a string, got %s", field, kindName(kind))
		return false, nil
	}
	quoted, err := dec.ReadValue()
	if err != nil {
		return false, err
	}
	*into = unquote(quoted)
	return true, nil
}

func decodeID(dec *jsontext.Decoder, into *plantstore.ID, bad *problems) error {
	if kind := dec.PeekKind(); kind != '0' {
		if err := dec.SkipValue(); err != nil {
			return err
		}
		bad.add(plantstore.ErrType, `"id" must be an integer, got %s`, kindName(kind))
		return nil
	}
	number, err := dec.ReadValue()
	if err != nil {
		return err
	}
	n, err := parseInteger(number)
	switch {
	case errors.Is(err, strconv.ErrRange):
		bad.add(plantstore.ErrRange, `"id" must be from -9223372036854775808 to 9223372036854775807, got %s`, shorten(number))
	case err != nil:
		bad.add(plantstore.ErrType, `"id" must be an integer, got %s`, shorten(number))
	}
	*into = plantstore.ID(n)
	return nil
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

func shorten(number []byte) string {
	const most = 40
	if len(number) <= most {
		return string(number)
	}
	return string(number[:most]) + "…"
}

func notJSON(err error) error {
	at := int64(0)
	member := ""
	if bad, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, member, err = bad.ByteOffset, bad.JSONPointer.LastToken(), bad.Err
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return refuse(plantstore.ErrNotJSON, "not JSON: the member %q comes twice, again at byte %d", shorten([]byte(member)), at)
	case errors.Is(err, io.EOF):
		return refuse(plantstore.ErrNotJSON, "the body is empty: send a JSON object")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(plantstore.ErrNotJSON, "not JSON: it ends too early, at byte %d", at)
	}
	return refuse(plantstore.ErrNotJSON, "not JSON: %v at byte %d", err, at)
}

// writePlant answers with a Plant.
func writePlant(w http.ResponseWriter, p plantstore.Plant) error {
	answer := buffers.Get().(*bytes.Buffer)
	defer putBuffer(answer)
	answer.Write(append(appendFields(append(answer.AvailableBuffer(), '{'), p), '\n'))
	return writeJSON(w, http.StatusOK, answer.Bytes())
}

// writePlants answers with an array of NewPlants.
func writePlants(w http.ResponseWriter, plants []plantstore.Plant) error {
	answer := buffers.Get().(*bytes.Buffer)
	defer putBuffer(answer)
	b := append(answer.AvailableBuffer(), '[')
	for i, p := range plants {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNewPlant(b, p)
	}
	answer.Write(append(b, "]\n"...))
	return writeJSON(w, http.StatusOK, answer.Bytes())
}

func appendNewPlant(dst []byte, p plantstore.Plant) []byte {
	dst = strconv.AppendInt(append(dst, `{"id":`...), int64(p.ID), 10)
	return appendFields(append(dst, ','), p)
}

// appendFields writes name and tag and closes the object.
func appendFields(dst []byte, p plantstore.Plant) []byte {
	dst = appendString(append(dst, `"name":`...), p.Name)
	if text, ok := p.Tag.Text(); ok {
		dst = appendString(append(dst, `,"tag":`...), text)
	}
	return append(dst, '}')
}

func setETag(w http.ResponseWriter, p plantstore.Plant) {
	w.Header()["Etag"] = []string{string(p.ETag())}
}

func appendString(dst []byte, s string) []byte {
	dst, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		panic("a store returned text that is not UTF-8: " + err.Error())
	}
	return dst
}

func writeJSON(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h["Content-Type"] = headerJSON
	h["X-Content-Type-Options"] = headerNosniff
	w.WriteHeader(status)
	// A caller that does not wait for the answer does not make the call a failure.
	_, _ = w.Write(body)
	return nil
}

// aboutPlant says which plant a refusal of the store is about.
func aboutPlant(id plantstore.ID, err error) error {
	switch {
	case errors.Is(err, plantstore.ErrIDTaken):
		return refuse(plantstore.ErrIDTaken, `"id" %d is taken by another plant: choose another id`, id)
	case errors.Is(err, plantstore.ErrNoPlant):
		return refuse(plantstore.ErrNoPlant, "there is no plant with the id %d", id)
	case errors.Is(err, plantstore.ErrPrecondition):
		return refuse(plantstore.ErrPrecondition, "the plant with the id %d is not as the request expects: read it again", id)
	}
	return err
}

func refuse(code plantstore.Code, format string, args ...any) error {
	return &plantstore.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// statusOf is the table from errors to answers: the Code's own status and, where
// somebody wrote one, its message. An error that has no Code is a failure of
// ours, and its text stays in the log.
func statusOf(err error) (status int, answer plantstore.Error) {
	if e, ok := errors.AsType[*plantstore.Error](err); ok {
		return int(e.Code) / 100, *e
	}
	if code, ok := errors.AsType[plantstore.Code](err); ok {
		return int(code) / 100, plantstore.Error{Code: code, Message: code.Error()}
	}
	return http.StatusInternalServerError, plantstore.Error{
		Code: plantstore.ErrInternal, Message: "the server failed; the request id says where its log tells more",
	}
}

// writeError answers with an Error and the headers that belong to its status.
func writeError(w http.ResponseWriter, err error) {
	status, answer := statusOf(err)
	h := w.Header()
	switch answer.Code {
	case plantstore.ErrNoToken:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore"`)
	case plantstore.ErrBadToken, plantstore.ErrTokenExpired:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore", error="invalid_token"`)
	case plantstore.ErrScope:
		h.Set("WWW-Authenticate", `Bearer realm="plantstore", error="insufficient_scope"`)
	case plantstore.ErrUnavailable, plantstore.ErrRate:
		h.Set("Retry-After", "1")
	case plantstore.ErrTimeout, plantstore.ErrTooLarge, plantstore.ErrHeaders:
		h.Set("Connection", "close")
	}
	_ = writeJSON(w, status, append(appendError([]byte{'{'}, answer), "}\n"...))
}

func appendError(dst []byte, e plantstore.Error) []byte {
	dst = strconv.AppendInt(append(dst, `"error":`...), int64(e.Code), 10)
	return appendString(append(dst, `,"message":`...), strings.ToValidUTF8(e.Message, "\uFFFD"))
}
