package client

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"
)

// upload sends lines in one attempt or several. An HTTP transport may keep reading the body
// of an attempt after it has failed, so every attempt has a body of its own, and only the
// latest one may read.
type upload struct {
	lines io.Reader
	// versions says that a line that was imported already would fail.
	versions atomic.Bool
	dryRun   bool
	// seeker is nil if the lines cannot be sent again. start is where they begin.
	seeker io.Seeker
	start  int64

	// turn holds a token while no attempt reads. Its holder owns the following fields.
	turn  chan struct{}
	sent  bool  // lines have been read
	whole bool  // they have been read to their end
	err   error // the error of reading them
}

// readGrace is how long a call that ends waits for a Read to return.
const readGrace = time.Second

// uploadBody is the body of one attempt.
type uploadBody struct {
	*upload
	over atomic.Bool
}

func newUpload(lines io.Reader, versions, dryRun bool) *upload {
	versions = versions && !dryRun
	u := &upload{lines: lines, dryRun: dryRun, turn: make(chan struct{}, 1)}
	u.versions.Store(versions)
	u.turn <- struct{}{}
	// Seeking fails on a file that is a pipe.
	if seeker, ok := lines.(io.Seeker); ok && !versions {
		if start, err := seeker.Seek(0, io.SeekCurrent); err == nil {
			u.seeker, u.start = seeker, start
		}
	}
	return u
}

// begin returns the body of the next attempt, which sends the lines from their
// beginning. The previous attempt must have ended.
func (u *upload) begin() (*uploadBody, error) {
	if u.sent {
		if _, err := u.seeker.Seek(u.start, io.SeekStart); err != nil {
			return nil, fmt.Errorf("rewind the lines: %w", err)
		}
		u.sent = false
	}
	u.whole = false
	return &uploadBody{upload: u}, nil
}

func (b *uploadBody) Read(p []byte) (int, error) {
	<-b.turn
	defer func() { b.turn <- struct{}{} }()
	if b.over.Load() {
		return 0, errImportEnded
	}
	n, err := b.lines.Read(p)
	b.sent = b.sent || n > 0
	b.whole = err == io.EOF
	if err != nil && !b.whole {
		b.err = err
	}
	return n, err
}

// end ends an attempt and returns its error, made permanent if the lines cannot be
// sent again.
func (u *upload) end(body *uploadBody, err error) error {
	body.over.Store(true)
	reading := false
	select {
	case <-u.turn:
		defer func() { u.turn <- struct{}{} }()
	case <-time.After(readGrace):
		reading = true
	}
	failed, again := errors.AsType[*transient](err)
	switch {
	case err == nil && (reading || !u.whole):
		return errors.New("the server responded before it had read all lines")
	case err != nil && !reading && u.err != nil:
		return fmt.Errorf("read the lines: %w", u.err)
	case again && (reading || u.sent && u.seeker == nil):
		then := "some lines may have been imported, and importing the same lines again is safe"
		switch {
		case u.dryRun:
			then = "nothing was written, because it was a dry run"
		case u.versions.Load():
			then = "some lines may have been imported, and those with a version fail if they are imported again"
		}
		return fmt.Errorf("%w: %s", failed.err, then)
	}
	return err
}
