package server

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"plantstore"
	"plantstore/internal/wire"
)

// bodyWriter writes items to a response while it encodes them, so that the response is
// never held as a whole. Once a part of it has been sent, a failure aborts the
// connection, so that the client does not mistake a part for the whole.
type bodyWriter[T any] struct {
	c       *call
	out     io.Writer // writes to the response of c
	media   string
	encode  func(dst []byte, item T) ([]byte, error)
	buf     *bytes.Buffer
	started bool // a part has been sent
}

func newBodyWriter[T any](c *call, out io.Writer, media string, encode func([]byte, T) ([]byte, error)) *bodyWriter[T] {
	return &bodyWriter[T]{c: c, out: out, media: media, encode: encode, buf: buffers.Get().(*bytes.Buffer)}
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
		h := bw.c.w.Header()
		h.Set("Content-Type", bw.media)
		h["X-Content-Type-Options"] = headerNosniff
	}
	if _, err := bw.out.Write(bw.buf.Bytes()); err != nil {
		panic(http.ErrAbortHandler) // the client is disconnected, or too slow
	}
	bw.buf.Reset()
}

func writePage[T any](c *call, items []T, texts func(T) (string, string), encode func([]byte, T) ([]byte, error)) error {
	release, err := takePage(c, items, texts)
	if err != nil {
		return err
	}
	defer release()
	out := newBodyWriter(c, &c.w, wire.MediaJSON, encode)
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

// takePage takes the memory of a page, if it is a large one. The caller releases it once
// the page has been sent. texts returns the texts of an item that clients choose, which are
// most of a large one.
func takePage[T any](c *call, items []T, texts func(T) (string, string)) (release func(), err error) {
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
	size := text + largest + len(items)*itemBytes
	if size <= smallBody {
		return func() {}, nil
	}
	return c.take(memory, int64(size), mostPages)
}

// itemBytes is the approximate memory of an item of a page in addition to its texts.
const itemBytes = 64

// largePlant returns how much memory the plant takes while it is sent, or 0 if
// its JSON is small.
func largePlant(p plantstore.Plant) int64 {
	if p.TextSize() <= smallBody/maxEscape {
		return 0
	}
	encoded := encodedSize(p.Name, p.Tag.String())
	if encoded <= smallBody {
		return 0
	}
	return int64(p.TextSize() + encoded)
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

// writeUncachedList is writeUncached for a list that may be large.
func writeUncachedList(c *call, body []byte) error {
	if len(body) > smallBody {
		release, err := c.take(memory, int64(len(body)), mostPages)
		if err != nil {
			return err
		}
		defer release()
	}
	return writeUncached(c, body)
}
