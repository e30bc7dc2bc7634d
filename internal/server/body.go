package server

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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

// readMedia returns the media type of the body. It refuses one that is not wanted, and a body that is
// compressed.
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
	all := strings.Join(wanted, " or ")
	if got == "" {
		return "", plantstore.Errorf(plantstore.ErrMediaType, "the request has no Content-Type: send %s", all)
	}
	return "", plantstore.Errorf(plantstore.ErrMediaType, "the Content-Type must be %s, got %q", all, plantstore.Shorten(got))
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
		size = largerBody(size, limit)
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

// largerBody returns the size up to which a body that is larger than size takes memory.
func largerBody(size, limit int64) int64 {
	if size < mediumBody {
		return min(mediumBody, limit)
	}
	return limit
}

const (
	// smallBody is the size up to which a body, a page or a plant takes nothing of the lane of
	// memory: what net/http keeps of a response. A body counts as it arrives, and holds its
	// memory until the response is written.
	smallBody = 4 << 10
	// mediumBody is the size up to which a body takes less than the largest one.
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

// Header values, made once.
var (
	headerJSON    = []string{wire.MediaJSON}
	headerGzip    = []string{"gzip"}
	headerNosniff = []string{"nosniff"}
	headerClose   = []string{"close"}
	headerNoCache = []string{"private, no-cache"}
	headerNoStore = []string{"no-store"}
)

// response is the response to a request. It counts what is sent, and compresses it if that
// is worth it.
type response struct {
	http.ResponseWriter
	status     int          // 0 until the response has started
	bytes      int64        // of the body, before it is compressed
	headerOnly bool         // the body is not sent
	zippers    gzipPool     // nil if the response must not be compressed
	zip        *gzip.Writer // not nil while the response is compressed
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	if w.headerOnly {
		w.Header().Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
		w.startGzip(len(b))
	}
	if w.headerOnly {
		return len(b), nil
	}
	w.bytes += int64(len(b))
	if w.zip != nil {
		return w.zip.Write(b)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// buffers holds request and response bodies. One that grew large is left to the
// garbage collector.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const maxKeptBuffer = 64 << 10

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxKeptBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

func writePlant(c *call, p plantstore.Plant) error { return writeEncoded(c, p, wire.AppendPlant) }

// writeEncoded responds with one item.
func writeEncoded[T any](c *call, item T, encode func([]byte, T) ([]byte, error)) error {
	body := buffers.Get().(*bytes.Buffer)
	defer putBuffer(body)
	b, err := encode(body.AvailableBuffer(), item)
	if err != nil {
		return fmt.Errorf("encode the response: %v", err) // not the client's fault
	}
	body.Write(append(b, '\n'))
	return writeJSON(c, http.StatusOK, body.Bytes())
}

// writeLargePlant is writePlant, with details or without, for a plant whose memory the call does
// not hold yet.
func writeLargePlant(c *call, p plantstore.StoredPlant, details bool) error {
	if n := largePlant(p.Plant); n > 0 {
		release, err := c.take(memory, n, memoryBytes)
		if err != nil {
			return err
		}
		defer release()
	}
	if details {
		return writeEncoded(c, p, wire.AppendStoredPlant)
	}
	return writePlant(c, p.Plant)
}

func setETag(c *call, v plantstore.Version) {
	c.w.Header()["Etag"] = []string{string(v.ETag())}
}

func writeJSON(c *call, status int, body []byte) error {
	h := c.w.Header()
	h["Content-Type"] = headerJSON
	h["X-Content-Type-Options"] = headerNosniff
	if len(body) > smallBody {
		h.Set("Content-Length", strconv.Itoa(len(body))) // so that Write sends it
	}
	c.w.WriteHeader(status)
	// If the client does not wait for the response, the call has not failed.
	_, _ = c.w.Write(body)
	return nil
}

// writeUncached responds with JSON that caches must revalidate.
func writeUncached(c *call, body []byte) error {
	c.w.Header()["Cache-Control"] = headerNoCache
	return writeJSON(c, http.StatusOK, append(body, '\n'))
}

// writeNoStore responds with JSON that no cache may store.
func writeNoStore(c *call, status int, body []byte) error {
	c.w.Header()["Cache-Control"] = headerNoStore
	return writeJSON(c, status, append(body, '\n'))
}

// discardTime is how long the rest of a body is discarded after an error: a client on
// the other side of the earth has the response by then.
const discardTime = time.Second

// discardBody sends the response and discards the rest of the request's body. Without
// this, net/http would reset the HTTP/2 stream of a client that is still sending, and some
// clients, such as curl, would drop the response unread.
func discardBody(c *call) {
	out := http.NewResponseController(&c.w)
	_ = out.Flush()
	_ = out.SetReadDeadline(time.Now().Add(discardTime))
	_, _ = io.Copy(io.Discard, c.r.Body)
}
