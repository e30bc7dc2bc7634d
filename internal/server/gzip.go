package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"

	"plantstore/internal/wire"
)

const (
	// minGzip is the smallest first piece of a response that is compressed.
	minGzip = 1400
	// maxGzips is how many responses may be compressed at a time. Each takes about a
	// megabyte of memory until its client has read it. Others are sent as they are.
	maxGzips = 12
)

// gzipPool holds the gzip writers that are free. A nil stands for one that has not been made yet.
type gzipPool chan *gzip.Writer

func newGzipPool() gzipPool {
	p := make(gzipPool, maxGzips)
	for range maxGzips {
		p <- nil
	}
	return p
}

// tryGet returns a free writer, or nil.
func (p gzipPool) tryGet(out io.Writer) *gzip.Writer {
	select {
	case z := <-p:
		if z == nil {
			z, _ = gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level is valid
		}
		z.Reset(out)
		return z
	default:
		return nil
	}
}

func (p gzipPool) put(z *gzip.Writer) {
	z.Reset(io.Discard) // for the garbage collector
	p <- z
}

// startGzip compresses the response if that is worth it and a writer is free. It is
// called before the header is sent, with the length of the first piece.
func (w *response) startGzip(first int) {
	h := w.Header()
	if w.zippers == nil || first < minGzip || h.Get("Content-Type") == wire.MediaEventStream {
		return
	}
	if w.zip = w.zippers.tryGet(w.ResponseWriter); w.zip != nil {
		h["Content-Encoding"] = headerGzip
		h.Del("Content-Length")
	}
}

// endGzip sends the rest of a compressed response, if it is complete.
func (w *response) endGzip(complete bool) (err error) {
	if w.zip == nil {
		return nil
	}
	if complete {
		err = w.zip.Close()
	}
	w.zippers.put(w.zip)
	w.zip = nil
	return err
}

// acceptsGzip reports whether the client names gzip as acceptable.
func acceptsGzip(r *http.Request) bool {
	return slices.ContainsFunc(accepted(r.Header["Accept-Encoding"]), func(a weighted) bool { return a.value == "gzip" && a.weight > 0 })
}
