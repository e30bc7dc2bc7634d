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
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// Header values, made once.
var (
	headerJSON    = []string{wire.MediaJSON}
	headerNosniff = []string{"nosniff"}
	headerClose   = []string{"close"}
	headerNoCache = []string{"private, no-cache"}
	headerNoStore = []string{"no-store"}
)

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

// readJSON reads and decodes the request's body.
func readJSON[Value any](s *Server, w http.ResponseWriter, r *http.Request, decode func(*bytes.Buffer) (Value, error)) (value Value, err error) {
	if err := checkMedia(r, wire.MediaJSON); err != nil {
		return value, err
	}
	body := buffers.Get().(*bytes.Buffer)
	defer putBuffer(body)
	if err := s.readBody(w, r, body); err != nil {
		return value, err
	}
	return decode(body)
}

// checkMedia refuses a body that is not of the wanted media type, or is compressed.
func checkMedia(r *http.Request, want string) error {
	for _, encoding := range r.Header["Content-Encoding"] {
		if !strings.EqualFold(encoding, "identity") {
			return plantstore.Errorf(plantstore.ErrMediaType, "the body has the Content-Encoding %q: send it without one", encoding)
		}
	}
	// Several field lines are one, joined by commas (RFC 9110, 5.3).
	got := strings.Join(r.Header["Content-Type"], ", ")
	if got == want {
		return nil
	}
	if media, _, err := mime.ParseMediaType(got); err == nil && media == want {
		return nil
	}
	if got == "" {
		return plantstore.Errorf(plantstore.ErrMediaType, "the request has no Content-Type: send %s", want)
	}
	return plantstore.Errorf(plantstore.ErrMediaType, "the Content-Type must be %s, got %q", want, got)
}

func (s *Server) readBody(w http.ResponseWriter, r *http.Request, body *bytes.Buffer) error {
	if r.ContentLength > s.maxBody {
		return s.tooLarge()
	}
	// The length is only announced. Memory is taken as the bytes arrive.
	body.Grow(int(min(max(r.ContentLength, 0), maxKeptBuffer/2)) + bytes.MinRead)
	in := http.MaxBytesReader(w, r.Body, s.maxBody)
	start := io.Reader(in)
	if r.ContentLength < 0 || r.ContentLength > smallBody {
		start = io.LimitReader(in, smallBody+1)
	}
	_, err := body.ReadFrom(start)
	if err == nil && body.Len() > smallBody {
		rec := w.(*recorder)
		if !s.largeBodies.tryAcquire(rec.caller.Hash, 1) {
			return s.largeBodies.full
		}
		rec.largeBody = true
		if missing := int(r.ContentLength) - body.Len(); missing > 0 {
			body.Grow(missing + bytes.MinRead) // doubling could take twice as much
		}
		_, err = body.ReadFrom(in)
	}
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
	return plantstore.Errorf(plantstore.ErrTooLarge, "the body is larger than the limit of %d bytes", s.maxBody)
}

// Bodies of which more than smallBody has arrived share a limit in bytes, from then until
// their responses are written. Otherwise clients that send slowly, or more than the
// store can write, could fill the memory with them.
const (
	smallBody      = 64 << 10
	maxLargeBodies = 32 << 20
)

// writePlant responds with a Plant.
func writePlant(w http.ResponseWriter, p plantstore.Plant) error {
	body := buffers.Get().(*bytes.Buffer)
	defer putBuffer(body)
	b, err := wire.AppendPlant(body.AvailableBuffer(), p)
	if err != nil {
		return fmt.Errorf("encode the response: %v", err) // not the client's fault
	}
	body.Write(append(b, '\n'))
	return writeJSON(w, http.StatusOK, body.Bytes())
}

// bodyWriter writes items to a response while it encodes them, so that the response is
// never held as a whole. Once a part of it has been sent, a failure aborts the
// connection, so that the client does not mistake a part for the whole.
type bodyWriter[T any] struct {
	w       http.ResponseWriter
	out     io.Writer // writes to w
	media   string
	encode  func(dst []byte, item T) ([]byte, error)
	buf     *bytes.Buffer
	started bool // a part has been sent
}

func newBodyWriter[T any](w http.ResponseWriter, out io.Writer, media string, encode func([]byte, T) ([]byte, error)) *bodyWriter[T] {
	return &bodyWriter[T]{w: w, out: out, media: media, encode: encode, buf: buffers.Get().(*bytes.Buffer)}
}

// close releases the writer's memory.
func (bw *bodyWriter[T]) close() { putBuffer(bw.buf) }

// write writes an item between two texts.
func (bw *bodyWriter[T]) write(before string, item T, after string) error {
	bw.buf.WriteString(before)
	b, err := bw.encode(bw.buf.AvailableBuffer(), item)
	if err != nil {
		return fmt.Errorf("encode the response: %v", err) // not the client's fault
	}
	bw.buf.Write(b)
	bw.buf.WriteString(after)
	if bw.buf.Len() >= maxKeptBuffer/2 {
		bw.flush()
	}
	return nil
}

// flush sends what has been written so far.
func (bw *bodyWriter[T]) flush() {
	if !bw.started {
		bw.started = true
		h := bw.w.Header()
		h.Set("Content-Type", bw.media)
		h["X-Content-Type-Options"] = headerNosniff
	}
	if _, err := bw.out.Write(bw.buf.Bytes()); err != nil {
		panic(http.ErrAbortHandler) // the client is disconnected, or too slow
	}
	bw.buf.Reset()
}

// writePage responds with an array. Clients that read slowly could fill the memory with
// large pages, so these share a limit while they are sent.
func writePage[T any](s *Server, w http.ResponseWriter, items []T, texts func(T) (string, string), encode func([]byte, T) ([]byte, error)) error {
	release, ok := reservePage(s, tokenOf(w), items, texts)
	if !ok {
		return s.largePages.full
	}
	defer release()
	out := newBodyWriter(w, w, wire.MediaJSON, encode)
	defer out.close()
	out.buf.WriteByte('[')
	between := ""
	for _, item := range items {
		if err := out.write(between, item, ""); err != nil {
			return err
		}
		between = ","
	}
	out.buf.WriteString("]\n")
	out.flush()
	return nil
}

// reservePage takes the memory of a page from the lane of large pages, if it is one, and
// reports whether there was enough. The caller releases it once the page has been sent.
// texts returns the texts of an item that clients choose, which are most of a large one.
func reservePage[T any](s *Server, token plantstore.TokenHash, items []T, texts func(T) (string, string)) (release func(), ok bool) {
	text, largest := 0, 0
	for _, item := range items {
		name, tag := texts(item)
		text += len(name) + len(tag)
	}
	if text > smallBody/(1+maxEscape) {
		for _, item := range items {
			largest = max(largest, encodedSize(texts(item)))
		}
	}
	n := min(int64(text+largest), s.largePages.share())
	if n <= smallBody {
		return func() {}, true
	}
	if !s.largePages.tryAcquire(token, n) {
		return nil, false
	}
	return func() { s.largePages.release(token, n) }, true
}

// largePlant returns how much memory a get of the plant takes while it is sent, or 0 if
// its JSON is small. It is never more than the share of a token.
func (s *Server) largePlant(p plantstore.Plant) int64 {
	if p.TextSize() <= smallBody/maxEscape {
		return 0
	}
	encoded := encodedSize(plantTexts(p))
	if encoded <= smallBody {
		return 0
	}
	return min(int64(p.TextSize()+encoded), s.largePlants.share())
}

// maxEscape is how many bytes of JSON a control character can become.
const maxEscape = len(`\u0000`)

// encodedSize returns about how much memory the texts of an item take while it is encoded.
func encodedSize(name, tag string) int {
	n := len(name) + len(tag)
	for _, text := range []string{name, tag} {
		for _, c := range []byte(text) {
			if c < ' ' {
				n += maxEscape - 1
			}
		}
	}
	return n
}

func setETag(w http.ResponseWriter, p plantstore.Plant) {
	w.Header()["Etag"] = []string{string(p.ETag())}
}

func writeJSON(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h["Content-Type"] = headerJSON
	h["X-Content-Type-Options"] = headerNosniff
	if len(body) > smallBody {
		h.Set("Content-Length", strconv.Itoa(len(body))) // so that Write sends it
	}
	w.WriteHeader(status)
	// If the client does not wait for the response, the call has not failed.
	_, _ = w.Write(body)
	return nil
}

// discardTime is how long the rest of a body is discarded after an error: a client on
// the other side of the earth has the response by then.
const discardTime = time.Second

// discardBody sends the response and discards the rest of the request's body. Without
// this, net/http would reset the HTTP/2 stream of a client that is still sending, and some
// clients, such as curl, would drop the response unread.
func discardBody(w http.ResponseWriter, r *http.Request) {
	out := http.NewResponseController(w)
	_ = out.Flush()
	_ = out.SetReadDeadline(time.Now().Add(discardTime))
	_, _ = io.Copy(io.Discard, r.Body)
}
