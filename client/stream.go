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
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"plantstore"
)

// streamBuffer is how much of a stream is sent or received at once.
const streamBuffer = 64 << 10

// Export yields every plant that matches the query, in ascending order of id, from
// one snapshot. The query's limit does not count. After an error, as where the
// export breaks off, it yields nothing more. A server may break off an export whose
// reader does not keep up.
func (c *Client) Export(ctx context.Context, q plantstore.Query) iter.Seq2[plantstore.Plant, error] {
	return func(yield func(plantstore.Plant, error) bool) {
		lines, err := c.openExport(ctx, q)
		if err != nil {
			yield(plantstore.Plant{}, err)
			return
		}
		defer lines.Close()
		dec := jsontext.NewDecoder(lines)
		for {
			var plant plantstore.Plant
			err := decodePlant(dec, &plant, true)
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(plantstore.Plant{}, lines.explain(err))
				return
			}
			if !yield(plant, nil) {
				return
			}
		}
	}
}

// ExportLines returns every plant that matches the query as lines of JSON, one a
// plant, as [Client.Export] yields them and [Client.ImportLines] takes them. Where
// the export breaks off, reading ends in an error and never in io.EOF. The caller
// closes the reader; ctx must live until then.
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
		req, err := c.request(ctx, http.MethodGet, plantsPath(params), nil)
		if err != nil {
			return err
		}
		req.Header.Set("Accept", mediaNDJSON)
		resp, err := c.streams.Do(req)
		if err != nil {
			return unanswered(ctx, err)
		}
		if lines, err = c.readExport(ctx, resp); err != nil {
			resp.Body.Close()
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return lines, nil
}

// readExport waits for the first byte of an export. Until then, the export can be
// asked for again.
func (c *Client) readExport(ctx context.Context, resp *http.Response) (*exportReader, error) {
	if resp.StatusCode != http.StatusOK || !isMedia(resp.Header, mediaNDJSON) {
		return nil, refusal(ctx, resp)
	}
	if resp.ProtoMajor == 1 && resp.ContentLength < 0 && resp.TransferEncoding == nil && !resp.Uncompressed {
		return nil, errors.New("the answer's end cannot be told from a break: is a proxy in between that speaks HTTP/1.0?")
	}
	in := bufio.NewReader(resp.Body)
	if _, err := in.Peek(1); err != nil && err != io.EOF {
		return nil, unanswered(ctx, err)
	}
	return &exportReader{client: c, in: in, body: resp.Body}, nil
}

// exportReader reads an export and makes sure that it ends where the server meant
// it to.
type exportReader struct {
	client *Client
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
		err = r.client.fail(exportPlants, fmt.Errorf("the answer broke off: %w", err))
	}
	r.err = err
	return n, err
}

// explain returns why a line could not be decoded: because the answer broke off
// there, or because of what it says.
func (r *exportReader) explain(err error) error {
	if r.err != nil && r.err != io.EOF {
		return r.err
	}
	return r.client.fail(exportPlants, fmt.Errorf("a line of the answer is not a plant: %w", err))
}

func (r *exportReader) Close() error { return r.body.Close() }

// ImportReport is what became of the lines of an import.
type ImportReport struct {
	// Created counts the plants that are new, Unchanged those that were there
	// already, exactly so, and Failed the lines that were refused. Where an import
	// was repeated, what the lost attempt created is Unchanged.
	Created, Unchanged, Failed int64
	// Errors says of the first 100 refused lines why, in their order.
	Errors []LineError
}

// mostErrors is how many errors a report holds.
const mostErrors = 100

// LineError is why a line of an import was refused.
type LineError struct {
	Line int64 // from 1
	Err  *plantstore.Error
}

// Import creates many plants, each as [Client.Create] does: independent of the
// others, and a success where the same plant is there already. The n-th plant is
// line n of the report. When Import returns a report, all that it counts is
// durable. After an error a part may have been kept, and importing the same plants
// again is safe.
//
// Import runs the iterator on the caller's goroutine, as fast as it can send the
// plants. It is repeated only while nothing has been sent. A server may break off
// an import that sends nothing for long.
func (c *Client) Import(ctx context.Context, plants iter.Seq[plantstore.Plant]) (ImportReport, error) {
	in, out := io.Pipe()
	done := make(chan imported, 1)
	go func() {
		report, err := c.ImportLines(ctx, in)
		in.CloseWithError(errImportEnded)
		done <- imported{report, err}
	}()
	// The iterator may panic. Nobody must then take a part for the whole.
	defer out.CloseWithError(errImportEnded)
	refused, err := writePlants(out, plants)
	if err == nil {
		out.Close()
	}
	r := <-done
	if r.err != nil {
		return ImportReport{}, r.err
	}
	r.report.add(refused)
	return r.report, nil
}

type imported struct {
	report ImportReport
	err    error
}

var errImportEnded = errors.New("the import has ended")

// writePlants writes a line for each plant. A plant that cannot be sent leaves an
// empty one, which the server passes over, and is in the report that is returned.
func writePlants(out io.Writer, plants iter.Seq[plantstore.Plant]) (ImportReport, error) {
	var refused ImportReport
	line := int64(0)
	buf := make([]byte, 0, 2*streamBuffer)
	written := time.Now()
	for p := range plants {
		line++
		whole := len(buf)
		var err error
		if buf, err = appendNewPlant(buf, p); err != nil {
			buf = buf[:whole]
			refused.add(ImportReport{Failed: 1, Errors: []LineError{{line, err.(*plantstore.Error)}}})
		}
		buf = append(buf, '\n')
		// A slow iterator must not look like a caller that has gone away.
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

// add adds another report on the same lines.
func (r *ImportReport) add(other ImportReport) {
	r.Created += other.Created
	r.Unchanged += other.Unchanged
	r.Failed += other.Failed
	r.Errors = append(r.Errors, other.Errors...)
	slices.SortStableFunc(r.Errors, func(a, b LineError) int { return cmp.Compare(a.Line, b.Line) })
	r.Errors = r.Errors[:min(len(r.Errors), mostErrors)]
}

// ImportLines does what [Client.Import] does for plants that are lines of JSON
// already, such as [Client.ExportLines] gives, and streams them as they are. Where
// lines is an [io.Seeker], an import that is lost half-way is repeated from where
// lines stood at the beginning; otherwise only while nothing has been sent.
//
// A Read of lines that blocks when the call ends early may outlast the call.
func (c *Client) ImportLines(ctx context.Context, lines io.Reader) (ImportReport, error) {
	up := newUpload(lines)
	var report ImportReport
	err := c.retry(ctx, "import plants", func(bool) error {
		body, err := up.begin()
		if err != nil {
			return err
		}
		report, err = c.importOnce(ctx, body)
		return up.end(body, err)
	})
	if err != nil {
		return ImportReport{}, err
	}
	return report, nil
}

// importOnce makes one attempt at an import. It is sent by a goroutine, because
// net/http waits for a Read of the body that is under way even where ctx has ended.
func (c *Client) importOnce(ctx context.Context, body *uploadBody) (ImportReport, error) {
	done := make(chan imported, 1)
	go func() {
		report, err := c.sendImport(ctx, body)
		done <- imported{report, err}
	}()
	select {
	case r := <-done:
		return r.report, r.err
	case <-ctx.Done():
		return ImportReport{}, ctx.Err()
	}
}

func (c *Client) sendImport(ctx context.Context, body *uploadBody) (ImportReport, error) {
	req, err := c.request(ctx, http.MethodPost, "/plants/import", body)
	if err != nil {
		return ImportReport{}, err
	}
	req.Header.Set("Accept", mediaJSON)
	req.Header.Set("Content-Type", mediaNDJSON)
	// A server that refuses the import says so before a line is sent.
	req.Header.Set("Expect", "100-continue")
	resp, err := c.streams.Do(req)
	if err != nil {
		return ImportReport{}, unanswered(ctx, err)
	}
	defer resp.Body.Close()
	a, err := readAnswer(ctx, resp, http.StatusOK)
	if err != nil {
		return ImportReport{}, err
	}
	report, err := a.report()
	for i := range report.Errors {
		report.Errors[i].Err.Message = c.redact(report.Errors[i].Err.Message)
	}
	return report, err
}
