package server

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// accessFlushInterval is how late a line of the access log may be, and accessFlushSize
	// how many bytes are written earlier.
	accessFlushInterval = 100 * time.Millisecond
	accessFlushSize     = 256 << 10
	// maxAccessLines is how many bytes may be waiting. Lines beyond that are dropped.
	maxAccessLines = 1 << 20
)

// AccessLog writes a line for every request, in the format of [log/slog]. Lines are written
// many at a time, by [AccessLog.Run]: a system call for each would cost more than
// everything else about it. A request never waits for that. If lines come faster than
// they can be written, some are dropped and counted.
type AccessLog struct {
	out  io.Writer
	text bool
	wake chan struct{} // tells Run that there are lines, or many

	dropped atomic.Int64
	mu      sync.Mutex // guards lines
	lines   []byte
}

// NewAccessLog returns an access log that writes to out, as text or as JSON.
func NewAccessLog(out io.Writer, text bool) *AccessLog {
	return &AccessLog{out: out, text: text, wake: make(chan struct{}, 1)}
}

// Run writes the lines until ctx ends, and the last ones then.
func (l *AccessLog) Run(ctx context.Context) error {
	var written []byte
	defer func() { l.flush(written[:0]) }()
	for {
		select {
		case <-l.wake:
		case <-ctx.Done():
			return nil
		}
		if l.waiting() < accessFlushSize {
			select {
			case <-time.After(accessFlushInterval):
			case <-l.wake:
			case <-ctx.Done():
			}
		}
		written = l.flush(written[:0])
	}
}

// missing returns how many lines are missing, 0 if there is no access log.
func (l *AccessLog) missing() int64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

func (l *AccessLog) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// flush writes the lines, and returns their memory. Meanwhile new ones are added to the
// empty slice.
func (l *AccessLog) flush(empty []byte) (written []byte) {
	l.mu.Lock()
	lines := l.lines
	l.lines = empty
	l.mu.Unlock()
	if len(lines) == 0 {
		return lines
	}
	n, err := l.out.Write(lines)
	if err != nil { // there is nowhere else to report it
		l.dropped.Add(int64(bytes.Count(lines[n:], []byte{'\n'})))
	}
	return lines
}

// add adds a line. It does not block.
func (l *AccessLog) add(line []byte) {
	l.mu.Lock()
	before := len(l.lines)
	after := before + len(line)
	if after > maxAccessLines {
		l.mu.Unlock()
		l.dropped.Add(1)
		return
	}
	l.lines = append(l.lines, line...)
	l.mu.Unlock()
	if before == 0 || before < accessFlushSize && after >= accessFlushSize {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// accessLine is the content of a line of the access log: no secret, and no path, which
// contains ids of plants.
type accessLine struct {
	at               time.Time
	request          string
	token, operation string // empty without a valid token, and without a route
	status           int
	bytes            int64
	took             time.Duration
	from             string
}

// log adds the line of a request, as slog would write it.
func (l *AccessLog) log(a accessLine) {
	var buffer [512]byte // enough for most lines
	var b []byte
	if l.text {
		b = a.at.AppendFormat(append(buffer[:0], "time="...), "2006-01-02T15:04:05.000Z07:00")
		b = append(b, " level=INFO msg=access"...)
	} else {
		b = a.at.AppendFormat(append(buffer[:0], `{"time":"`...), time.RFC3339Nano)
		b = append(b, `","level":"INFO","msg":"access"`...)
	}
	b = l.appendString(b, "request", a.request)
	b = l.appendString(b, "token", a.token)
	b = l.appendString(b, "operation", a.operation)
	b = strconv.AppendInt(l.appendName(b, "status"), int64(a.status), 10)
	b = strconv.AppendInt(l.appendName(b, "bytes"), a.bytes, 10)
	b = l.appendPlain(l.appendName(b, "took"), a.took.String())
	b = l.appendString(b, "from", a.from)
	if !l.text {
		b = append(b, '}')
	}
	l.add(append(b, '\n'))
}

func (l *AccessLog) appendName(b []byte, name string) []byte {
	if l.text {
		return append(append(append(b, ' '), name...), '=')
	}
	return append(append(append(b, `,"`...), name...), `":`...)
}

// appendPlain appends a text that needs no escapes.
func (l *AccessLog) appendPlain(b []byte, text string) []byte {
	if l.text {
		return append(b, text...)
	}
	return append(append(append(b, '"'), text...), '"')
}

// appendString appends a text, whatever it contains.
func (l *AccessLog) appendString(b []byte, name, text string) []byte {
	b = l.appendName(b, name)
	switch {
	case isPlain(text) && !(l.text && text == ""):
		return l.appendPlain(b, text)
	case l.text:
		return strconv.AppendQuote(b, text)
	}
	b, _ = jsontext.AppendQuote(b, text) // it replaces invalid UTF-8
	return b
}

// isPlain reports whether a text needs no quotes and no escapes, neither in text nor in
// JSON.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return true
}

// logAccess adds the line of a request to the access log, if there is one.
func (s *Server) logAccess(c *call, took time.Duration) {
	if s.AccessLog == nil {
		return
	}
	token := ""
	if c.caller != nil {
		token = c.caller.Public
	}
	s.AccessLog.log(accessLine{
		at: c.start.Add(took), request: c.id[0], token: token, operation: c.route.name, status: c.w.status,
		bytes: c.w.bytes, took: took, from: s.Guard.From(c.r),
	})
}
