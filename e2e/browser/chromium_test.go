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
var chromium browser = &chromiumBrowser{start: sync.OnceValues(startChromium)}

type chromiumBrowser struct {
	start func() (context.Context, error)
}

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

func (*chromiumBrowser) name() string { return "chromium" }

func (c *chromiumBrowser) open(log func(string)) (driver, error) {
	main, err := c.start()
	if err != nil {
		return nil, err
	}
	ctx, cancel := chromedp.NewContext(main, chromedp.WithNewBrowserContext())
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
		_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: "(" + longMessages + ")()"})
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return &chromiumPage{ctx, cancel}, nil
}

type chromiumPage struct {
	ctx    context.Context
	cancel func()
}

func (p *chromiumPage) do(steps ...chromedp.Action[chromedp.Void]) error {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Do(ctx, steps...)
}

func (p *chromiumPage) close() { p.cancel() }

func (p *chromiumPage) navigate(url string) error { return p.do(chromedp.Navigate(url)) }

func (p *chromiumPage) reload() error { return p.do(chromedp.Reload()) }

func (p *chromiumPage) evaluate(script string) (string, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
}

func (p *chromiumPage) click(x, y float64) error { return p.do(chromedp.MouseClickXY(x, y)) }

// press sends the character of a key with the key. chromedp.KeyEvent sends it by itself, and
// a busy browser then types it even if the page has handled the key.
func (p *chromiumPage) press(keys string) error {
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

func (p *chromiumPage) insert(text string) error {
	_, err := chromedp.Call(p.ctx, input.InsertText, input.InsertTextParams{Text: text})
	return err
}

func (p *chromiumPage) resize(width, height int64) error {
	return p.do(chromedp.EmulateViewport(width, height))
}

func (p *chromiumPage) prefer(scheme string) error {
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}},
	})
	return err
}

func (p *chromiumPage) screenshot() ([]byte, error) {
	ctx, cancel := context.WithTimeout(p.ctx, pageTimeout)
	defer cancel()
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

func (p *chromiumPage) choose(selector, file string) error {
	return p.do(chromedp.SetUploadFiles(chromedp.CSS(selector), []string{file}))
}

func (p *chromiumPage) drag(event dragEvent, file string, x, y float64) error {
	_, err := chromedp.Call(p.ctx, input.DispatchDragEvent, input.DispatchDragEventParams{
		Type: map[dragEvent]input.DispatchDragEventType{dragEnter: "dragEnter", dragOver: "dragOver", drop: "drop"}[event],
		X:    x, Y: y,
		Data: &input.DragData{Items: []*input.DragDataItem{}, Files: []string{file}, DragOperationsMask: 1},
	})
	return err
}

func (p *chromiumPage) download(dir string, start func()) (name string, content []byte, err error) {
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
