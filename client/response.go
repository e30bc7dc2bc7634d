package client

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"plantstore"
	"plantstore/internal/wire"
)

func queryParams(q plantstore.Query) (url.Values, error) {
	params := url.Values{}
	if q.IDs != nil {
		done := func(id plantstore.ID) bool { return q.After != nil && id <= *q.After }
		params.Set("id", wire.FormatIDs(slices.DeleteFunc(slices.Clone(q.IDs), done)))
	} else if q.Order.ByName() {
		if q.AfterName != "" {
			params.Set("after", string(q.AfterName))
		}
	} else if q.After != nil {
		params.Set("after", q.After.String())
	}
	if q.Order != "" && q.Order != plantstore.ByID {
		params.Set("order", string(q.Order))
	}
	if text, ok := q.Tag.Text(); ok {
		params.Set("tag", text)
	}
	for _, tag := range q.Tags {
		params.Add("tag", tag)
	}
	if q.TagPrefix != nil {
		params.Set("tag_prefix", *q.TagPrefix)
	}
	if q.Untagged {
		params.Set("untagged", "true")
	}
	if q.Contains != "" {
		params.Set("q", q.Contains)
	}
	if q.Details {
		params.Set("details", "true")
	}
	return params, checkParams(params)
}

// checkParams refuses text that a URL cannot express.
func checkParams(params url.Values) error {
	for name, values := range params {
		for _, value := range values {
			if !utf8.ValidString(value) {
				return plantstore.Errorf(plantstore.ErrParameter, "%q must be valid UTF-8, got %q", name, plantstore.Shorten(value))
			}
		}
	}
	return nil
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
			return plantstore.Errorf(plantstore.ErrParameter, "%s must be * or a list of quoted ETags, got %q", name, plantstore.Shorten(string(tag)))
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
	opaque, opens := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	opaque, closes := strings.CutSuffix(opaque, `"`)
	return opens && closes && !strings.ContainsFunc(opaque, func(c rune) bool { return c <= ' ' || c == '"' || c == 0x7f })
}

// response is a response that has been read to its end.
type response struct {
	status string
	header http.Header
	body   []byte
}

// maxBody limits the memory for a response. It is far above the largest one of a server.
const maxBody = 64 << 20

// readResponse reads a response that must have the status, and be JSON unless it is
// empty. It reads to the end, so that the connection can be used again.
func readResponse(resp *http.Response, status int) (*response, error) {
	if resp.StatusCode != status {
		return nil, responseError(resp)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, transportError(fmt.Errorf("the response was cut off: %w", err))
	}
	if len(body) > maxBody {
		return nil, fmt.Errorf("the response is larger than the limit of %d MiB", maxBody>>20)
	}
	r := &response{resp.Status, resp.Header, body}
	if status != http.StatusNoContent && !r.isJSON() {
		return nil, r.unexpected()
	}
	return r, nil
}

// maxErrorBody is how much of the body of an error is read.
const maxErrorBody = 256 << 10

// responseError returns the error for a response.
func responseError(resp *http.Response) error {
	body, cut := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	r := &response{resp.Status, resp.Header, body}
	err := r.err(resp.StatusCode)
	if cut != nil {
		err = fmt.Errorf("the response %q was cut off: %w", r.status, cut)
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &transient{err: err, after: retryAfter(resp.Header), maybeApplied: true}
	case http.StatusTooManyRequests:
		return &transient{err: err, after: retryAfter(resp.Header)}
	}
	if cut != nil {
		return &transient{err: err}
	}
	return err
}

// err returns the error in the response, or one made from its status if something
// other than a Plant Store sent it.
func (r *response) err(status int) error {
	if r.isJSON() {
		if e, err := wire.DecodeError(r.body); err == nil && int(e.Code)/100 == status {
			return e
		}
	}
	err := r.unexpected()
	if code, ok := codeOf[status]; ok {
		return &plantstore.Error{Code: code, Message: err.Error()}
	}
	return err
}

// codeOf maps the statuses of proxies and other servers to codes. Their 404 says nothing
// about a plant.
var codeOf = map[int]plantstore.Code{
	http.StatusUnauthorized:                plantstore.ErrBadToken,
	http.StatusForbidden:                   plantstore.ErrScope,
	http.StatusNotFound:                    plantstore.ErrNoPath,
	http.StatusMethodNotAllowed:            plantstore.ErrMethod,
	http.StatusRequestTimeout:              plantstore.ErrTimeout,
	http.StatusGone:                        plantstore.ErrGone,
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

// unexpected returns the error of a response that does not come from a Plant Store.
func (r *response) unexpected() error {
	if to := r.header.Get("Location"); to != "" {
		return fmt.Errorf("the response is %q, a redirect to %q, which is not followed: is the base URL right?", r.status, plantstore.Shorten(to))
	}
	media := cmp.Or(r.header.Get("Content-Type"), "no Content-Type")
	return fmt.Errorf("the response is %q with %s and not from a Plant Store: is the base URL right, and is there a proxy in between?", r.status, media)
}

// confirm checks that the response to a write is the plant that was sent.
func (r *response) confirm(sent plantstore.Plant) error {
	got, err := r.plant()
	if err != nil {
		return err
	}
	if got.Name != sent.Name || got.Tag != sent.Tag {
		return fmt.Errorf("the response is %q with a plant other than the one sent", r.status)
	}
	return nil
}

func (r *response) plant() (plantstore.Plant, error) {
	return decodeBody(r, func(body []byte) (plantstore.Plant, error) { return wire.DecodePlant(bytes.NewBuffer(body)) })
}

// storedPlant returns the plant in a response about it, with the version in its ETag. A proxy may
// have made that a weak one. A version of a release that this one does not know is left out.
func (r *response) storedPlant(id plantstore.ID) (stored plantstore.StoredPlant, err error) {
	stored.Plant, err = r.plant()
	stored.ID = id
	etag := strings.TrimPrefix(r.header.Get("ETag"), "W/")
	stored.Version, _ = plantstore.ParseVersion(strings.Trim(etag, `"`))
	return stored, err
}

// decodeBody returns the decoded body of a response.
func decodeBody[Value any](r *response, decode func([]byte) (Value, error)) (Value, error) {
	value, err := decode(r.body)
	if err != nil {
		return *new(Value), r.unexpected()
	}
	return value, nil
}

// page reads a page of a query. The link to the next page has the id of its last plant, or else
// the remaining ids.
func (r *response) page(q *plantstore.Query) (page plantstore.Page, err error) {
	var ok bool
	if page.Plants, err = decodeBody(r, wire.DecodeStored); err != nil {
		return page, err
	}
	if q.Count {
		// A server that does not know the parameter refuses it.
		if page.Count, ok = wire.ParseCount(r.header.Get(wire.HeaderCount)); !ok {
			return page, fmt.Errorf("the response has no %s, or one that is no count: is there a proxy in between that removes it?", wire.HeaderCount)
		}
	}
	var link url.Values
	if link, ok, err = r.next(); !ok {
		return page, err
	}
	if q.Order.ByName() {
		if page.NextName = plantstore.NameCursor(link.Get("after")); page.NextName == "" || page.NextName == q.AfterName {
			return page, fmt.Errorf("the next page starts after %q, but this page already started after %q", plantstore.Shorten(string(page.NextName)), plantstore.Shorten(string(q.AfterName)))
		}
		return page, nil
	}
	first, _, _ := strings.Cut(link.Get("id"), ",")
	number, err := strconv.ParseInt(cmp.Or(first, link.Get("after")), 10, 64)
	if err != nil {
		return page, fmt.Errorf(`read "after" in the link to the next page: %w`, err)
	}
	next := plantstore.ID(number)
	if first != "" {
		next--
	}
	if q.After != nil && q.CompareIDs(next, *q.After) <= 0 {
		return page, fmt.Errorf("the next page starts after %d, but this page already started after %d", next, *q.After)
	}
	page.Next = &next
	return page, nil
}

// tagPage reads a page of tags that starts at from.
func (r *response) tagPage(from string) (page plantstore.TagPage, err error) {
	if page.Tags, err = decodeBody(r, wire.DecodeTags); err != nil {
		return page, err
	}
	link, ok, err := r.next()
	if !ok {
		return page, err
	}
	if page.Next = link.Get("from"); page.Next <= from {
		return page, fmt.Errorf("the next page starts at %q, but this page already started at %q", plantstore.Shorten(page.Next), plantstore.Shorten(from))
	}
	return page, nil
}

func (r *response) isJSON() bool { return isMedia(r.header, wire.MediaJSON) }

func isMedia(h http.Header, want string) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == want
}

// next returns a parameter of the link to the next page, if there is one. Nothing else of
// the link is used: the token must not go to another host.
func (r *response) next() (params url.Values, ok bool, err error) {
	link, ok := nextLink(r.header["Link"])
	if !ok {
		return nil, false, nil
	}
	target, err := url.Parse(link)
	if err != nil {
		return nil, false, fmt.Errorf("read the link to the next page: %w", err)
	}
	return target.Query(), true, nil
}

// linkValue matches the target and the parameters of a link (RFC 8288). The parameters last
// until the next target: this service sends no quoted < in them.
var linkValue = regexp.MustCompile(`<([^>]*)>([^<]*)`)

// nextLink returns the target of the link with rel="next".
func nextLink(values []string) (string, bool) {
	for _, value := range values {
		for _, match := range linkValue.FindAllStringSubmatch(value, -1) {
			if target, params := match[1], match[2]; isNext(params) {
				return target, true
			}
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
