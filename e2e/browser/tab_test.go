package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

// pageTimeout ends a wait for a page that hangs.
const pageTimeout = time.Minute

// chromium starts the browser, which all tests share.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "plantstore-browser-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(profile),
		chromedp.DisableGPU,
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("lang", "en"),
		// A host that is not localhost, where browsers allow more than elsewhere.
		chromedp.Flag("host-resolver-rules", "MAP plants.test 127.0.0.1"),
		chromedp.WindowSize(1280, 800),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	browser, closeBrowser := chromedp.NewContext(allocator)
	harness.AtExit(func() {
		closeBrowser()
		stop()
		os.RemoveAll(profile)
	})
	return browser, chromedp.Do(browser)
})

// tab is a tab of the browser, with a storage of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	expected []string      // guarded by mu: parts of messages that the log may have
	logged   []string      // guarded by mu: other errors and warnings
	end      chan struct{} // closed when the log has been read to its end
}

const endOfLog = "the test is over"

// openTab opens a page. When the test ends, an error or a violation of the
// content security policy in the browser's log fails it, unless it was expected.
func openTab(t *testing.T, url string) *tab {
	t.Helper()
	browser, err := chromium()
	if errors.Is(err, exec.ErrNotFound) {
		harness.Lacks(t, "chromium is not installed")
	}
	if err != nil {
		t.Fatalf("start the browser: %v", err)
	}
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	b := &tab{t: t, ctx: ctx, end: make(chan struct{})}
	t.Cleanup(cancel)
	t.Cleanup(b.checkLog)
	messages := chromedp.Console(ctx)
	go func() {
		defer close(b.end)
		for m, err := range messages {
			if err != nil || m.Text == endOfLog {
				return
			}
			b.note(m)
		}
	}()
	b.size(1280, 800)
	b.scheme("light")
	// Tests share the screen, where only one window has the focus.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatal(err)
	}
	b.do(chromedp.Navigate(url))
	return b
}

func (b *tab) note(m chromedp.ConsoleMessage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning && !m.IsException() && m.Source != "security" {
		return
	}
	for _, part := range b.expected {
		if strings.Contains(m.Text, part) {
			return
		}
	}
	b.logged = append(b.logged, fmt.Sprintf("%s (%s %s)", m, m.Source, m.URL))
}

// expect allows errors with these texts in the browser's log. A browser logs every
// response with a status of 400 or more.
func (b *tab) expect(parts ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expected = append(b.expected, parts...)
}

func (b *tab) checkLog() {
	if b.t.Failed() {
		b.shot("failed-" + strings.ReplaceAll(b.t.Name(), "/", "-"))
	}
	b.eval(fmt.Sprintf("console.log(%q)", endOfLog))
	<-b.end
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, line := range b.logged {
		b.t.Errorf("the browser logged: %s", line)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func evaluate[T any](b *tab, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return value
}

func (b *tab) eval(script string) { b.t.Helper(); evaluate[chromedp.Void](b, script+"; undefined") }

// wait waits until the expression is true.
func (b *tab) wait(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	script := fmt.Sprintf(`new Promise((done) => {
		const poll = () => { let ok = false; try { ok = %s; } catch {} ok ? done(true) : setTimeout(poll, 15); };
		poll();
	})`, expression)
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[bool](script, chromedp.EvalAwaitPromise)); err != nil {
		b.t.Fatalf("wait for %s: %v\nthe page shows:\n%s", expression, err, evaluate[string](b, "document.body.innerText"))
	}
}

// see waits until the element is shown and has the text.
func (b *tab) see(selector, text string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && e.innerText.includes(%q))`, selector, text))
}

// hidden waits until no such element is shown.
func (b *tab) hidden(selector string) {
	b.t.Helper()
	b.wait(fmt.Sprintf(`![...document.querySelectorAll(%q)].some((e) => e.checkVisibility())`, selector))
}

func (b *tab) click(selector string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// write replaces the content of the field. It presses Enter if the text ends in
// kb.Enter.
func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.Focus(chromedp.CSS(selector), chromedp.NodeVisible))
	b.eval("document.activeElement.select()")
	text, enter := strings.CutSuffix(text, kb.Enter)
	if text == "" {
		b.press(kb.Delete)
	} else if _, err := chromedp.Call(b.ctx, input.InsertText, input.InsertTextParams{Text: text}); err != nil {
		b.t.Fatal(err)
	}
	if enter {
		b.press(kb.Enter)
	}
}

func (b *tab) press(keys string) { b.t.Helper(); b.do(chromedp.KeyEvent(keys)) }

func (b *tab) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%q).innerText", selector))
}

func (b *tab) value(selector string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.querySelector(%q).value", selector))
}

func (b *tab) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// scheme makes the browser prefer light or dark.
func (b *tab) scheme(name string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// shot saves a screenshot to the artifacts.
func (b *tab) shot(name string) {
	b.t.Helper()
	dir := harness.Artifacts()
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	screenshot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Errorf("take a screenshot: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), screenshot, 0o666); err != nil {
		b.t.Fatal(err)
	}
}

var images = flag.Bool("images", false, "take the screenshots of the documentation anew")

// image saves a screenshot for the documentation, if the flag says so.
func (b *tab) image(name string) {
	b.t.Helper()
	if !*images {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, pageTimeout)
	defer cancel()
	screenshot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(harness.Root, "docs/images", name+".png"), screenshot, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// signIn signs in on the console.
func (b *tab) signIn(token string) {
	b.t.Helper()
	b.see("#sign-in", "Sign in")
	b.write("#token", token)
	b.press(kb.Enter)
	b.hidden("#sign-in")
	b.loaded()
}

// loaded waits until the page is shown, and its table has the server's last response.
func (b *tab) loaded() {
	b.t.Helper()
	b.wait(`document.querySelector('.page') && (!document.querySelector('#plants') || !document.querySelector('#plants').ariaBusy && (document.querySelector('#rows tr') || document.querySelector('#state h2')) && !document.querySelector('#count').textContent.endsWith('…'))`)
}

// openConsole opens the console of the server and signs in.
func openConsole(s *server) *tab {
	s.t.Helper()
	b := openTab(s.t, "http://"+s.Addr+"/")
	b.signIn(harness.Token)
	return b
}
