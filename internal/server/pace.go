package server

import (
	"io"
	"net/http"
	"time"
)

// pace enforces the minimum speed of a stream. The client has a credit of time, which
// is spent while the stream waits for it and earned back with every byte. Time that
// the server itself needs does not count.
type pace struct {
	rate   int64         // bytes per second
	max    time.Duration // the initial and maximum credit
	credit time.Duration
}

func newPace(rate int64, max time.Duration) pace { return pace{rate, max, max} }

// spend accounts for n bytes that took this long.
func (p *pace) spend(n int, took time.Duration) {
	earned := time.Duration(n) * time.Second / time.Duration(p.rate)
	p.credit = min(p.max, p.credit-took+earned)
}

// Streams that are slower than this for longer than the StreamTimeout are ended.
const (
	minExportRate = 64 << 10 / 10
	minImportRate = 1 << 10
)

// pacedWriter writes a response that may take as long as it needs while the client
// reads it at the minimum speed.
type pacedWriter struct {
	w    http.ResponseWriter
	pace pace
}

func (p *pacedWriter) Write(b []byte) (written int, err error) {
	for len(b) > 0 && err == nil {
		// A large piece would need more than the whole credit.
		piece := b[:min(len(b), maxKeptBuffer)]
		start := time.Now()
		if err := http.NewResponseController(p.w).SetWriteDeadline(start.Add(p.pace.credit)); err != nil {
			return written, err
		}
		var n int
		n, err = p.w.Write(piece)
		p.pace.spend(n, time.Since(start))
		written += n
		b = b[n:]
	}
	return written, err
}

// pacedReader reads a body that may take as long as it needs while the client sends it
// at the minimum speed.
type pacedReader struct {
	w    http.ResponseWriter
	body io.Reader
	pace pace
}

func (p *pacedReader) Read(b []byte) (int, error) {
	start := time.Now()
	if err := http.NewResponseController(p.w).SetReadDeadline(start.Add(p.pace.credit)); err != nil {
		return 0, err
	}
	n, err := p.body.Read(b)
	p.pace.spend(n, time.Since(start))
	return n, err
}
