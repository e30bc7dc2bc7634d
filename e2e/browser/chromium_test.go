package browser

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	cdp "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"plantstore/e2e/harness"
)

// chromium is one process, whose pages all have the focus at once.
var chromium = sync.OnceValues(startChromium)

func startChromium() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, err
	}
	profile, err := os.MkdirTemp("", "plantstore-chromium-")
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
		chromedp.WSURLReadTimeout(pageTimeout),
	)
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	main, closeMain := chromedp.NewContext(allocator)
	harness.AtExit(func() {
		closeMain()
		stop()
		os.RemoveAll(profile)
	})
	return main, chromedp.Do(main)
}

// openPage opens a page in the browser of another, or without one in a browser of its own, with
// its own storage. It reports the errors and warnings of the page's log, and endOfLog. The error
// is exec.ErrNotFound if Chromium is not installed.
func openPage(log func(string), beside *driver) (*driver, error) {
	parent, err := chromium()
	if err != nil {
		return nil, err
	}
	var options []chromedp.ContextOption
	if beside != nil {
		parent = beside.ctx
	} else {
		options = append(options, chromedp.WithNewBrowserContext())
	}
	ctx, cancel := chromedp.NewContext(parent, options...)
	messages := chromedp.Console(ctx)
	go func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			if m.Type == chromedp.ConsoleError || m.Type == chromedp.ConsoleWarning || m.IsException() || m.Source == "security" {
				log(fmt.Sprintf("%s (%s %s)", m, m.Source, m.URL))
			} else if m.Text == endOfLog {
				log(endOfLog)
				return
			}
		}
	}()
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	if err == nil {
		_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "(" + longMessages + ")(); (" + finders + ")()"})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &driver{ctx, cancel}, nil
}

// driver drives a page of Chromium. What takes longer than pageTimeout fails.
type driver struct {
	ctx    context.Context
	cancel func()
}

func (p *driver) do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

func (p *driver) close() { p.cancel() }

func (p *driver) navigate(url string) error { return p.do(chromedp.Navigate(url)) }

func (p *driver) reload() error { return p.do(chromedp.Reload()) }

// evaluate returns the text that the script evaluates to, or that its promise resolves to.
func (p *driver) evaluate(script string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
}

func (p *driver) click(x, y float64) error { return p.do(chromedp.MouseClickXY(x, y)) }

// press sends the character of a key with the key. chromedp.KeyEvent sends it by itself, and
// a busy browser then types it even if the page has handled the key.
func (p *driver) press(keys string) error {
	for _, key := range keys {
		events := kb.Encode(key)
		down, up := *events[0], *events[len(events)-1]
		if len(events) == 3 {
			down.Text, down.UnmodifiedText = events[1].Text, events[1].UnmodifiedText
		}
		for _, event := range []input.DispatchKeyEventParams{down, up} {
			if _, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, event); err != nil {
				return err
			}
		}
	}
	return nil
}

// insert replaces the selection with the text, as if it was pasted.
func (p *driver) insert(text string) error {
	_, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text})
	return err
}

func (p *driver) resize(width, height int64) error {
	return p.do(chromedp.EmulateViewport(width, height))
}

// prefer sets the preferred color scheme.
func (p *driver) prefer(scheme string) error {
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	return err
}

func (p *driver) screenshot() ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

// choose chooses a file in the field.
func (p *driver) choose(selector, file string) error {
	return p.do(chromedp.SetUploadFiles(chromedp.CSS(selector), []string{file}))
}

// drag lets a file from elsewhere enter the page, move over it, or drop on it.
func (p *driver) drag(event input.DispatchDragEventType, file string, x, y float64) error {
	_, err := chromedp.Call(p.ctx, input.DispatchDragEvent, input.DispatchDragEventParams{
		Type: event, X: x, Y: y,
		Data: &input.DragData{Items: []*input.DragDataItem{}, Files: []string{file}, DragOperationsMask: 1},
	})
	return err
}

// download returns the name and the content of the file that the browser saves when start is
// called.
func (p *driver) download(dir string, start func()) (name string, content []byte, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	_, err = chromedp.CallBrowser(ctx, cdp.SetDownloadBehavior, cdp.SetDownloadBehaviorParams{
		Behavior:         cdp.SetDownloadBehaviorBehaviorAllowAndName,
		BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID,
		DownloadPath:     dir,
		EventsEnabled:    new(true),
	})
	if err != nil {
		return "", nil, err
	}
	began, progress := chromedp.BrowserEvents(ctx, cdp.DownloadWillBegin), chromedp.BrowserEvents(ctx, cdp.DownloadProgress)
	start()
	var id string
	for event, err := range began {
		if err != nil {
			return "", nil, err
		}
		// The events are those of all pages. A page and its main frame have the same id.
		if string(event.FrameID) == string(chromedp.FromContext(p.ctx).Target.TargetID) {
			name, id = event.SuggestedFilename, event.GUID
			break
		}
	}
	for event, err := range progress {
		if err != nil {
			return "", nil, err
		}
		if event.GUID == id && event.State == cdp.DownloadProgressStateCompleted {
			content, err = os.ReadFile(filepath.Join(dir, id))
			return name, content, err
		}
	}
	return "", nil, context.Cause(ctx)
}
