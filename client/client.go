// Package client is the Go client of the Plant Store interface.
//
// A [Client] calls one server with one token:
//
//	c, err := client.New("https://plants.example.com", token, client.Options{})
//	…
//	err = c.Create(ctx, plantstore.Plant{ID: 1, Name: "Monstera"})
//
// # Errors
//
// A request that the server refuses fails with a [*plantstore.Error] that has the server's
// Code: check for one with errors.Is(err, plantstore.ErrIDTaken). An error response from
// something else, such as a proxy, has the Code for its HTTP status, if there is one. Text
// that is not valid UTF-8 is refused before it is sent, with ErrNotJSON, or ErrParameter in
// a query. Every other error names the call that failed. No error contains the token.
//
// # Retries
//
// The client retries requests that fail in transit, and those to which the server or a
// proxy responds with 429, 502, 503 or 504, after a pause, as set in [Options]. A
// failure that would recur, such as an unknown host or a bad certificate, ends the
// call immediately.
//
// Every write can be retried: creating the same plant again is a success, and so are
// replacing a plant with an equal one, patching it again and deleting one that a lost attempt
// has deleted. One caveat: if someone else writes the same plant between a lost attempt and its
// retry, a Replace, Patch or Delete without a condition undoes that write. A [plantstore.Condition]
// prevents it. CreateWebhook and RotateWebhook are retried only if the server has certainly
// not applied them.
package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// Options adjust a [Client]. The zero value of a field stands for its default.
type Options struct {
	// HTTP sends the requests. The default keeps up to 256 idle connections, waits 10 s for
	// a connection, 45 s for the start of a response, and 10 minutes for the start of the
	// response to an import or export, which may take long. Everything else is left to the
	// context of a call. A client given here is copied. Its Timeout applies to whole
	// imports and exports too. Its CheckRedirect is never called: redirects are refused,
	// because they would carry the token elsewhere.
	HTTP *http.Client

	// Retries is how often a failed call is retried. Default: 18. A negative number
	// means never. The pauses between attempts double from 0.1 s up to 5 s, and each
	// is shortened at random by up to half. 18 of them take at least 33 s, enough for
	// a failover of 30 s. A Retry-After of the server is added to the pause.
	Retries int

	// RetryTimeout limits how long after its first failure a call is retried. Default:
	// 1 minute. A Retry-After beyond it ends the call immediately.
	RetryTimeout time.Duration

	// Retrying, if set, is called before each retry, with the error of the failed
	// attempt and the pause before the next one. The error does not contain the token.
	Retrying func(err error, pause time.Duration)

	// TokenExpires, if set, is called for each response that announces when the token
	// expires. A server announces it within the last 7 days.
	TokenExpires func(at time.Time)
}

// The timeouts of the default HTTP client. A server tries to write for 30 s before it
// gives up, so a response may take a little longer than that.
const (
	connectTimeout  = 10 * time.Second
	responseTimeout = 45 * time.Second
	streamTimeout   = 10 * time.Minute
)

// Client calls a server. It is safe for concurrent use, and its calls share
// connections.
type Client struct {
	base    string // without a slash at its end
	token   string
	opts    Options // with defaults filled in
	calls   *http.Client
	streams *http.Client // for imports and exports
}

// New returns a client of the server at that base URL. It does not connect: the first
// call shows whether the URL and the token are valid. It fails with ErrNoToken if the
// token is empty.
func New(baseURL, token string, opts Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil || (base.Scheme != "http" && base.Scheme != "https") || base.Hostname() == "" ||
		base.User != nil || strings.ContainsAny(baseURL, "?#") {
		// The text is not shown: it may contain a password, or be the token.
		return nil, errors.New("the base URL must look like https://example.com or https://example.com/path")
	}
	if token == "" {
		return nil, plantstore.Errorf(plantstore.ErrNoToken, "no token was given: pass it as token, and check that PLANTSTORE_TOKEN is set if it comes from there")
	}
	if err := plantstore.CheckSecret(token); err != nil {
		return nil, err
	}
	opts.Retries = cmp.Or(opts.Retries, defaultRetries)
	opts.RetryTimeout = cmp.Or(opts.RetryTimeout, defaultRetryTimeout)
	c := &Client{base: strings.TrimRight(base.String(), "/"), token: token, opts: opts}
	if opts.HTTP != nil {
		c.calls = withoutRedirects(*opts.HTTP)
		c.streams = c.calls
		return c, nil
	}
	// Streams have connections of their own, so that a call never waits for one on
	// a shared connection (HTTP/2).
	c.calls = withoutRedirects(http.Client{Transport: newTransport(responseTimeout)})
	streams := newTransport(streamTimeout)
	streams.ReadBufferSize, streams.WriteBufferSize = streamBuffer, streamBuffer
	c.streams = withoutRedirects(http.Client{Transport: streams})
	return c, nil
}

func newTransport(response time.Duration) *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSHandshakeTimeout:   connectTimeout,
		ResponseHeaderTimeout: response,
		ExpectContinueTimeout: 5 * time.Second,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true, // it takes longer than most networks save
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second, // less than the server's
	}
}

func withoutRedirects(h http.Client) *http.Client {
	h.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &h
}

// CloseIdleConnections closes the connections that no call uses. The client can
// still be used.
func (c *Client) CloseIdleConnections() {
	c.calls.CloseIdleConnections()
	c.streams.CloseIdleConnections()
}

// Create adds a plant. When it returns nil the plant is durable. Creating the same
// plant again succeeds and changes nothing. It fails with ErrIDTaken if another plant
// has the id.
func (c *Client) Create(ctx context.Context, p plantstore.Plant) error {
	return c.retry(ctx, fmt.Sprintf("create plant %d", p.ID), func(bool) error { return c.createOnce(ctx, p) })
}

func (c *Client) createOnce(ctx context.Context, p plantstore.Plant) error {
	body, err := wire.AppendNewPlant(nil, p)
	if err != nil {
		return err
	}
	resp, err := c.call(ctx, http.StatusOK, http.MethodPost, "/plants", nil, body)
	if err != nil {
		return err
	}
	return resp.confirm(p)
}

// Get returns the plant with that id, with its version, but not when it was created, or
// ErrNoPlant. The plant's ETag method returns the tag for a [plantstore.Condition].
func (c *Client) Get(ctx context.Context, id plantstore.ID) (plantstore.StoredPlant, error) {
	return ask(ctx, c, fmt.Sprintf("get plant %d", id), http.MethodGet, plantPath(id), nil, func(r *response) (plantstore.StoredPlant, error) {
		return r.storedPlant(id)
	})
}

// Replace creates the plant, or replaces the one with its id. When it returns nil the
// plant is durable. If the condition does not hold it changes nothing and fails with
// ErrPrecondition; a nil condition always holds. If a response is lost, the write is repeated.
// With a Match that is not AnyETag, nobody knows then why the repeated one fails: see
// [OutcomeError].
func (c *Client) Replace(ctx context.Context, p plantstore.Plant, cond *plantstore.Condition) error {
	what := fmt.Sprintf("replace plant %d", p.ID)
	body, err := wire.AppendPlant(nil, p)
	if err != nil {
		return c.fail(what, err)
	}
	return c.writeIf(ctx, what, p.ID, cond, func(header http.Header, maybeApplied bool) error {
		resp, err := c.call(ctx, http.StatusOK, http.MethodPut, plantPath(p.ID), header, body)
		if maybeApplied && cond != nil && slices.Contains(cond.NoneMatch, plantstore.AnyETag) && errors.Is(err, plantstore.ErrPrecondition) {
			// The existing plant may be the one that an earlier attempt wrote. If so, creating it
			// changes nothing; if not, it is refused.
			if created := c.createOnce(ctx, p); !errors.Is(created, plantstore.ErrIDTaken) {
				return created
			}
		}
		if err != nil {
			return err
		}
		return resp.confirm(p)
	})
}

// GetDetails is Get with the time when the plant was created, which takes the server longer.
func (c *Client) GetDetails(ctx context.Context, id plantstore.ID) (plantstore.StoredPlant, error) {
	return ask(ctx, c, fmt.Sprintf("get plant %d", id), http.MethodGet, plantPath(id)+"?details=true", nil, func(r *response) (plantstore.StoredPlant, error) {
		plant, err := decodeBody(r, wire.DecodeStoredPlant)
		plant.ID = id
		return plant, err
	})
}

// Patch changes a part of the plant with that id, and returns the plant as it is then, with its
// version, but not when it was created. It fails with ErrNoPlant if there is none. When it returns
// nil the change is durable. If the condition does not hold it changes nothing and fails with
// ErrPrecondition; a nil condition always holds. With a Match that is not AnyETag, see
// [OutcomeError].
func (c *Client) Patch(ctx context.Context, id plantstore.ID, patch plantstore.PlantPatch, cond *plantstore.Condition) (plant plantstore.StoredPlant, err error) {
	what := fmt.Sprintf("patch plant %d", id)
	body, err := wire.AppendPlantPatch(nil, patch)
	if err != nil {
		return plant, c.fail(what, err)
	}
	err = c.writeIf(ctx, what, id, cond, func(header http.Header, _ bool) error {
		resp, err := c.call(ctx, http.StatusOK, http.MethodPatch, plantPath(id), header, body)
		if err != nil {
			return err
		}
		plant, err = resp.storedPlant(id)
		return err
	})
	if err != nil {
		return plantstore.StoredPlant{}, err
	}
	return plant, nil
}

// Delete removes the plant with that id, or fails with ErrNoPlant. When it returns
// nil the deletion is durable. If the condition does not hold it changes nothing and
// fails with ErrPrecondition; a nil condition always holds. If an attempt fails in
// transit, or with 502, 503 or 504, and the next one finds no plant, the earlier one
// is taken to have deleted it. With a Match that is not AnyETag, see [OutcomeError].
func (c *Client) Delete(ctx context.Context, id plantstore.ID, cond *plantstore.Condition) error {
	return c.writeIf(ctx, fmt.Sprintf("delete plant %d", id), id, cond, func(header http.Header, maybeApplied bool) error {
		_, err := c.call(ctx, http.StatusNoContent, http.MethodDelete, plantPath(id), header, nil)
		if maybeApplied && errors.Is(err, plantstore.ErrNoPlant) && !ofVersion(cond) {
			return nil
		}
		return err
	})
}

// OutcomeError is the error of a write with a version as its condition, if the response to an
// attempt was lost, or the context ended before it arrived, and no other attempt succeeded: that
// one may have been applied. Then the condition no longer holds.
type OutcomeError struct {
	Err error // of the last attempt
	// Now is the plant after that, unless ReadErr says why it is not known. That is ErrNoPlant if
	// there is none.
	Now     plantstore.StoredPlant
	ReadErr error
}

func (e *OutcomeError) Error() string {
	return "the outcome is unknown, because a response was lost; after that: " + e.Err.Error()
}

func (e *OutcomeError) Unwrap() error { return e.Err }

// ofVersion reports whether the condition requires a version.
func ofVersion(cond *plantstore.Condition) bool {
	return cond != nil && len(cond.Match) > 0 && !slices.Contains(cond.Match, plantstore.AnyETag)
}

// writeIf makes a write with a condition, and passes each attempt its header, and whether an
// earlier one may have been applied.
func (c *Client) writeIf(ctx context.Context, what string, id plantstore.ID, cond *plantstore.Condition, attempt func(header http.Header, maybeApplied bool) error) error {
	header, err := conditionHeader(cond)
	if err != nil {
		return c.fail(what, err)
	}
	lost, start := false, time.Now()
	err = c.retry(ctx, what, func(maybeApplied bool) error {
		err := attempt(header, maybeApplied)
		failed, ok := errors.AsType[*transient](err)
		lost = maybeApplied || ok && failed.maybeApplied
		return err
	})
	if err == nil || !lost || !ofVersion(cond) {
		return err
	}
	unknown, reader := &OutcomeError{Err: err}, *c
	reader.opts.RetryTimeout -= time.Since(start) // the call as a whole takes no longer than others
	unknown.Now, unknown.ReadErr = reader.GetDetails(ctx, id)
	return unknown
}

// remove makes a call that deletes something. gone is the error for there being nothing to
// delete: if an earlier attempt may have been applied, it is a success.
func (c *Client) remove(ctx context.Context, what, path string, header http.Header, gone error) error {
	return c.retry(ctx, what, func(maybeApplied bool) error {
		_, err := c.call(ctx, http.StatusNoContent, http.MethodDelete, path, header, nil)
		if maybeApplied && errors.Is(err, gone) {
			return nil
		}
		return err
	})
}

// Token returns a description of the client's token.
func (c *Client) Token(ctx context.Context) (plantstore.TokenInfo, error) {
	return decoded(ctx, c, "get the token", http.MethodGet, "/token", nil, decodeToken)
}

// GetToken returns the token with this id, or ErrNoTokenID.
func (c *Client) GetToken(ctx context.Context, id string) (plantstore.TokenInfo, error) {
	return decoded(ctx, c, "get token "+id, http.MethodGet, tokenPath(id), nil, decodeToken)
}

func tokenPath(id string) string { return "/tokens/" + url.PathEscape(id) }

func decodeToken(body []byte) (plantstore.TokenInfo, error) {
	token, _, err := wire.DecodeToken(body)
	return token, err
}

// About returns a description of the server, and the limits that apply to the client's
// token.
func (c *Client) About(ctx context.Context) (plantstore.About, error) {
	return decoded(ctx, c, "get the server's version and limits", http.MethodGet, "/about", nil, wire.DecodeAbout)
}

// CreateToken creates a token and returns it with its secret. It fails with ErrPrivilege
// if the token would have more rights than the client's, and with ErrTooMany if there are
// [plantstore.MaxTokens].
//
// It is not retried if the server may have created the token: its secret would be known
// to nobody, and a retry would create another.
func (c *Client) CreateToken(ctx context.Context, n plantstore.NewToken) (t plantstore.TokenInfo, secret string, err error) {
	const what = "create a token"
	body, err := wire.EncodeNewToken(n)
	if err != nil {
		return t, "", c.fail(what, err)
	}
	return created(ctx, c, what, http.StatusCreated, "/tokens", body, wire.DecodeToken)
}

// Tokens returns all tokens in the order of their creation, including revoked and expired
// ones.
func (c *Client) Tokens(ctx context.Context) ([]plantstore.TokenInfo, error) {
	return decoded(ctx, c, "list tokens", http.MethodGet, "/tokens", nil, wire.DecodeTokens)
}

// RevokeToken permanently revokes the token with this id. It fails with ErrNoTokenID, or
// with ErrLastToken if nobody could create tokens afterwards. Revoking it again succeeds.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.remove(ctx, "revoke token "+id, tokenPath(id), nil, nil)
}

// announce passes on when the token expires, if the response announces it.
func (c *Client) announce(header http.Header) {
	if at, err := time.Parse(time.RFC3339, header.Get(wire.HeaderTokenExpires)); err == nil && c.opts.TokenExpires != nil {
		c.opts.TokenExpires(at)
	}
}

// Page returns one page of the plants that match the query, in its order. It may have fewer than the limit and still not be the last. A limit of 0 means
// the server's default, and the server caps a limit that is too large. The limit of a query
// with ids is ignored.
func (c *Client) Page(ctx context.Context, q plantstore.Query) (plantstore.Page, error) {
	const what = "list plants"
	params, err := queryParams(q)
	if err != nil {
		return plantstore.Page{}, c.fail(what, err)
	}
	switch {
	case q.IDs != nil && params.Get("id") == "":
		return plantstore.Page{}, nil
	case q.IDs == nil && q.Limit != 0:
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Count {
		params.Set("count", "true")
	}
	return ask(ctx, c, what, http.MethodGet, withParams("/plants", params), nil, func(r *response) (plantstore.Page, error) { return r.page(&q) })
}

// List yields every plant that matches the query, in its order, one page at a time, and counts
// nothing. The limit is the size of a page; 0 means 1000. A plant that is written in the
// meantime may or may not be seen: [Client.Export] reads one snapshot. After an error it
// yields nothing more.
func (c *Client) List(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.StoredPlant, error] {
	q.Limit, q.Count = cmp.Or(q.Limit, 1000), false
	return paged(q, func(q *plantstore.Query) ([]plantstore.StoredPlant, bool, error) {
		page, err := c.Page(ctx, *q)
		q.After, q.AfterName = page.Next, page.NextName
		return page.Plants, page.Next != nil || page.NextName != "", err
	})
}

// paged yields the items of one page after another. read returns the items of a page, and
// whether there is another, which the query then selects.
func paged[Query, Item any](q Query, read func(*Query) (items []Item, more bool, err error)) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		next := q
		for {
			items, more, err := read(&next)
			if err != nil {
				yield(*new(Item), err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// TagPage returns one page of the tags that match the query, in the order of their bytes,
// each with its number of plants, counted up to [plantstore.MaxTagPlants]. It may have
// fewer than the limit and still not be the last. A limit of 0 means the server's default,
// and the server caps a limit that is too large.
func (c *Client) TagPage(ctx context.Context, q plantstore.TagQuery) (plantstore.TagPage, error) {
	const what = "list tags"
	params := url.Values{}
	for name, value := range map[string]string{"prefix": q.Prefix, "q": q.Contains, "from": q.From} {
		if value != "" {
			params.Set(name, value)
		}
	}
	if err := checkParams(params); err != nil {
		return plantstore.TagPage{}, c.fail(what, err)
	}
	if q.Limit != 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	return ask(ctx, c, what, http.MethodGet, withParams("/tags", params), nil, func(r *response) (plantstore.TagPage, error) { return r.tagPage(q.From) })
}

// Tags yields every tag that matches the query, in the order of their bytes, with its
// number of plants, counted up to [plantstore.MaxTagPlants], one page at a time. The limit
// is the size of a page; 0 means 1000. The counts of a page are from the same moment. After
// an error it yields nothing more.
func (c *Client) Tags(ctx context.Context, q plantstore.TagQuery) iter.Seq2[plantstore.TagCount, error] {
	q.Limit = cmp.Or(q.Limit, 1000)
	return paged(q, func(q *plantstore.TagQuery) ([]plantstore.TagCount, bool, error) {
		page, err := c.TagPage(ctx, *q)
		q.From = page.Next
		return page.Tags, page.Next != "", err
	})
}

// call makes one attempt at a call and reads the whole response, which must have
// the status, and be JSON unless it is empty.
func (c *Client) call(ctx context.Context, status int, method, path string, header http.Header, body []byte) (*response, error) {
	req, err := c.request(ctx, method, path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", wire.MediaJSON)
	if body != nil {
		req.Header.Set("Content-Type", wire.MediaJSON)
	}
	resp, err := c.calls.Do(req)
	if err != nil {
		return nil, transportError(err)
	}
	defer resp.Body.Close()
	c.announce(resp.Header)
	return readResponse(resp, status)
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err := cmp.Or(err, ctx.Err()); err != nil { // nothing has been sent
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	return req, nil
}

func plantPath(id plantstore.ID) string { return "/plants/" + id.String() }

func withParams(path string, params url.Values) string {
	if len(params) == 0 {
		return path
	}
	return path + "?" + params.Encode()
}

// ask makes a call that can be retried, and returns its response as decoded by read.
func ask[Value any](ctx context.Context, c *Client, what, method, path string, body []byte, read func(*response) (Value, error)) (value Value, err error) {
	err = c.retry(ctx, what, func(bool) error {
		resp, err := c.call(ctx, http.StatusOK, method, path, nil, body)
		if err != nil {
			return err
		}
		value, err = read(resp)
		return err
	})
	if err != nil {
		return *new(Value), err
	}
	return value, nil
}

// decoded makes a call that can be retried, and decodes the body of its response.
func decoded[Value any](ctx context.Context, c *Client, what, method, path string, body []byte, decode func([]byte) (Value, error)) (Value, error) {
	return ask(ctx, c, what, method, path, body, func(r *response) (Value, error) { return decodeBody(r, decode) })
}

// created makes a call whose response contains a secret that is shown once. It retries only
// attempts that the server has not applied: after others, nobody would know the secret.
func created[Value any](ctx context.Context, c *Client, what string, status int, path string, body []byte, decode func([]byte) (Value, string, error)) (value Value, secret string, err error) {
	err = c.retry(ctx, what, func(bool) error {
		resp, err := c.call(ctx, status, http.MethodPost, path, nil, body)
		if failed, ok := errors.AsType[*transient](err); ok && failed.maybeApplied {
			return fmt.Errorf("%w: it may have taken effect", failed.err)
		}
		if err != nil {
			return err
		}
		if value, secret, err = decode(resp.body); err != nil || secret == "" {
			return resp.unexpected()
		}
		return nil
	})
	return value, secret, err
}
