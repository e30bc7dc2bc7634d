package client

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"plantstore"
	"plantstore/internal/wire"
)

// streamBuffer is the size of the buffers that streams are sent and received with.
const streamBuffer = 64 << 10

// Export yields every plant that matches the query, in its order, from one snapshot. The query's limit is ignored. After an error, for example when the
// export is cut off, it yields nothing more. A server may cut off an export whose
// reader does not keep up.
func (c *Client) Export(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.StoredPlant, error] {
	return c.ExportAt(ctx, q, nil)
}

// ErrNoCursor is the error of an export without its position in the log of changes.
var ErrNoCursor = errors.New("the response has no " + wire.HeaderCursor)

// ExportAt is like [Client.Export]. If at is not nil, it is set to the snapshot's position
// in the log of changes before the first plant is yielded, or when the loop ends if there
// is none. [Client.Events] after that position are exactly the changes that the export does
// not contain. It fails with [ErrNoCursor] if the server does not send the position.
func (c *Client) ExportAt(ctx context.Context, q plantstore.Query, at *plantstore.Cursor) iter.Seq2[plantstore.StoredPlant, error] {
	return func(yield func(plantstore.StoredPlant, error) bool) {
		lines, err := c.openExport(ctx, q)
		if err != nil {
			yield(plantstore.StoredPlant{}, err)
			return
		}
		defer lines.Close()
		if at != nil {
			if *at = lines.at; *at == "" {
				yield(plantstore.StoredPlant{}, c.fail(exportPlants, ErrNoCursor))
				return
			}
		}
		plants := wire.NewPlantReader(lines)
		for {
			plant, err := plants.Next()
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(plantstore.StoredPlant{}, lines.classify(err))
				return
			}
			if !yield(plant, nil) {
				return
			}
		}
	}
}

// ExportLines returns every plant that matches the query as NDJSON, which
// [Client.ImportLines] takes. If the export is cut off, reading ends in an error and
// never in io.EOF. The caller closes the reader; ctx must live until then.
func (c *Client) ExportLines(ctx context.Context, q plantstore.Query) (io.ReadCloser, error) {
	lines, err := c.openExport(ctx, q)
	if err != nil {
		return nil, err
	}
	return lines, nil
}

const exportPlants = "export plants"

func (c *Client) openExport(ctx context.Context, q plantstore.Query) (*exportReader, error) {
	params, err := queryParams(q)
	if err != nil {
		return nil, c.fail(exportPlants, err)
	}
	var lines *exportReader
	err = c.retry(ctx, exportPlants, func(bool) error {
		req, err := c.request(ctx, http.MethodGet, withParams("/plants", params), nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", wire.MediaNDJSON)
		resp, err := c.streams.Do(req)
		if err != nil {
			return transportError(err)
		}
		c.announce(resp.Header)
		if lines, err = c.readExport(resp); err != nil {
			resp.Body.Close()
		}
		return err
	})
	return lines, err
}

// readExport waits for the first byte of an export. Until then, the export can be
// retried.
func (c *Client) readExport(resp *http.Response) (*exportReader, error) {
	if resp.StatusCode != http.StatusOK || !isMedia(resp.Header, wire.MediaNDJSON) {
		return nil, responseError(resp)
	}
	if resp.ProtoMajor == 1 && resp.ContentLength < 0 && resp.TransferEncoding == nil && !resp.Uncompressed {
		return nil, errors.New("cannot tell whether the response is complete: is there an HTTP/1.0 proxy in between?")
	}
	in := bufio.NewReader(resp.Body)
	if _, err := in.Peek(1); err != nil && err != io.EOF {
		return nil, transportError(err)
	}
	return &exportReader{client: c, at: plantstore.Cursor(resp.Header.Get(wire.HeaderCursor)), in: in, body: resp.Body}, nil
}

// exportReader reads an export and makes sure that it is complete.
type exportReader struct {
	client *Client
	at     plantstore.Cursor // of the snapshot
	in     *bufio.Reader
	body   io.Closer
	inLine bool // the last line read has no end yet
	err    error
}

func (r *exportReader) Read(b []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.in.Read(b)
	if n > 0 {
		r.inLine = b[n-1] != '\n'
	}
	if err == io.EOF && r.inLine {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		err = r.client.fail(exportPlants, fmt.Errorf("the response was cut off: %w", err))
	}
	r.err = err
	return n, err
}

// classify returns why a line could not be decoded: because the response was cut off there,
// or because of its contents.
func (r *exportReader) classify(err error) error {
	if r.err != nil && r.err != io.EOF {
		return r.err
	}
	return r.client.fail(exportPlants, fmt.Errorf("a line of the response is not a plant: %w", err))
}

func (r *exportReader) Close() error { return r.body.Close() }

// Import creates many plants, each as [Client.Create] does: independent of the others,
// and a success if the same plant already exists. The n-th plant is line n of the
// report. When Import returns a report, everything that it counts is durable. After an
// error some plants may have been created, and importing the same plants again is
// safe.
//
// Import runs the iterator on the caller's goroutine, as fast as it can send the plants. It
// is retried only while nothing has been sent. A server may cut off an import that is
// slower than 1 KiB per second for too long. If an import was retried, plants that a lost
// attempt created count as unchanged.
func (c *Client) Import(ctx context.Context, plants iter.Seq[plantstore.Plant]) (plantstore.ImportReport, error) {
	return c.ImportPlants(ctx, func(yield func(ImportLine) bool) {
		for p := range plants {
			if !yield(ImportLine{Plant: p}) {
				return
			}
		}
	}, ImportOptions{})
}

// ImportLine is a plant to import, and the version that it must have in the store.
type ImportLine struct {
	plantstore.Plant
	// IfVersion is the text of the version, which is the ETag without its quotes. Empty means that
	// any will do. A plant of another version is not changed, and its line fails with
	// ErrPreconditionFailed.
	IfVersion string
}

// ImportPlants is like [Client.Import] for more than creating plants. To delete plants, their ids
// suffice. The options Media and Versions do not matter: it sends NDJSON, and knows which lines
// have a version.
func (c *Client) ImportPlants(ctx context.Context, lines iter.Seq[ImportLine], opts ImportOptions) (plantstore.ImportReport, error) {
	opts.Media = wire.MediaNDJSON
	in, out := io.Pipe()
	up := newUpload(in, false, opts.DryRun)
	done := make(chan imported, 1)
	go func() {
		report, err := c.upload(ctx, up, opts)
		in.CloseWithError(errImportEnded)
		done <- imported{report, err}
	}()
	// If the iterator panics, the server must not mistake a part for the whole.
	defer out.CloseWithError(errImportEnded)
	refused, err := writeLines(out, lines, opts.Mode, func() { up.versions.Store(!opts.DryRun) })
	if err == nil {
		out.Close()
	}
	r := <-done
	if r.err != nil {
		return plantstore.ImportReport{}, r.err
	}
	r.report.Add(refused)
	return r.report, nil
}

type imported struct {
	report plantstore.ImportReport
	err    error
}

var errImportEnded = errors.New("the import has ended")

// writeLines writes a line for each plant, and calls versioned before it writes one with a version.
// A plant that cannot be sent becomes a blank line, which the server skips, and is listed in the
// returned report.
func writeLines(out io.Writer, lines iter.Seq[ImportLine], mode plantstore.ImportMode, versioned func()) (plantstore.ImportReport, error) {
	var refused plantstore.ImportReport
	n := int64(0)
	buf := make([]byte, 0, 2*streamBuffer)
	written := time.Now()
	for line := range lines {
		n++
		if line.IfVersion != "" {
			versioned()
		}
		whole := len(buf)
		var err error
		if buf, err = wire.AppendImportLine(buf, line.Plant, mode == plantstore.ImportDelete, line.IfVersion); err != nil {
			buf = buf[:whole]
			refused.Add(plantstore.ImportReport{Failed: 1, Errors: []plantstore.LineError{{Line: n, Err: err.(*plantstore.Error)}}})
		}
		buf = append(buf, '\n')
		// A slow iterator must not look like a disconnected client.
		if len(buf) < streamBuffer && time.Since(written) < time.Second {
			continue
		}
		if _, err := out.Write(buf); err != nil {
			return refused, err
		}
		buf, written = buf[:0], time.Now()
	}
	_, err := out.Write(buf)
	return refused, err
}

// ImportLines is like [Client.Import] for plants that are already encoded as NDJSON,
// such as those from [Client.ExportLines]. It streams them as they are. If lines is an
// [io.Seeker], an import that fails half-way is retried from the initial position of
// lines; otherwise it is retried only while nothing has been sent.
//
// A Read of lines that blocks when the call ends early may outlast the call.
func (c *Client) ImportLines(ctx context.Context, lines io.Reader) (plantstore.ImportReport, error) {
	return c.ImportFile(ctx, lines, ImportOptions{})
}

// ImportOptions say how a file is imported.
type ImportOptions struct {
	// Media is the media type of the file, which is NDJSON if it is empty.
	Media string
	// Mode is what is done with the lines. Empty means that they are created.
	Mode plantstore.ImportMode
	// DryRun writes nothing. The report says what would happen.
	DryRun bool
	// Versions says that lines have a member if_version. The import is then retried only while
	// nothing has been sent: a line that was imported already would fail.
	Versions bool
}

// ImportFile is like [Client.ImportLines] for a file of any format, and for more than creating
// plants.
func (c *Client) ImportFile(ctx context.Context, file io.Reader, opts ImportOptions) (plantstore.ImportReport, error) {
	return c.upload(ctx, newUpload(file, opts.Versions, opts.DryRun), opts)
}

func (c *Client) upload(ctx context.Context, up *upload, opts ImportOptions) (plantstore.ImportReport, error) {
	var report plantstore.ImportReport
	err := c.retry(ctx, "import plants", func(bool) error {
		body, err := up.begin()
		if err != nil {
			return err
		}
		report, err = c.importOnce(ctx, body, opts)
		return up.end(body, err)
	})
	if err != nil {
		return plantstore.ImportReport{}, err
	}
	return report, nil
}

// importOnce makes one attempt at an import. A goroutine sends it, because net/http
// waits for a Read of the body to return even after ctx has ended.
func (c *Client) importOnce(ctx context.Context, body *uploadBody, opts ImportOptions) (plantstore.ImportReport, error) {
	done := make(chan imported, 1)
	go func() {
		report, err := c.sendImport(ctx, body, opts)
		done <- imported{report, err}
	}()
	select {
	case r := <-done:
		return r.report, r.err
	case <-ctx.Done():
		return plantstore.ImportReport{}, ctx.Err()
	}
}

func (c *Client) sendImport(ctx context.Context, body *uploadBody, opts ImportOptions) (plantstore.ImportReport, error) {
	params := url.Values{}
	if opts.Mode != "" {
		params.Set("mode", string(opts.Mode))
	}
	if opts.DryRun {
		params.Set("dry_run", "true")
	}
	req, err := c.request(ctx, http.MethodPost, withParams("/plants/import", params), body)
	if err != nil {
		return plantstore.ImportReport{}, err
	}
	req.Header.Set("Accept", wire.MediaJSON)
	req.Header.Set("Content-Type", cmp.Or(opts.Media, wire.MediaNDJSON))
	// The server can refuse the import before a line is sent.
	req.Header.Set("Expect", "100-continue")
	resp, err := c.streams.Do(req)
	if err != nil {
		return plantstore.ImportReport{}, transportError(err)
	}
	c.announce(resp.Header)
	defer resp.Body.Close()
	whole, err := readResponse(resp, http.StatusOK)
	if err != nil {
		return plantstore.ImportReport{}, err
	}
	report, err := decodeBody(whole, wire.DecodeReport)
	for i := range report.Errors {
		report.Errors[i].Err.Message = c.redact(report.Errors[i].Err.Message)
	}
	return report, err
}
