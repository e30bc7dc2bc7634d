package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"

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
		b.see("#transfer", "one JSON object per line")
		b.shot("import")
		b.choose(file(t, c.name, c.text))
		b.see("#verdict", "Of 2 records, 2 will be created.")
		b.shot("import-preview")
		if c.name == "mark.csv" {
			b.see("#preview", "Ash, tall")
			b.see("#preview", "soil")
		}
		b.click("#start-import")
		b.see("#report", c.name+" was imported")
		b.see("#report", "Created\n2")
		b.shot("imported")
		b.click("#cancel-import")
		b.see("#count", fmt.Sprintf("Plants 1–%d of %d", 2*i+2, 2*i+2))
	}
	if got, want := s.plant("3"), `{"name":"Ash, tall","tag":"tree"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.see("#rows", "9007199254740993")
	b.click("#import")
	b.choose(file(t, "plants.xlsx", "PK\x03\x04\x14\x00"))
	b.see("#choose-problem", "plants.xlsx is not a text file. Save a spreadsheet as CSV first.")
	b.choose(file(t, "empty.csv", ""))
	b.see("#choose-problem", "empty.csv is empty.")
	b.shot("import-refused")
	b.expect("400 (Bad Request)")
	b.choose(file(t, "picture.png", "\x89PNG\r\n\x1a\n"))
	b.see("#verdict", "The header must name the columns id and name")
	b.choose(file(t, "broken.json", `[{"id":7,"name":"Ivy"},{"id":01}]`))
	b.see("#verdict", "Element 2 is not JSON")
	b.see("#verdict", "before that, 1 were created")
}

// paste is as if a user pasted a part of a spreadsheet.
func (b *tab) paste(text string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`{
		const clipboardData = new DataTransfer();
		clipboardData.setData('text/plain', %q);
		document.activeElement.dispatchEvent(new ClipboardEvent('paste', {clipboardData, bubbles: true}));
	}`, text))
}

func TestPastedTextIsImported(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.click("#import")
	b.paste("id\tname\n5\tOak, tall\n")
	b.see("#preview", "CSV, separator tab.")
	b.see("#verdict", "Of 1 record, 1 will be created.")
	b.click("#start-import")
	b.see("#report", "Pasted text was imported")
	if got, want := s.plant("5"), `{"name":"Oak, tall"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
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
	b.see("#report", "Created\n1")
	b.see("#report", "Unchanged\n1")
	b.see("#report", "Failed\n4")
	b.shot("import-report")
	b.wait(`[...$$('#report li')].map((e) => e.innerText.split('\n')[0]).join() === 'Line 2,Line 3,Line 4,Line 5'`)
	failed := b.download("#failed-lines", "failed-mixed.csv")
	if strings.Count(failed, "\n") != 5 || !strings.Contains(failed, `"""id"" 2 is taken by another plant: choose another id","2","Another plant",,`) {
		t.Errorf("the file of failed lines is\n%s", failed)
	}

	// They are put right in place, and sent again. What is still wrong stays.
	b.write(`[aria-label="ID in line 2"]`, "20")
	b.write(`[aria-label="ID in line 4"]`, "40")
	b.write(`[aria-label="Tag in line 4"]`, "herb")
	b.click("#send-fixed")
	b.see("@toast", "2 lines imported.")
	b.wait(`[...$$('#report li')].map((e) => e.innerText.split('\n')[0]).join() === 'Line 3,Line 5'`)
	b.see("#report", "Created\n3")
	b.see("#report", "Failed\n2")
	b.wait(`$('[aria-label="Name in line 5"]').value === 'not JSON'`)
	b.shot("import-fixed")
	if got, want := s.plant("40"), `{"name":"3","tag":"herb"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
	b.write(`[aria-label="ID in line 3"]`, "30")
	b.write(`[aria-label="ID in line 5"]`, "50")
	b.write(`[aria-label="Name in line 5"]`, "Line one")
	b.click("#send-fixed")
	b.see("#report", "mixed.ndjson was imported")
	b.hidden("#send-fixed")
	b.click("#cancel-import")
	b.see("#rows", "9223372036854775807")
	b.see("#rows", "Line one")
}

// An export that was edited is imported again: what would change is shown before it does.
func TestImportReplacesWhatIsThere(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(1500))
	b := openConsole(s)
	b.click("#import")
	var lines strings.Builder
	for id := range 1500 {
		fmt.Fprintf(&lines, "%d,%s,%s\n", id+1, map[bool]string{true: "Old oak", false: names[id%len(names)]}[id == 1234], tags[id%len(tags)])
	}
	b.choose(file(t, "edited.csv", "id,name,tag\n"+lines.String()+"2000,,new\nx,Fern,\n"))
	b.see("#verdict", "Of 1,502 records, 1 will be created, 1,499 are there already, 2 will fail. 1 record has no name.")
	b.see("#preview tr", "is taken by another plant")
	b.click("#replace")
	b.see("#verdict", "Of 1,502 records, 1 will be created, 1 will be replaced, 1,499 are there already, 1 will fail. 1 record has no name.")
	numbers := `[...$$('#first-records tr')].map((e) => e.cells[0].innerText + ' ' + e.cells[4].innerText.split(' ')[0]).join()`
	if got, want := evaluate[string](b, numbers), "2 unchanged,3 unchanged,4 unchanged,5 unchanged,6 unchanged,1,236 replaced,1,502 created,1,503 \"Id\""; !strings.EqualFold(got, want) {
		t.Errorf("the preview has %s, want %s", got, want)
	}
	b.wait(fmt.Sprintf(`$$('#first-records del').map((e) => e.innerText).join() === %q`, names[1234%len(names)]))
	b.see("#preview tr", "no name")
	b.shot("import-replace")
	b.accessible()
	b.click("#start-import")
	b.see("#report", "Replaced\n1")
	b.see("#report", "Failed\n1")
	if got := s.plant("1235"); !strings.Contains(got, `"name":"Old oak"`) {
		t.Errorf("the store has %s", got)
	}
	b.write(`[aria-label="ID in line 1,503"]`, "1")
	b.click("#send-fixed") // in the same mode
	b.see("#report", "Replaced\n2")
	if got, want := s.plant("1"), `{"name":"Fern"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
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
	big := file(t, "big.ndjson", strings.Repeat(garden(1000), 400)) // more than the kernel buffers
	b.click("#import")
	b.eval(`globalThis.seen = []; new MutationObserver(() => seen.push($('#progress-text').textContent)).observe($('#progress-text'), {childList: true})`)
	b.choose(big)
	s.Pause() // which reads nothing meanwhile
	b.click("#start-import")
	b.wait("[/^Importing… 0 %, 0 bytes of [\\d.]+ MB$/, /^Importing… [1-9]\\d? %, [\\d.]+ [kM]B of [\\d.]+ MB$/].every((want) => seen.some((text) => want.test(text)))")
	s.Resume()
	b.see("#report", "big.ndjson was imported")
	b.wait("seen.some((text) => text.startsWith('Everything was sent'))")
	b.see("#report", "Unchanged\n399,000")

	b.expect("net::ERR_ABORTED", "net::ERR_FAILED")
	b.click("#cancel-import")
	b.click("#import")
	b.choose(big)
	b.see("#preview", "big.ndjson")
	// A server that does not respond keeps the import running for as long as this test
	// needs it.
	s.Pause()
	b.click("#start-import")
	b.see("#progress", "big.ndjson, ")
	b.shot("importing")
	b.click("#cancel-import")
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
	b.choose(file(t, "taken.ndjson", strings.ReplaceAll(garden(450), `"name":"`, `"name":"New `)+"{\"id\":1000,\"name\":\"Fern\"}\n{\"id\":1001,\"name\":\"\xd6lbaum\"}\n"))
	b.click("#start-import")
	b.see("#report", "Failed\n451")
	b.see("#report", "Created\n1")
	b.see("#report", "Fix these lines (the first 100)")
	failed := b.download("#failed-lines", "failed-taken.csv")
	if got := strings.Count(failed, "is taken by another plant"); got != 450 || !strings.Contains(failed, `"the record is not valid UTF-8","1001",`) {
		t.Errorf("the file has %d lines whose id is taken, want 450, and ends with %q", got, failed[len(failed)-100:])
	}
}

// A page from the hand of a European spreadsheet needs no option, and the preview says what
// will fail.
func TestSpreadsheetIsImportedWithoutAnOption(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.put("72", `{"name":"Fig"}`)
	b := openConsole(s)
	b.click("#import")
	b.choose(file(t, "table.csv", "\ufeffid;name;tag;Preis\r\n70;Ölbaum;\"Baum; groß\";1,50\r\n1,23457E+15;Efeu;;2,00\r\n72;Farn;;3,00\r\n73;Moos;;\r\n74;a;;\r\n75;b;;\r\n0034;c;;\r\n"))
	b.see("#preview", "CSV, separator semicolon.")
	b.see("#preview", "Baum; groß")
	b.see("#preview tr", "3\t1,23457E+15\tEfeu\tnone\t\"id\" must be a number in plain digits, got 1,23457E+15: a spreadsheet has lost the others")
	b.see("#preview tr", "4\t72\tFarn\tnone\t\"id\" 72 is taken by another plant: choose another id.")
	b.see("#preview tr", "8\t0034\tc\tnone\t\"id\" must be a number in plain digits, without leading zeros")
	b.see("#verdict", "Of 7 records, 4 will be created, 3 will fail.")
	b.see("#preview", `Ignored columns: "Preis".`)
	b.hidden("#preview select")
	b.shot("import-spreadsheet")
	b.click("#start-import")
	b.see("#report", "Created\n4")
	b.see("#report", "Failed\n3")
	if failed := b.download("#failed-lines", "failed-table.csv"); !strings.HasPrefix(failed, "error;id;name;tag;if_version\n") {
		t.Errorf("the file of failed lines is\n%s", failed)
	}
	if got, want := s.plant("70"), `{"name":"Ölbaum","tag":"Baum; groß"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

func TestColumnsOfAnImportAreMappedByHand(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.click("#import")
	b.choose(file(t, "stock.csv", "Bestand;Nr;Bezeichnung;Gruppe;Ort\n12;1;Eiche;Baum;Hof\n7;2;Efeu;Ranke;Wand\n"))
	b.see("#preview", "Which columns contain the ID")
	b.see("#preview tr", "2\t1\tEiche\tBaum")
	b.shot("import-mapping")
	b.eval(`const tag = $('#column-tag'); tag.value = '4'; tag.dispatchEvent(new Event('change'))`)
	b.see("#preview tr", "2\t1\tEiche\tHof")
	b.click("#start-import")
	b.see("#report", "stock.csv was imported")
	if got, want := s.plant("2"), `{"name":"Efeu","tag":"Wand"}`; got != want {
		t.Errorf("the store has %s, want %s", got, want)
	}
}

func TestImportGoesOnWhileItsDialogIsClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	b := openConsole(s)
	b.expect("net::ERR_")
	b.click("#import")
	b.choose(file(t, "big.ndjson", garden(6000)))
	b.see("#preview", "big.ndjson")
	s.Pause()
	b.click("#start-import")
	b.click("#close-import")
	b.hidden("#transfer")
	b.see("@toast", "Everything was sent. Waiting for the report…")
	b.shot("import-closed")
	if !b.asksBeforeLeaving() {
		t.Error("the page can be left while an import is running")
	}
	b.click("#import")
	b.see("#progress", "big.ndjson, ")
	b.press(kb.Escape)
	b.see("@toast", "Everything was sent. Waiting for the report…")
	b.click(`#pages a[href="#/overview"]`)
	s.Resume()
	b.see("@toast", "big.ndjson was imported.")
	if b.asksBeforeLeaving() {
		t.Error("the page asks before it is left, but no import is running")
	}
	b.click("@toast @show")
	b.see("#report", "Created\n6,000")
	b.click("#cancel-import")

	b.open("http://" + s.Addr + "/#/plants")
	b.loaded()
	b.click("#import")
	b.choose(file(t, "again.ndjson", garden(6000)))
	b.see("#preview", "again.ndjson")
	s.Pause()
	b.click("#start-import")
	b.click("#close-import")
	b.click("@toast @stop")
	b.see("@toast", "again.ndjson: The import was stopped.")
	s.Resume()
}

func TestPlantsAreExportedToAFile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	s.put("-9223372036854775808", `{"name":"The first <of> all\n"}`)
	s.put("-1", `{"name":"=1+1","tag":""}`)
	b := openConsole(s)
	b.noPicker()
	day := time.Now().UTC().Format(time.DateOnly)
	for _, c := range []struct{ format, extension, begins, ends string }{
		{"csv", "csv", "id,name,tag\n-9223372036854775808,\"The first <of> all\n\",\n-1,=1+1,\"\"\n1,", "\n"},
		{"spreadsheet", "csv", "\ufeffid,name,tag\n-9223372036854775808,\"The first <of> all\n\",\n-1,\"'=1+1\",\"\"\n1,\"", "\n"},
		{"ndjson", "ndjson", `{"id":-9223372036854775808,"name":"The first <of> all\n"}` + "\n" + `{"id":-1,"name":"=1+1","tag":""}` + "\n", "}\n"},
		{"json", "json", "[\n" + `{"id":-9223372036854775808,"name":"The first <of> all\n"}` + ",\n", "}\n]\n"},
	} {
		b.chooseFormat(c.format)
		all := b.download(saveExport, "plants-"+day+"."+c.extension)
		if !strings.HasPrefix(all, c.begins) || !strings.HasSuffix(all, c.ends) {
			t.Errorf("%s: the export begins with %.120q and ends with %q", c.format, all, all[len(all)-10:])
		}
		if got := strings.Count(all, "Japanese maple"); got == 0 || got != strings.Count(garden(300), "Japanese maple") {
			t.Errorf("%s: the export has %d maples", c.format, got)
		}
		b.see("@toast", "All plants were exported")
	}
	b.shot("exported")
	b.open("http://" + s.Addr + "/#/plants?q=maple&tag=herb")
	b.see("#count", "Matches 1–")
	b.chooseFormat("ndjson")
	if got := strings.Count(b.download(saveExport, "plants-maple-herb-"+day+".ndjson"), "Japanese maple"); got == 0 || got > 27 {
		t.Errorf("the export of a search has %d plants", got)
	}
}

// saveExport is the button of the dialog that asks for the format.
const saveExport = "@submit"

// chooseFormat opens the dialog of an export.
func (b *tab) chooseFormat(format string) {
	b.t.Helper()
	b.click("#export")
	b.click(fmt.Sprintf("#formats [value=%s]", format))
	b.shot("export")
}

// noPicker takes away the browser's own dialog for a file to write to, which no test can use.
func (b *tab) noPicker() {
	b.t.Helper()
	b.eval("globalThis.showSaveFilePicker = undefined")
}

// Where the browser can write to a file that the user picks, an export streams into it, and
// leaves nothing behind if it fails.
func TestExportIsWrittenToThePickedFile(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(300))
	b := openConsole(s)
	b.expect("net::ERR_")
	b.eval(`globalThis.showSaveFilePicker = async ({suggestedName}) => {
		const folder = await navigator.storage.getDirectory();
		globalThis.picked = await folder.getFileHandle(suggestedName, {create: true});
		return picked;
	}`)
	b.chooseFormat("csv")
	b.click(saveExport)
	b.see("@toast", "All plants were exported")
	if got := evaluate[string](b, "picked.getFile().then((file) => file.text())"); strings.Count(got, "\n") != 301 {
		t.Errorf("the file is %.80q", got)
	}
	s.Pause()
	b.chooseFormat("json")
	b.click(saveExport)
	b.click("@toast @dismiss")
	b.see("@toast", "The export was stopped. Nothing was saved.")
	s.Resume()
	if evaluate[bool](b, "picked.getFile().then(() => true, () => false)") {
		t.Error("an empty file is left")
	}
	b.eval("globalThis.showSaveFilePicker = async () => { throw new DOMException('', 'AbortError'); }")
	b.chooseFormat("json")
	b.click(saveExport)
	b.see("@toast", "The export was stopped. Nothing was saved.")
}

func TestExportEndsWithItsMessageAndWithTheSession(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.Import(garden(10))
	b := openConsole(s)
	b.expect("net::ERR_")
	b.noPicker()
	s.Pause()
	b.click("#export")
	b.click(saveExport)
	b.see("@toast", "Exporting…")
	b.click("#create")
	b.click("#theme")
	b.see("@toast", "Exporting…")
	b.click("@toast @dismiss")
	b.see("@toast", "The export was stopped. Nothing was saved.")
	b.click("#export")
	b.click(saveExport)
	b.see("@toast", "Exporting…")
	// The export of somebody who has signed out must not arrive later.
	b.eval("globalThis.saved = 0; URL.createObjectURL = () => { saved++; return 'blob:'; }")
	b.click("#sign-out")
	b.see("#sign-in", "Sign in")
	b.hidden("@toast")
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
