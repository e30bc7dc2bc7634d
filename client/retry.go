package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"plantstore"
	"plantstore/internal/backoff"
)

// [Options] documents these.
const (
	minPause            = 100 * time.Millisecond
	maxPause            = 5 * time.Second
	defaultRetries      = 18
	defaultRetryTimeout = time.Minute
)

// transient is a failure that may not recur.
type transient struct {
	err error
	// after is the pause that the server asks for.
	after time.Duration
	// maybeApplied says that the server may have applied the request.
	maybeApplied bool
	// progress says that the attempt achieved something, so that the retries start
	// over.
	progress bool
}

func (t *transient) Error() string { return t.err.Error() }

func (t *transient) Unwrap() error { return t.err }

// retry makes attempts until one succeeds or fails permanently, or until the retries,
// the retry timeout or ctx end. It passes each attempt whether an earlier one may have
// been applied.
func (c *Client) retry(ctx context.Context, what string, attempt func(maybeApplied bool) error) error {
	maybeApplied := false
	var failing time.Time
	delays := backoff.Exponential{Min: minPause, Max: maxPause}
	for n := 0; ; n++ {
		err := attempt(maybeApplied)
		if err == nil {
			return nil
		}
		failed, ok := errors.AsType[*transient](err)
		if !ok {
			return c.fail(what, err)
		}
		maybeApplied = maybeApplied || failed.maybeApplied
		if failed.progress {
			n, delays = 0, backoff.Exponential{Min: minPause, Max: maxPause}
		}
		if n == 0 {
			failing = time.Now()
		}
		wait := failed.after + delays.Next()
		ended := ctx.Err() != nil && errors.Is(err, ctx.Err())
		if ended || n >= c.opts.Retries || time.Since(failing)+wait > c.opts.RetryTimeout {
			return c.fail(what, gaveUp(n+1, failed.err))
		}
		if c.opts.Retrying != nil {
			c.opts.Retrying(c.fail(what, failed.err), wait)
		}
		select {
		case <-ctx.Done():
			return c.fail(what, fmt.Errorf("%w; before that: %w", ctx.Err(), gaveUp(n+1, failed.err)))
		case <-time.After(wait):
		}
	}
}

func gaveUp(attempts int, err error) error {
	if attempts == 1 {
		return err
	}
	return fmt.Errorf("%d attempts failed, the last one: %w", attempts, err)
}

// transportError classifies a request that could not be sent, or whose response
// could not be read.
func transportError(err error) error {
	if isPermanent(err) {
		return err
	}
	dial, ok := errors.AsType[*net.OpError](err)
	return &transient{err: err, maybeApplied: !ok || dial.Op != "dial"}
}

// isPermanent reports whether a retry would fail in the same way.
func isPermanent(err error) bool {
	if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
		return true
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	return untrusted || errors.Is(err, http.ErrSchemeMismatch)
}

// retryAfter reads the header Retry-After: seconds or a date.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	// The clocks of client and server may differ.
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}

// Every returned error passes through fail. It adds the name of the call, unless the server
// has said what is wrong, and removes the token from the text.
func (c *Client) fail(what string, err error) error {
	if e, ok := err.(*plantstore.Error); ok {
		return &plantstore.Error{Code: e.Code, Message: c.redact(e.Message)}
	}
	err = fmt.Errorf("%s: %w", what, err)
	if text := err.Error(); strings.Contains(text, c.token) {
		return &redacted{c.redact(text), err}
	}
	return err
}

func (c *Client) redact(text string) string {
	return strings.ReplaceAll(text, c.token, "[token]")
}

// redacted is an error whose own text contains the token.
type redacted struct {
	text string
	err  error
}

func (r *redacted) Error() string { return r.text }

func (r *redacted) Unwrap() error { return r.err }
