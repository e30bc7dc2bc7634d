package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"plantstore"
	"plantstore/internal/wire"
)

// readJSON reads and decodes the request's body, which must be application/json.
func readJSON[Value any](c *call, decode func(*bytes.Buffer) (Value, error)) (value Value, err error) {
	if _, err := readMedia(c.r, wire.MediaJSON); err != nil {
		return value, err
	}
	return readValue(c, decode)
}

// readValue reads and decodes the request's body, whatever its media type.
func readValue[Value any](c *call, decode func(*bytes.Buffer) (Value, error)) (value Value, err error) {
	body := buffers.Get().(*bytes.Buffer)
	defer putBuffer(body)
	if err := readBody(c, body); err != nil {
		return value, err
	}
	return decode(body)
}

// readMedia returns the media type of the body. It refuses one that is not wanted, for which it
// suggests the first that is, and a body that is compressed.
func readMedia(r *http.Request, wanted ...string) (string, error) {
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return "", plantstore.Errorf(plantstore.ErrMediaType, "the body has the Content-Encoding %q: send it without one", plantstore.Shorten(encoding))
		}
	}
	// Several field lines are one, joined by commas (RFC 9110, 5.3).
	got := strings.Join(r.Header["Content-Type"], ", ")
	if got == wanted[0] {
		return got, nil
	}
	if media, _, err := mime.ParseMediaType(got); err == nil && slices.Contains(wanted, media) {
		return media, nil
	}
	if got == "" {
		return "", plantstore.Errorf(plantstore.ErrMediaType, "the request has no Content-Type: send %s", wanted[0])
	}
	return "", plantstore.Errorf(plantstore.ErrMediaType, "the Content-Type must be %s, got %q", wanted[0], plantstore.Shorten(got))
}

func readBody(c *call, body *bytes.Buffer) error {
	length, limit := c.r.ContentLength, c.s.MaxBody
	if length > limit {
		return bodyError(&http.MaxBytesError{Limit: limit})
	}
	// The length is only announced. Memory is taken as the bytes arrive.
	body.Grow(int(min(max(length, 0), smallBody)) + bytes.MinRead)
	in := http.MaxBytesReader(&c.w, c.r.Body, limit)
	size := min(smallBody, limit) // what may arrive with the memory that the call holds
	for size < limit && (length < 0 || length > size) {
		if _, err := body.ReadFrom(io.LimitReader(in, size+1-int64(body.Len()))); err != nil {
			return bodyError(err)
		}
		if int64(body.Len()) <= size {
			return nil
		}
		if size < mediumBody {
			size = min(mediumBody, limit)
		} else {
			size = limit
		}
		if err := c.takeBody(2 * size); err != nil { // the body, and what it becomes
			return err
		}
		if missing := int(min(length, size)) - body.Len(); missing > 0 {
			body.Grow(missing + bytes.MinRead) // doubling could take twice as much
		}
	}
	if _, err := body.ReadFrom(in); err != nil {
		return bodyError(err)
	}
	return nil
}

const (
	// smallBody is how much of a body, a page or a plant needs nothing of the lane of memory:
	// as much as net/http keeps of a response. For a body, that is how much has arrived: it
	// holds its memory from then until the response is written.
	smallBody = 4 << 10
	// mediumBody is how much of a body needs less than what the largest one does.
	mediumBody = 64 << 10
)

// bodyError says why a body could not be read.
func bodyError(err error) error {
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return plantstore.Errorf(plantstore.ErrTooLarge, "the body is larger than the limit of %d bytes", large.Limit)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return plantstore.Errorf(plantstore.ErrTimeout, "the body did not arrive in time: send it faster")
	}
	return plantstore.Errorf(plantstore.ErrNotJSON, "the body could not be read: %v", err)
}
