package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// file writes a file to import.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFileIsImported(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.click("#import")
	b.see("#transfer", "one plant per line")
	b.shot("import")
	good := file(t, "plants.ndjson", garden(20))
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{good}))
	b.see("#report", "plants.ndjson was imported")
	b.shot("imported")
	b.click("#transfer .cancel")
	b.see("#count", "Plants 1–20 of 20")
}

func TestImportReportsBadLines(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(2))
	b := openConsole(s)
	bad := file(t, "mixed.ndjson", strings.Join([]string{
		`{"id":1,"name":"Monstera deliciosa","tag":"tropical"}`,
		`{"id":2,"name":"Another plant"}`,
		`{"name":"No id"}`,
		`{"id":"three","name":3}`,
		`not JSON`,
		`{"id":9223372036854775807,"name":"<img src=x onerror=alert(1)>"}`,
	}, "\n"))
	b.drop(bad)
	b.see("#report", "mixed.ndjson: some lines could not be imported")
	for _, line := range []string{
		"Line 2\n\"id\" 2 is taken by another plant: choose another id.",
		"Line 3\n\"id\" is missing: send an integer.",
		"Line 4\n\"id\" must be an integer, got a string; \"name\" must be a string, got a number.",
		"Line 5\nNot JSON: ",
	} {
		b.see("#report li", line)
	}
	b.see("#report .figures", "Created\n1")
	b.see("#report .figures", "Unchanged\n1")
	b.see("#report .figures", "Failed\n4")
	b.shot("import-report")
	b.click("#transfer .cancel")
	b.see("#rows", "9223372036854775807")
}

// drop drops a file on the page, as from a file manager.
func (b *tab) drop(path string) {
	b.t.Helper()
	for _, kind := range []input.DispatchDragEventType{"dragEnter", "dragOver", "drop"} {
		_, err := chromedp.Call(b.ctx, input.DispatchDragEvent, input.DispatchDragEventParams{
			Type: kind, X: 400, Y: 500,
			Data: &input.DragData{Items: []*input.DragDataItem{}, Files: []string{path}, DragOperationsMask: 1},
		})
		if err != nil {
			b.t.Fatal(err)
		}
		if kind == "dragOver" {
			b.see("#drop", "Drop the file to import its plants")
			b.shot("drop")
		}
	}
}

func TestImportShowsProgressAndCanBeStopped(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	big := file(t, "big.ndjson", strings.Repeat(garden(1000), 100))
	b.click("#import")
	b.eval("document.querySelector('#bar').value = 0")
	b.eval(`globalThis.seen = []; new MutationObserver(() => seen.push(document.querySelector('#progress-text').textContent)).observe(document.querySelector('#progress-text'), {childList: true})`)
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{big}))
	b.see("#report", "big.ndjson was imported")
	b.wait("seen.includes('Uploading…') && seen.includes('Uploaded. Waiting until everything is saved…')")

	b.expect("net::ERR_ABORTED", "net::ERR_FAILED")
	b.click("#transfer .cancel")
	b.click("#import")
	// A server that does not read keeps the import running for as long as this test
	// needs it.
	s.Pause()
	b.do(chromedp.SetUploadFiles(chromedp.CSS("#file"), []string{big}))
	b.see("#progress", "big.ndjson, ")
	b.shot("importing")
	b.click("#transfer .cancel")
	b.see("#report", "The import was stopped.")
	s.Resume()
	b.click("#again")
	b.see("#report", "big.ndjson was imported")
}

func TestPlantsAreExportedToAFile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	s.put("-9223372036854775808", `{"name":"The first <of> all\n"}`)
	b := openConsole(s)
	all := b.download("#export")
	if got := strings.Count(all, "\n"); got != 301 {
		t.Errorf("the export has %d lines, want 301", got)
	}
	if want := `{"id":-9223372036854775808,"name":"The first <of> all\n"}`; !strings.HasPrefix(all, want+"\n") {
		t.Errorf("the export begins with %.80s, want %s", all, want)
	}
	b.see(".toast", "All plants were exported")
	b.shot("exported")
	b.write("#search", "maple")
	b.see("#count", "Matches 1–27 of 27")
	if got := strings.Count(b.download("#export"), "Japanese maple"); got != 27 {
		t.Errorf("the export of a search has %d plants, want 27", got)
	}
}

// download clicks and returns the file that the browser saves.
func (b *tab) download(selector string) string {
	b.t.Helper()
	dir := b.t.TempDir()
	_, err := chromedp.CallBrowser(b.ctx, browser.SetDownloadBehavior, browser.SetDownloadBehaviorParams{
		Behavior:         browser.SetDownloadBehaviorBehaviorAllowAndName,
		BrowserContextID: chromedp.FromContext(b.ctx).BrowserContextID,
		DownloadPath:     dir,
		EventsEnabled:    new(true),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	began, progress := chromedp.BrowserEvents(b.ctx, browser.DownloadWillBegin), chromedp.BrowserEvents(b.ctx, browser.DownloadProgress)
	b.click(selector)
	for event, err := range began {
		if err != nil {
			b.t.Fatal(err)
		}
		if name := event.SuggestedFilename; !strings.HasPrefix(name, "plants-") || !strings.HasSuffix(name, ".ndjson") {
			b.t.Errorf("the file is named %s", name)
		}
		break
	}
	for event, err := range progress {
		if err != nil {
			b.t.Fatal(err)
		}
		if event.State == browser.DownloadProgressStateCompleted {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(event.GUID)))
			if err != nil {
				b.t.Fatal(err)
			}
			return string(text)
		}
	}
	return ""
}
