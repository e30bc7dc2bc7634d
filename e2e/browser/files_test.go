package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"plantstore/e2e/harness"
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
	b.see("#transfer", "one JSON object per line")
	b.shot("import")
	good := file(t, "plants.ndjson", garden(20))
	b.choose(good)
	b.see("#preview", "Monstera deliciosa")
	b.shot("import-preview")
	b.click("#start-import")
	b.see("#report", "plants.ndjson was imported")
	b.shot("imported")
	b.click("#transfer .cancel")
	b.see("#count", "Plants 1–20 of 20")
}

// choose chooses a file to import.
func (b *tab) choose(path string) {
	b.t.Helper()
	b.must(b.driver.choose("#file", path))
}

func TestImportTakesWhatTheCommandTakes(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	for i, c := range []struct{ name, text string }{
		{"pretty.json", "[\n  {\n    \"id\": 9007199254740993,\n    \"name\": \"Oak\"\n  },\n  {\"id\": 2, \"name\": \"Elm\"}\n]"},
		{"mark.csv", "\xef\xbb\xbfname,id,tag,soil\r\n\"Ash, tall\",3,tree,loam\r\nBox,4,,\r\n"},
		{"lines.ndjson", "{\"id\":5,\"name\":\"Yew\"}\n\n{\"id\":6,\"name\":\"Fir\"}"},
	} {
		b.click("#import")
		b.choose(file(t, c.name, c.text))
		b.see("#preview", c.name)
		if c.name == "mark.csv" {
			b.see("#preview", "Ash, tall")
			b.see("#preview", "soil")
		}
		b.click("#start-import")
		b.see("#report", c.name+" was imported")
		b.see("#report .figures", "Created\n2")
		b.click("#transfer .cancel")
		b.see("#count", fmt.Sprintf("Plants 1–%d of %d", 2*i+2, 2*i+2))
	}
	if got, want := s.plant("3"), `{"name":"Ash, tall","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.see("#rows", "9007199254740993")
	b.click("#import")
	b.choose(file(t, "picture.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"))
	b.see("#choose-problem", "picture.png")
	b.choose(file(t, "empty.csv", ""))
	b.see("#choose-problem", "empty.csv is empty.")
	b.shot("import-refused")
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
	b.click("#start-import")
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
	failed := b.download("#failed-lines", "failed-mixed.ndjson")
	if strings.Count(failed, "\n") != 4 || !strings.Contains(failed, `{"error":"\"id\" 2 is taken by another plant: choose another id","id":2,"name":"Another plant"}`) {
		t.Errorf("the file of failed lines is\n%s", failed)
	}
	b.click("#transfer .cancel")
	b.see("#rows", "9223372036854775807")
}

// drop drops a file on the page, as from a file manager.
func (b *tab) drop(path string) {
	b.t.Helper()
	for _, event := range []input.DispatchDragEventType{input.DispatchDragEventTypeDragEnter, input.DispatchDragEventTypeDragOver, input.DispatchDragEventTypeDrop} {
		b.must(b.driver.drag(event, path, 400, 500))
		if event == input.DispatchDragEventTypeDragOver {
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
	b.eval(`globalThis.seen = []; new MutationObserver(() => seen.push(document.querySelector('#progress-text').textContent)).observe(document.querySelector('#progress-text'), {childList: true})`)
	b.choose(big)
	b.click("#start-import")
	b.see("#report", "big.ndjson was imported")
	b.wait("seen.includes('Importing… 0 %, 0 plants') && seen.some((text) => /^Importing… [1-9]\\d? %, [\\d,]+,000 plants$/.test(text))")
	b.see("#report .figures", "Unchanged\n99,000")

	b.expect("net::ERR_ABORTED", "net::ERR_FAILED")
	b.click("#transfer .cancel")
	b.click("#import")
	b.choose(big)
	b.see("#preview", "big.ndjson")
	// A server that does not respond keeps the import running for as long as this test
	// needs it.
	s.Pause()
	b.click("#start-import")
	b.see("#progress", "big.ndjson, ")
	b.shot("importing")
	b.click("#transfer .cancel")
	b.see("#report", "The import was stopped.")
	s.Resume()
	b.click("#again")
	b.see("#report", "big.ndjson was imported")
}

// The server names a hundred failed lines in one response; the report has them all.
func TestImportKeepsEveryFailedLine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(500))
	b := openConsole(s)
	b.click("#import")
	b.choose(file(t, "taken.ndjson", strings.ReplaceAll(garden(450), `"name":"`, `"name":"New `)+`{"id":1000,"name":"Fern"}`))
	b.click("#start-import")
	b.see("#report .figures", "Failed\n450")
	b.see("#report .figures", "Created\n1")
	b.see("#report", "Fix these lines (the first 100)")
	if got := strings.Count(b.download("#failed-lines", "failed-taken.ndjson"), "is taken by another plant"); got != 450 {
		t.Errorf("the file has %d failed lines, want 450", got)
	}
}

func TestPlantsAreExportedToAFile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	s.put("-9223372036854775808", `{"name":"The first <of> all\n"}`)
	b := openConsole(s)
	day := time.Now().UTC().Format(time.DateOnly)
	all := b.download("#export", "plants-"+day+".ndjson")
	if got := strings.Count(all, "\n"); got != 301 {
		t.Errorf("the export has %d lines, want 301", got)
	}
	if want := `{"id":-9223372036854775808,"name":"The first <of> all\n"}`; !strings.HasPrefix(all, want+"\n") {
		t.Errorf("the export begins with %.80s, want %s", all, want)
	}
	b.see(".toast", "All plants were exported")
	b.shot("exported")
	b.open("http://" + s.Addr + "/#/plants?q=maple&tag=herb")
	b.see("#count", "Matches 1–")
	if got := strings.Count(b.download("#export", "plants-maple-herb-"+day+".ndjson"), "Japanese maple"); got == 0 || got > 27 {
		t.Errorf("the export of a search has %d plants", got)
	}
}

func TestExportEndsWithItsMessageAndWithTheSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(10))
	b := openConsole(s)
	b.expect("net::ERR_")
	s.Pause()
	b.click("#export")
	b.see(".toast", "Exporting…")
	b.click("#create")
	b.click("#theme")
	b.see(".toast", "Exporting…")
	b.click(`.toast [aria-label="Stop the export"]`)
	b.see(".toast", "The export was stopped. Nothing was saved.")
	b.click("#export")
	b.see(".toast", "Exporting…")
	// The export of somebody who has signed out must not arrive later.
	b.eval("globalThis.saved = 0; URL.createObjectURL = () => { saved++; return 'blob:'; }")
	b.click("#sign-out")
	b.see("#sign-in", "Sign in")
	b.hidden(".toast")
	s.Resume()
	b.signIn(harness.Token)
	if n := evaluate[int](b, "saved"); n != 0 {
		t.Error("the export went on after the sign-out")
	}
}

// download clicks and returns the file that the browser saves.
func (b *tab) download(selector, want string) string {
	b.t.Helper()
	name, content, err := b.driver.download(b.t.TempDir(), func() { b.click(selector) })
	if err != nil {
		b.t.Fatalf("download %s: %v", want, err)
	}
	if name != want {
		b.t.Errorf("the file is named %s, want %s", name, want)
	}
	return string(content)
}
