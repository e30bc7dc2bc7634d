package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

const (
	mediaJSON   = "application/json"
	mediaNDJSON = "application/x-ndjson"
)

// appendNewPlant writes the plant with its id, as a create or an import wants it.
func appendNewPlant(dst []byte, p plantstore.Plant) ([]byte, error) {
	dst = strconv.AppendInt(append(dst, `{"id":`...), int64(p.ID), 10)
	return appendFields(append(dst, ','), p)
}

// appendPlant writes the plant without its id, as a replace wants it.
func appendPlant(dst []byte, p plantstore.Plant) ([]byte, error) {
	return appendFields(append(dst, '{'), p)
}

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

func appendText(dst []byte, field, text string) ([]byte, error) {
	dst, err := jsontext.AppendQuote(dst, text)
	if err != nil {
		return dst, refuse(plantstore.ErrNotJSON, "%q must be valid UTF-8, got %s", field, shorten(text))
	}
	return dst, nil
}

func queryParams(q plantstore.Query) (url.Values, error) {
	params := url.Values{}
	if q.After != nil {
		params.Set("after", strconv.FormatInt(int64(*q.After), 10))
	}
	if text, ok := q.Tag.Text(); ok {
		params.Set("tag", text)
	}
	if q.Contains != "" {
		params.Set("q", q.Contains)
	}
	for name, values := range params {
		if !utf8.ValidString(values[0]) {
			return nil, refuse(plantstore.ErrParameter, "%q must be valid UTF-8, got %s", name, shorten(values[0]))
		}
	}
	return params, nil
}

func conditionHeader(cond *plantstore.Condition) (http.Header, error) {
	header := http.Header{}
	if cond == nil {
		return header, nil
	}
	return header, errors.Join(
		setETags(header, "If-Match", cond.Match), setETags(header, "If-None-Match", cond.NoneMatch))
}

func setETags(header http.Header, name string, tags []plantstore.ETag) error {
	if len(tags) == 0 {
		return nil
	}
	texts := make([]string, len(tags))
	for i, tag := range tags {
		if !isETag(string(tag)) {
			return refuse(plantstore.ErrParameter, `%s must list ETags in quotes, or *, got %s`, name, shorten(string(tag)))
		}
		texts[i] = string(tag)
	}
	header.Set(name, strings.Join(texts, ", "))
	return nil
}

func isETag(text string) bool {
	if text == string(plantstore.AnyETag) {
		return true
	}
	opaque := strings.TrimPrefix(text, "W/")
	if len(opaque) < 2 || opaque[0] != '"' || opaque[len(opaque)-1] != '"' {
		return false
	}
	for _, c := range []byte(opaque[1 : len(opaque)-1]) {
		if c <= ' ' || c == '"' || c == 0x7f {
			return false
		}
	}
	return true
}

func shorten(text string) string {
	const most = 40
	if len(text) <= most {
		return strconv.Quote(text)
	}
	return strconv.Quote(text[:most]) + "…"
}

func refuse(code plantstore.Code, format string, args ...any) error {
	return &plantstore.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// answer is an answer that was read to its end.
type answer struct {
	status string
	header http.Header
	body   []byte
}

// readAnswer reads an answer that must have that status. Whatever it is, it is
// read to its end, so that the connection can be used again.
func readAnswer(ctx context.Context, resp *http.Response, status int) (*answer, error) {
	if resp.StatusCode != status {
		return nil, refusal(ctx, resp)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, unanswered(ctx, fmt.Errorf("the answer broke off: %w", err))
	}
	return &answer{resp.Status, resp.Header, body}, nil
}

// mostRefusal is how much is read of the body of a refusal.
const mostRefusal = 256 << 10

// refusal returns the error that an answer stands for.
func refusal(ctx context.Context, resp *http.Response) error {
	body, broke := io.ReadAll(io.LimitReader(resp.Body, mostRefusal))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	a := &answer{resp.Status, resp.Header, body}
	err := a.refusal(resp.StatusCode)
	if broke != nil {
		err = fmt.Errorf("the answer %q broke off: %w", a.status, broke)
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &transient{err: err, after: retryAfter(resp.Header), lost: true}
	case http.StatusTooManyRequests:
		return &transient{err: err, after: retryAfter(resp.Header)}
	}
	if broke != nil {
		return &transient{err: err}
	}
	return err
}

func (a *answer) refusal(status int) error {
	var e plantstore.Error
	if a.decode(func(dec *jsontext.Decoder) error { return decodeError(dec, &e, nil) }) == nil && int(e.Code)/100 == status {
		return &e
	}
	err := a.foreign()
	if code, ok := codeOf[status]; ok {
		return &plantstore.Error{Code: code, Message: err.Error()}
	}
	return err
}

// codeOf has the codes of statuses that somebody else answers with. No such 404
// says anything of a plant.
var codeOf = map[int]plantstore.Code{
	http.StatusUnauthorized:                plantstore.ErrBadToken,
	http.StatusForbidden:                   plantstore.ErrScope,
	http.StatusNotFound:                    plantstore.ErrNoPath,
	http.StatusMethodNotAllowed:            plantstore.ErrMethod,
	http.StatusRequestTimeout:              plantstore.ErrTimeout,
	http.StatusPreconditionFailed:          plantstore.ErrPrecondition,
	http.StatusRequestEntityTooLarge:       plantstore.ErrTooLarge,
	http.StatusUnsupportedMediaType:        plantstore.ErrMediaType,
	http.StatusTooManyRequests:             plantstore.ErrRate,
	http.StatusRequestHeaderFieldsTooLarge: plantstore.ErrHeaders,
	http.StatusInternalServerError:         plantstore.ErrInternal,
	http.StatusBadGateway:                  plantstore.ErrUnavailable,
	http.StatusServiceUnavailable:          plantstore.ErrUnavailable,
	http.StatusGatewayTimeout:              plantstore.ErrUnavailable,
}

// foreign says that the answer is none of a Plant Store.
func (a *answer) foreign() error {
	if to := a.header.Get("Location"); to != "" {
		return fmt.Errorf("the answer is %q, a redirect to %s, which is not followed: should the base URL be another?", a.status, shorten(to))
	}
	media := a.header.Get("Content-Type")
	if media == "" {
		media = "nothing"
	}
	return fmt.Errorf("the answer is %q with %s and not from a Plant Store: is the base URL right, and is a proxy in between?", a.status, media)
}

// confirm checks that the answer to a write is the plant that was sent.
func (a *answer) confirm(sent plantstore.Plant) error {
	got, err := a.plant()
	if err != nil {
		return err
	}
	if got.Name != sent.Name || got.Tag != sent.Tag {
		return fmt.Errorf("the answer is %q with another plant than was sent", a.status)
	}
	return nil
}

func (a *answer) plant() (plant plantstore.Plant, err error) {
	if a.decode(func(dec *jsontext.Decoder) error { return decodePlant(dec, &plant, false) }) != nil {
		return plantstore.Plant{}, a.foreign()
	}
	return plant, nil
}

// page reads a page of plants that come behind after.
func (a *answer) page(after *plantstore.ID) (page plantstore.Page, err error) {
	err = a.decode(func(dec *jsontext.Decoder) error {
		return decodeArray(dec, func() error {
			page.Plants = append(page.Plants, plantstore.Plant{})
			return decodePlant(dec, &page.Plants[len(page.Plants)-1], true)
		})
	})
	if err != nil {
		return page, a.foreign()
	}
	link, ok := nextLink(a.header["Link"])
	if !ok {
		return page, nil
	}
	next, err := linkAfter(link)
	if err != nil {
		return page, err
	}
	if after != nil && next <= *after {
		return page, fmt.Errorf("the next page is after %d, and so was this one: %d", next, *after)
	}
	page.Next = &next
	return page, nil
}

func (a *answer) report() (report ImportReport, err error) {
	if a.decode(func(dec *jsontext.Decoder) error { return decodeReport(dec, &report) }) != nil {
		return ImportReport{}, a.foreign()
	}
	return report, nil
}

// nextLink returns the target of the link with rel="next" (RFC 8288).
func nextLink(values []string) (string, bool) {
	for _, rest := range values {
		for {
			_, tail, open := strings.Cut(rest, "<")
			target, tail, closed := strings.Cut(tail, ">")
			if !open || !closed {
				break
			}
			// What follows up to the next target are parameters. A < within a
			// quoted one is nothing that this service sends.
			params, _, _ := strings.Cut(tail, "<")
			if isNext(params) {
				return target, true
			}
			rest = tail
		}
	}
	return "", false
}

func isNext(params string) bool {
	for param := range strings.FieldsFuncSeq(params, func(r rune) bool { return r == ';' || r == ',' }) {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "rel") {
			continue
		}
		for rel := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
			if strings.EqualFold(rel, "next") {
				return true
			}
		}
	}
	return false
}

// linkAfter returns the id after which the linked page begins. Only that counts
// of the link: the token does not go to another host.
func linkAfter(link string) (plantstore.ID, error) {
	target, err := url.Parse(link)
	if err != nil {
		return 0, fmt.Errorf("read the link to the next page: %w", err)
	}
	after, err := strconv.ParseInt(target.Query().Get("after"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf(`read "after" in the link to the next page: %w`, err)
	}
	return plantstore.ID(after), nil
}

// decode reads the body as one JSON value.
func (a *answer) decode(read func(*jsontext.Decoder) error) error {
	if !isMedia(a.header, mediaJSON) {
		return errForeign
	}
	dec := jsontext.NewDecoder(bytes.NewReader(a.body))
	if err := read(dec); err != nil {
		return err
	}
	if _, err := dec.ReadToken(); err != io.EOF {
		return errForeign
	}
	return nil
}

func isMedia(h http.Header, want string) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == want
}

// errForeign says that JSON is not what the interface describes.
var errForeign = errors.New("not what a Plant Store answers")

func decodePlant(dec *jsontext.Decoder, into *plantstore.Plant, wantID bool) error {
	var hasID, hasName bool
	err := decodeObject(dec, func(member string) error {
		switch member {
		case "id":
			hasID = true
			n, err := decodeInt(dec)
			into.ID = plantstore.ID(n)
			return err
		case "name":
			hasName = true
			text, err := decodeText(dec)
			into.Name = text
			return err
		case "tag":
			text, err := decodeText(dec)
			into.Tag = plantstore.NewTag(text)
			return err
		}
		return dec.SkipValue()
	})
	if err == nil && (!hasName || wantID && !hasID) {
		return errForeign
	}
	return err
}

// decodeError reads an Error, and its line if that is not nil.
func decodeError(dec *jsontext.Decoder, into *plantstore.Error, line *int64) error {
	var hasCode, hasMessage bool
	err := decodeObject(dec, func(member string) (err error) {
		switch {
		case member == "error":
			hasCode = true
			into.Code, err = decodeCode(dec)
		case member == "message":
			hasMessage = true
			into.Message, err = decodeText(dec)
		case member == "line" && line != nil:
			*line, err = decodeInt(dec)
		default:
			err = dec.SkipValue()
		}
		return err
	})
	if err == nil && (!hasCode || !hasMessage) {
		return errForeign
	}
	return err
}

func decodeReport(dec *jsontext.Decoder, into *ImportReport) error {
	counts := map[string]*int64{"created": &into.Created, "unchanged": &into.Unchanged, "failed": &into.Failed}
	hasErrors := false
	err := decodeObject(dec, func(member string) (err error) {
		if count := counts[member]; count != nil {
			delete(counts, member)
			*count, err = decodeInt(dec)
			return err
		}
		if member != "errors" {
			return dec.SkipValue()
		}
		hasErrors = true
		return decodeArray(dec, func() error {
			failed := LineError{Err: new(plantstore.Error)}
			err := decodeError(dec, failed.Err, &failed.Line)
			into.Errors = append(into.Errors, failed)
			return err
		})
	})
	if err == nil && (!hasErrors || len(counts) > 0) {
		return errForeign
	}
	return err
}

// decodeObject reads an object. value is called with the name of each member, and
// reads its value.
func decodeObject(dec *jsontext.Decoder, value func(member string) error) error {
	if err := begin(dec, '{'); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if err := value(name.String()); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// decodeArray reads an array. element is called before each element, and reads it.
func decodeArray(dec *jsontext.Decoder, element func() error) error {
	if err := begin(dec, '['); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		if err := element(); err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

func begin(dec *jsontext.Decoder, want jsontext.Kind) error {
	switch token, err := dec.ReadToken(); {
	case err != nil:
		return err
	case token.Kind() != want:
		return errForeign
	}
	return nil
}

func decodeText(dec *jsontext.Decoder) (string, error) {
	token, err := dec.ReadToken()
	if err != nil {
		return "", err
	}
	if token.Kind() != '"' {
		return "", errForeign
	}
	return token.String(), nil
}

// decodeInt reads an integer exactly: never through a float64.
func decodeInt(dec *jsontext.Decoder) (int64, error) {
	number, err := dec.ReadValue()
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(number), 10, 64)
	if err != nil {
		return 0, errForeign
	}
	return n, nil
}

func decodeCode(dec *jsontext.Decoder) (plantstore.Code, error) {
	n, err := decodeInt(dec)
	if err != nil || int64(int32(n)) != n {
		return 0, errors.Join(err, errForeign)
	}
	return plantstore.Code(n), nil
}
