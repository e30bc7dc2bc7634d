package browser

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

// firefox has a process for each core: only one page of a process has the focus.
var firefox browser = newFirefox(runtime.GOMAXPROCS(0))

type firefoxBrowser struct {
	idle chan *firefoxProcess // those that no test uses, nil if they are not started
}

func newFirefox(processes int) *firefoxBrowser {
	f := &firefoxBrowser{make(chan *firefoxProcess, processes)}
	for range processes {
		f.idle <- nil
	}
	return f
}

// firefoxProcess is a Firefox that one test uses at a time.
type firefoxProcess struct {
	cmd     *exec.Cmd
	profile string
	bidi    *bidi
	chrome  string // the context of its own window, whose scripts may do everything
}

// firefoxPreferences make Firefox do nothing on its own. It adds what is recommended for
// WebDriver.
const firefoxPreferences = `
user_pref("browser.aboutwelcome.enabled", false);
user_pref("browser.download.always_ask_before_handling_new_types", false);
user_pref("browser.newtab.preload", false);
user_pref("browser.sessionstore.interval", 3600000);
user_pref("browser.tabs.remote.separatePrivilegedContentProcess", false);
user_pref("dom.ipc.processCount", 1);
user_pref("dom.ipc.processPrelaunch.enabled", false);
user_pref("extensions.webextensions.remote", false);
user_pref("fission.autostart", false);
user_pref("intl.accept_languages", "en");
user_pref("layout.css.prefers-color-scheme.content-override", 1);
user_pref("network.dns.localDomains", "plants.test");
user_pref("ui.prefersReducedMotion", 1);
user_pref("ui.useOverlayScrollbars", 1);
`

func (*firefoxBrowser) name() string { return "firefox" }

func startFirefox() (_ *firefoxProcess, err error) {
	path, err := exec.LookPath("firefox")
	if err != nil {
		return nil, err
	}
	p := &firefoxProcess{}
	if p.profile, err = os.MkdirTemp("", "plantstore-firefox-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if err := os.WriteFile(filepath.Join(p.profile, "user.js"), []byte(firefoxPreferences), 0o666); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(path, "--headless", "--no-remote", "--profile", p.profile,
		"--remote-debugging-port", "0", "--remote-allow-system-access", "about:blank")
	p.cmd.SysProcAttr = attributes()
	p.cmd.Env = append(os.Environ(), "MOZ_CRASHREPORTER_DISABLE=1")
	log, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	url, err := bidiURL(log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	if p.bidi, err = dialBidi(ctx, url+"/session"); err != nil {
		return nil, err
	}
	if err := p.bidi.call("session.new", object{"capabilities": object{}}, nil); err != nil {
		return nil, err
	}
	events := []string{"log.entryAdded", "browsingContext.downloadWillBegin", "browsingContext.downloadEnd"}
	if err := p.bidi.call("session.subscribe", object{"events": events}, nil); err != nil {
		return nil, err
	}
	var tree struct {
		Contexts []struct{ Context string }
	}
	if err := p.bidi.call("browsingContext.getTree", object{"moz:scope": "chrome"}, &tree); err != nil {
		return nil, err
	}
	p.chrome = tree.Contexts[0].Context
	return p, nil
}

// bidiURL reads the log up to the URL for WebDriver BiDi, and discards the rest.
func bidiURL(log io.Reader) (string, error) {
	lines := bufio.NewScanner(log)
	var seen []string
	for lines.Scan() {
		if _, url, found := strings.Cut(lines.Text(), "WebDriver BiDi listening on "); found {
			go func() {
				for lines.Scan() {
				}
			}()
			return url, nil
		}
		seen = append(seen, lines.Text())
	}
	return "", fmt.Errorf("the browser did not start: %s", strings.Join(seen, "\n"))
}

func (p *firefoxProcess) stop() {
	if p.bidi != nil {
		_ = p.bidi.call("browser.close", object{}, nil)
		p.bidi.close()
	}
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
	os.RemoveAll(p.profile)
}

func (f *firefoxBrowser) open(log func(string)) (_ driver, err error) {
	process := <-f.idle
	defer func() {
		if err != nil {
			f.idle <- nil
		}
	}()
	if process == nil {
		if process, err = startFirefox(); err != nil {
			return nil, err
		}
		harness.AtExit(process.stop)
	}
	p := &firefoxPage{browser: f, firefoxProcess: process, log: log, downloads: make(chan bidiEvent, 2)}
	if err := p.create(); err != nil {
		return nil, err
	}
	p.bidi.listen(p.event)
	return p, nil
}

// firefoxPage is the only page of its process.
type firefoxPage struct {
	*firefoxProcess
	browser   *firefoxBrowser
	user      string // the user context, which has the storage
	context   string
	log       func(string)
	downloads chan bidiEvent
}

// reportViolations has the violations of the content security policy logged.
const reportViolations = `() => addEventListener('securitypolicyviolation', (e) => console.error(
	'Content Security Policy: ' + e.effectiveDirective + ' ' + e.blockedURI + ' in ' + e.sourceFile + ':' + e.lineNumber))`

func (p *firefoxPage) create() error {
	var user struct{ UserContext string }
	if err := p.bidi.call("browser.createUserContext", object{}, &user); err != nil {
		return err
	}
	p.user = user.UserContext
	for _, script := range []string{reportViolations, longMessages} {
		err := p.bidi.call("script.addPreloadScript", object{"functionDeclaration": script, "userContexts": []string{p.user}}, nil)
		if err != nil {
			return err
		}
	}
	var created struct{ Context string }
	if err := p.bidi.call("browsingContext.create", object{"type": "tab", "userContext": p.user}, &created); err != nil {
		return err
	}
	p.context = created.Context
	return nil
}

// close lets another test use the process, or a new one if it does not respond.
func (p *firefoxPage) close() {
	p.bidi.listen(func(bidiEvent) {})
	if err := p.bidi.call("browser.removeUserContext", object{"userContext": p.user}, nil); err != nil {
		p.browser.idle <- nil
		return
	}
	p.browser.idle <- p.firefoxProcess
}

func (p *firefoxPage) event(e bidiEvent) {
	if strings.HasPrefix(e.Method, "browsingContext.download") {
		select {
		case p.downloads <- e:
		default: // nobody waits for it
		}
		return
	}
	var entry struct {
		Level, Type, Text string
		Source            struct{ Context string }
	}
	if err := json.Unmarshal(e.Params, &entry); err != nil {
		p.log(fmt.Sprintf("%s: %v", e.Params, err))
	}
	if entry.Source.Context != p.context {
		return
	}
	if entry.Level == "error" || entry.Level == "warn" {
		p.log(fmt.Sprintf("%s %s: %s", entry.Type, entry.Level, entry.Text))
	} else if entry.Text == endOfLog {
		p.log(endOfLog)
	}
}

// call runs a command on the page.
func (p *firefoxPage) call(method string, params object, result any) error {
	params["context"] = p.context
	return p.bidi.call(method, params, result)
}

func (p *firefoxPage) navigate(url string) error {
	return p.call("browsingContext.navigate", object{"url": url, "wait": "complete"}, nil)
}

func (p *firefoxPage) reload() error {
	return p.call("browsingContext.reload", object{"wait": "complete"}, nil)
}

// remoteValue is what a script evaluates to.
type remoteValue struct {
	Type     string
	Value    json.RawMessage
	SharedID string // of a node
}

// script runs a script in a context.
func (p *firefoxProcess) script(context, script string) (remoteValue, error) {
	var evaluated struct {
		Type             string
		Result           remoteValue
		ExceptionDetails struct{ Text string }
	}
	params := object{"target": object{"context": context}, "expression": script, "awaitPromise": true}
	if err := p.bidi.call("script.evaluate", params, &evaluated); err != nil {
		return remoteValue{}, err
	}
	if evaluated.Type != "success" {
		return remoteValue{}, errors.New(evaluated.ExceptionDetails.Text)
	}
	return evaluated.Result, nil
}

func (p *firefoxPage) evaluate(script string) (text string, err error) {
	value, err := p.script(p.context, script)
	if err != nil {
		return "", err
	}
	if value.Type != "string" {
		return "", fmt.Errorf("the script returned %s %s, want a string", value.Type, value.Value)
	}
	return text, json.Unmarshal(value.Value, &text)
}

func (p *firefoxPage) click(x, y float64) error {
	return p.call("input.performActions", object{"actions": []object{{
		"type": "pointer", "id": "mouse", "actions": []object{
			{"type": "pointerMove", "x": x, "y": y},
			{"type": "pointerDown", "button": 0},
			{"type": "pointerUp", "button": 0},
		},
	}}}, nil)
}

// webDriverKeys are the keys of kb that are not characters.
var webDriverKeys = strings.NewReplacer(
	kb.Enter, "\uE007", kb.Tab, "\uE004", kb.Escape, "\uE00C", kb.Backspace, "\uE003", kb.Delete, "\uE017",
	kb.ArrowUp, "\uE013", kb.ArrowDown, "\uE015", kb.ArrowLeft, "\uE012", kb.ArrowRight, "\uE014",
	kb.Home, "\uE011", kb.End, "\uE010", kb.PageUp, "\uE00E", kb.PageDown, "\uE00F",
)

func (p *firefoxPage) press(keys string) error {
	var actions []object
	for _, key := range webDriverKeys.Replace(keys) {
		actions = append(actions, object{"type": "keyDown", "value": string(key)}, object{"type": "keyUp", "value": string(key)})
	}
	return p.call("input.performActions", object{"actions": []object{{"type": "key", "id": "keyboard", "actions": actions}}}, nil)
}

func (p *firefoxPage) insert(text string) error {
	_, err := p.script(p.context, fmt.Sprintf("document.execCommand('insertText', false, %s)", quote(text)))
	return err
}

// quote returns the text as a literal of JavaScript.
func quote(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}

func (p *firefoxPage) resize(width, height int64) error {
	return p.call("browsingContext.setViewport", object{"viewport": object{"width": width, "height": height}}, nil)
}

// prefer needs the system's rights: WebDriver BiDi has no command for it yet.
func (p *firefoxPage) prefer(scheme string) error {
	_, err := p.script(p.chrome, fmt.Sprintf(`
		ChromeUtils.importESModule('chrome://remote/content/shared/NavigableManager.sys.mjs')
			.NavigableManager.getBrowsingContextById(%q).prefersColorSchemeOverride = %q;
	`, p.context, scheme))
	return err
}

func (p *firefoxPage) screenshot() ([]byte, error) {
	var captured struct{ Data []byte }
	err := p.call("browsingContext.captureScreenshot", object{}, &captured)
	return captured.Data, err
}

func (p *firefoxPage) choose(selector, file string) error {
	field, err := p.script(p.context, fmt.Sprintf("document.querySelector(%q)", selector))
	if err != nil {
		return err
	}
	return p.call("input.setFiles", object{"element": object{"sharedId": field.SharedID}, "files": []string{file}}, nil)
}

// drag sends the event from the page: WebDriver BiDi cannot drag files.
func (p *firefoxPage) drag(event dragEvent, file string, x, y float64) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	_, err = p.script(p.context, fmt.Sprintf(`(() => {
		const dataTransfer = new DataTransfer();
		dataTransfer.items.add(new File([%s], %q));
		document.elementFromPoint(%v, %v).dispatchEvent(new DragEvent(%q, {dataTransfer, bubbles: true, cancelable: true}));
	})()`, quote(string(content)), filepath.Base(file), x, y, event))
	return err
}

func (p *firefoxPage) download(dir string, start func()) (name string, content []byte, err error) {
	err = p.bidi.call("browser.setDownloadBehavior", object{
		"downloadBehavior": object{"type": "allowed", "destinationFolder": dir}, "userContexts": []string{p.user},
	}, nil)
	if err != nil {
		return "", nil, err
	}
	start()
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	for {
		var e bidiEvent
		select {
		case e = <-p.downloads:
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
		var download struct{ SuggestedFilename, Status, FilePath string }
		if err := json.Unmarshal(e.Params, &download); err != nil {
			return "", nil, err
		}
		if e.Method == "browsingContext.downloadWillBegin" {
			name = download.SuggestedFilename
			continue
		}
		if download.Status != "complete" {
			return "", nil, fmt.Errorf("the download ended with %s", bytes.TrimSpace(e.Params))
		}
		content, err = os.ReadFile(download.FilePath)
		return name, content, err
	}
}
