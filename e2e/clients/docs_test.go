package clients

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
)

// blocks returns the code of one language on a page, for a server. It leaves out blocks after
// a comment that says why they are not pasted.
func blocks(t testing.TB, page, language string, server *harness.Server) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root, page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, block := range regexp.MustCompile("(?s)(<!-- not pasted: [^\n]+ -->\n)?```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if block[1] == "" {
			b.WriteString(block[2] + "\n")
		}
	}
	if b.Len() == 0 {
		t.Fatalf("%s has no block in %s", page, language)
	}
	return strings.ReplaceAll(b.String(), "http://127.0.0.1:8080", server.API)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// install makes a project in a folder that has the TypeScript client.
func install(t *testing.T, dir string) {
	t.Helper()
	client := filepath.Dir(strings.TrimPrefix(typescriptClient(t), "PLANTSTORE_CLIENT="))
	installed := filepath.Join(dir, "node_modules", "plantstore")
	if err := os.CopyFS(filepath.Join(installed, "dist"), os.DirFS(client)); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile(filepath.Join(typescriptDir, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(installed, "package.json"), string(manifest))
	write(t, filepath.Join(dir, "package.json"), `{"type": "module"}`)
}

// example returns the command that runs code of a language.
func example(t *testing.T, language, code string) *exec.Cmd {
	t.Helper()
	dir := t.TempDir()
	var cmd *exec.Cmd
	switch language {
	case "python":
		cmd = exec.CommandContext(t.Context(), need(t, "python3"), "-W", "error", "-c", code)
	case "ts":
		// The examples are JavaScript, too.
		install(t, dir)
		write(t, filepath.Join(dir, "main.js"), code)
		cmd = exec.CommandContext(t.Context(), need(t, "node"), "main.js")
	default:
		cmd = exec.CommandContext(t.Context(), buildGo(t, dir, code))
	}
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), pythonPath(t), "PLANTSTORE_TOKEN="+token)
	return cmd
}

// output runs a command, which must succeed, and returns its output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd.Path, err, out)
	}
	return string(out)
}

// paste runs every shell block of the pages in a folder and returns the output. Every command
// must succeed.
func paste(t *testing.T, shell, dir string, server *harness.Server, pages ...string) string {
	t.Helper()
	// Without "-c", a shell reads its input line by line, as if it were pasted.
	cmd := exec.CommandContext(t.Context(), need(t, shell), "-eu")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PLANTSTORE_TOKEN="+token, "PLANTSTORE_URL="+server.API)
	var text strings.Builder
	if shell == "bash" {
		text.WriteString("shopt -s expand_aliases\n") // as where people paste
	}
	for _, page := range pages {
		text.WriteString(blocks(t, page, "sh", server))
	}
	cmd.Stdin = strings.NewReader(strings.NewReplacer("<TOKEN>", token, "plt_…", token).Replace(text.String()))
	return output(t, cmd)
}

// TestTheFirstPagesRun pastes every block of the pages that a new user reads, in order, on one
// store, twice in each of two shells.
func TestTheFirstPagesRun(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	need(t, "jq")
	server, dir := harness.Start(t), t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(harness.Binary(), filepath.Join(dir, "bin/plantstore")); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string]int{"README.md": 4, "docs/usage.md": 4} {
		text, err := os.ReadFile(filepath.Join(harness.Root, page))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "<!-- not pasted: "); got != want {
			t.Errorf("%s has %d blocks that are not pasted, want %d", page, got, want)
		}
	}
	for range 2 {
		for _, shell := range []string{"bash", "zsh"} {
			got := paste(t, shell, dir, server, "README.md", "docs/usage.md")
			for _, want := range []string{
				`{"name":"Monstera","tag":"tropical"}`, `{"name":"Oak"}`, `{"id":3,"name":"Fern","tag":"shade"}`, `Plant 3 is deleted.`, ` 0 failed`,
				`(ci) is revoked.`, `{"id":1,"name":"Monstera","tag":"tropical"}`, `{"name":"Monstera deliciosa"}`, `"type":"plant.created"`, `{"error":40004,`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%s: got\n%s\nwant %s in it", shell, got, want)
				}
			}
			if strings.Count(got, `{"error":`) != 1 {
				t.Errorf("%s: got\n%s\nwant one error", shell, got)
			}
		}
	}
}

// TestTheLanguagesPageRuns runs every block of the page on one store, twice, in two shells and
// in every language.
func TestTheLanguagesPageRuns(t *testing.T) {
	const page = "docs/clients.md"
	need(t, "curl")
	server := harness.Start(t)
	monstera := plantstore.Plant{Name: "Monstera"}
	const program = "taken: \"id\" 9007199254740993 is taken by another plant: choose another id\n" +
		"%s0 created\n9007199254740993 Monstera deliciosa\nexported 1\nexported 2\nexported 3\nexported 9007199254740993\n" +
		"plant.created 9007199254740993\n%s"
	for i := range 2 {
		for _, shell := range []string{"bash", "zsh"} {
			got := paste(t, shell, t.TempDir(), server, page)
			created := `"created":0,"unchanged":3`
			if i == 0 && shell == "bash" {
				created = `"created":3,"unchanged":0`
			}
			for _, want := range []string{
				`{"name":"Monstera"}`, `{"error":40010,`, `{"name":"Monstera deliciosa","tag":"tropical"}`, created,
				`[{"id":9007199254740993,"name":"Monstera deliciosa","tag":"tropical"}]`, `{"id":3,"name":"Oak"}`, `"type":"plant.created"`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%s: got\n%s\nwant %s in it", shell, got, want)
				}
			}
			if strings.Count(got, `"error":4`) != 1 {
				t.Errorf("%s: got\n%s\nwant one error", shell, got)
			}
		}
		for language, only := range map[string][2]string{
			"go":     {},
			"ts":     {`{"id":9007199254740993,"name":"Monstera","etag":` + strconv.Quote(string(monstera.ETag())) + "}\n", ""},
			"python": {"", "plant.created 9007199254740993\n"},
		} {
			want := fmt.Sprintf(program, only[0], only[1])
			if got := output(t, example(t, language, blocks(t, page, language, server))); got != want {
				t.Errorf("%s: got\n%swant\n%s", language, got, want)
			}
		}
	}
}

// TestTheExamplesAreTypeScript compiles every block in TypeScript as strictly as it can be.
func TestTheExamplesAreTypeScript(t *testing.T) {
	server, compiler := harness.Start(t), need(t, "tsc")
	for _, page := range []string{"docs/clients.md", "clients/typescript/README.md", "docs/webhooks.md"} {
		dir := t.TempDir()
		install(t, dir)
		write(t, filepath.Join(dir, "main.ts"), blocks(t, page, "ts", server))
		// What the examples use of @types/node, which cannot be downloaded here.
		write(t, filepath.Join(dir, "node.d.ts"), `
declare const process: { env: { [name: string]: string | undefined } };
declare module "node:http" {
  interface Request extends AsyncIterable<any> {
    headers: { [name: string]: string | string[] | undefined };
    setEncoding(encoding: "utf8"): this;
  }
  interface Response { writeHead(status: number): this; end(): this; }
  function createServer(handle: (request: Request, response: Response) => void): { listen(port: number, host: string): void };
}
`)
		run(t, dir, nil, compiler, "--noEmit", "--strict", "--exactOptionalPropertyTypes", "--noUncheckedIndexedAccess",
			"--target", "ES2022", "--module", "nodenext", "--moduleResolution", "nodenext", "main.ts", "node.d.ts")
	}
}

// TestTheGoClientNeedsOneMoreModule adds the client to an empty module, without downloads.
func TestTheGoClientNeedsOneMoreModule(t *testing.T) {
	t.Parallel()
	dir, program := t.TempDir(), need(t, "go")
	root, err := filepath.Abs(harness.Root)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "main.go"), "package main\n\nimport _ \"plantstore/client\"\n\nfunc main() {}\n")
	env := []string{"GOPROXY=off", "GOFLAGS=", "GOWORK=off"}
	run(t, dir, env, program, "mod", "init", "example")
	run(t, dir, env, program, "mod", "edit", "-replace", "plantstore="+root)
	run(t, dir, env, program, "get", "plantstore/client")
	run(t, dir, env, program, "build", "-o", os.DevNull, ".")
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		if !strings.HasPrefix(line, "github.com/go-json-experiment/json ") {
			t.Errorf("go.sum has %s", line)
		}
	}
}

func TestTheQuickStartsRun(t *testing.T) {
	const taken = "40010 \"id\" 1 is taken by another plant: choose another id\n"
	for _, test := range []struct{ page, language, want string }{
		{"clients/python/README.md", "python", taken + "1 Monstera deliciosa\n100 created\nplant.created 1\n100 Plant 100\n"},
		{"clients/typescript/README.md", "ts", taken + "1n Monstera deliciosa\n2 created\nplant.created 1n\n"},
	} {
		t.Run(test.language, func(t *testing.T) {
			t.Parallel()
			code := blocks(t, test.page, test.language, harness.Start(t))
			if got := output(t, example(t, test.language, code)); got != test.want {
				t.Errorf("got\n%swant\n%s", got, test.want)
			}
		})
	}
}

// TestTheReceiversVerify runs the receivers of the page, and sends them a message that is
// authentic and one that is not.
func TestTheReceiversVerify(t *testing.T) {
	const page, body = "docs/webhooks.md", `{"type":"plant.created","data":{"id":9007199254740993,"name":"Öl"}}`
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a secret of a receiver"))
	server := harness.Start(t)
	receiver, err := os.ReadFile(harness.Root + "/examples/receiver/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(receiver)+"\n", blocks(t, page, "go", server)) {
		t.Error("the receiver in Go is not examples/receiver")
	}
	for _, language := range []string{"go", "ts", "python"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			addr := harness.ReserveAddr(t)
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				t.Fatal(err)
			}
			cmd := example(t, language, strings.ReplaceAll(blocks(t, page, language, server), "3000", port))
			cmd.Env = append(cmd.Env, "PLANTSTORE_WEBHOOK_SECRET="+secret)
			var out bytes.Buffer
			cmd.Stdout = &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stop := sync.OnceFunc(func() {
				cmd.Process.Kill()
				cmd.Wait()
			})
			defer stop()
			harness.Eventually(t, func() error {
				conn, err := net.Dial("tcp", addr)
				if err == nil {
					conn.Close()
				}
				return err
			})
			for sent, want := range map[string]int{body: http.StatusNoContent, body + " ": http.StatusUnauthorized} {
				at := time.Now()
				signature, err := plantstore.SignWebhook(secret, "msg_1", at, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addr+"/hook", strings.NewReader(sent))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("webhook-id", "msg_1")
				req.Header.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
				req.Header.Set("webhook-signature", signature)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != want {
					t.Errorf("got %s for %q, want %d", resp.Status, sent, want)
				}
			}
			stop()
			if want := "verified msg_1: " + body + "\n"; out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
		})
	}
}
