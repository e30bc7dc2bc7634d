package clients

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore"
	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
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

// paste runs commands in a folder and returns the output. Every command must succeed.
func paste(t *testing.T, shell, dir string, server *harness.Server, commands string) string {
	t.Helper()
	// Without "-c", a shell reads its input line by line, as if it were pasted.
	cmd := exec.CommandContext(t.Context(), need(t, shell), "-eu")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PLANTSTORE_TOKEN="+token, "PLANTSTORE_URL="+server.API)
	if shell == "bash" {
		commands = "shopt -s expand_aliases\n" + commands // as where people paste
	}
	cmd.Stdin = strings.NewReader(strings.NewReplacer("<TOKEN>", token, "plt_…", token).Replace(commands))
	return output(t, cmd)
}

// startForSamples starts a server whose webhooks may send to a receiver. The function that it
// returns puts the addresses of both into code.
func startForSamples(t *testing.T) (*harness.Server, func(code string) string) {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(receiver.Close)
	server := harness.Start(t, "--webhook-allow", "127.0.0.0/8")
	return server, strings.NewReplacer("http://127.0.0.1:8080", server.API, "http://127.0.0.1:3000", receiver.URL).Replace
}

// sampleIDs creates a token and a webhook, and returns the variables in which samples expect
// their ids.
func sampleIDs(t *testing.T, server *harness.Server, adapt func(string) string) []string {
	t.Helper()
	create := func(path, body string) string {
		status, text := server.Call(token, "POST", path, adapt(body))
		var made struct{ ID string }
		if err := json.Unmarshal([]byte(text), &made); err != nil || status != http.StatusCreated {
			t.Fatalf("POST %s: %d %s (%v)", path, status, text, err)
		}
		return made.ID
	}
	return []string{
		"TOKEN_ID=" + create("/tokens", `{"name":"sample","scopes":["plants:read"]}`),
		"WEBHOOK_ID=" + create("/webhooks", `{"url":"http://127.0.0.1:3000/hook"}`),
	}
}

// TestEverySampleRuns runs the code of every operation in openapi.json by itself, as the
// reference shows it, in every language.
func TestEverySampleRuns(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	need(t, "jq")
	var document struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(plantstore.OpenAPIJSON, &document); err != nil {
		t.Fatal(err)
	}
	type operation struct {
		OperationID string                          `json:"operationId"`
		Samples     []struct{ Lang, Source string } `json:"x-codeSamples"`
	}
	var operations []operation
	for _, methods := range document.Paths {
		for method, value := range methods {
			var o operation
			if method == "parameters" {
				continue
			}
			if err := json.Unmarshal(value, &o); err != nil {
				t.Fatal(err)
			}
			operations = append(operations, o)
		}
	}
	// What one creates, the others read, until another one deletes it.
	rank := func(o operation) int {
		return slices.IndexFunc([]string{"create", "import", "replacePlant", "patchPlant", "get", "list", "retry", "pause", "resume", "r", "test", "delete"}, func(prefix string) bool {
			return strings.HasPrefix(o.OperationID, prefix)
		})
	}
	slices.SortFunc(operations, func(a, b operation) int { return cmp.Compare(rank(a), rank(b)) })
	server, adapt := startForSamples(t)
	for _, language := range []string{"sh", "go", "ts", "python"} {
		var names, sources []string
		for _, o := range operations {
			for _, s := range o.Samples {
				if s.Lang == language {
					names, sources = append(names, o.OperationID), append(sources, adapt(s.Source))
				}
			}
		}
		if len(sources) != len(operations) {
			t.Errorf("%s: got the samples %s of %d operations", language, names, len(operations))
		}
		var cmd *exec.Cmd
		switch language {
		case "sh":
			var script strings.Builder
			for _, source := range sources {
				fmt.Fprintf(&script, "(\n%s\n)\n", source)
			}
			cmd = exec.CommandContext(t.Context(), need(t, "bash"), "-eu")
			cmd.Stdin, cmd.Env = strings.NewReader(script.String()), append(os.Environ(), "PLANTSTORE_TOKEN="+token)
		case "go":
			cmd = example(t, language, "func() {\n"+strings.Join(sources, "}()\nfunc() {\n")+"}()\n")
		case "ts":
			var main strings.Builder
			for _, name := range names {
				fmt.Fprintf(&main, "await import('./%s.js');\n", name)
			}
			cmd = example(t, language, main.String())
			for i, name := range names {
				write(t, filepath.Join(cmd.Dir, name+".js"), sources[i])
			}
		case "python":
			list, err := json.Marshal(sources)
			if err != nil {
				t.Fatal(err)
			}
			cmd = example(t, language, fmt.Sprintf("for source in %s:\n    exec(source, {})\n", list))
		}
		cmd.Env = append(cmd.Env, sampleIDs(t, server, adapt)...)
		got := output(t, cmd)
		for _, want := range []string{"Monstera", "tropical", "backup", "/hook", "204", "The archive", "1.0.0"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: got\n%s\nwant %s in it", language, got, want)
			}
		}
		// curl does not fail for an error. One sample shows that an id is taken.
		if n := strings.Count(got, `"error":4`); language == "sh" && n != 1 {
			t.Errorf("%s: got %d errors in\n%s", language, n, got)
		}
	}
}

// TestThePagesRun pastes every block of the pages that a new user reads, in order, on one
// store, twice: the commands in each of two shells, then the programs in each language.
func TestThePagesRun(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	need(t, "jq")
	server, adapt := startForSamples(t)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(harness.Binary(), filepath.Join(dir, "bin/plantstore")); err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	for _, page := range []struct {
		path      string
		notPasted int
	}{{"README.md", 4}, {"docs/usage.md", 4}, {"docs/clients.md", 0}, {"docs/webhooks.md", 2}} {
		text, err := os.ReadFile(filepath.Join(harness.Root, page.path))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(text), "<!-- not pasted: "); got != page.notPasted {
			t.Errorf("%s has %d blocks that are not pasted, want %d", page.path, got, page.notPasted)
		}
		commands.WriteString(adapt(blocks(t, page.path, "sh", server)))
	}
	programs := map[string]*exec.Cmd{}
	for _, language := range []string{"go", "ts", "python"} {
		programs[language] = example(t, language, adapt(blocks(t, "docs/clients.md", language, server)))
	}
	for round := range 2 {
		for _, shell := range []string{"bash", "zsh"} {
			got := paste(t, shell, dir, server, commands.String())
			created := `"created":0,"unchanged":3`
			if round == 0 && shell == "bash" {
				created = `"created":3,"unchanged":0`
			}
			for _, want := range []string{
				`{"name":"Monstera","tag":"tropical"}`, `{"name":"Oak"}`, `{"id":3,"name":"Fern","tag":"shade"}`, `Plant 3 is deleted.`, ` 0 failed`,
				`(ci) is revoked.`, `{"id":1,"name":"Monstera","tag":"tropical"}`, `{"name":"Monstera deliciosa"}`, `"type":"plant.created"`, `{"error":40004,`,
				`{"name":"Monstera"}`, `{"error":40010,`, `{"name":"Monstera deliciosa","tag":"tropical"}`, created,
				`{"id":9007199254740993,"name":"Monstera deliciosa","tag":"tropical"}]`, `{"id":23,"name":"Oak"}`, `"status":204`,
			} {
				if !strings.Contains(got, want) {
					t.Errorf("%s: got\n%s\nwant %s in it", shell, got, want)
				}
			}
			if n := strings.Count(got, `"error":4`); n != 2 {
				t.Errorf("%s: got %d errors in\n%s\nwant two", shell, n, got)
			}
		}
		for language, read := range map[string]string{
			"go":     "9007199254740993 Monstera",
			"ts":     `{"id":9007199254740993,"name":"Monstera",VERSION}`,
			"python": "9007199254740993 Monstera",
		} {
			want := "taken: 40010 \"id\" 9007199254740993 is taken by another plant: choose another id\n" + read + "\n0 created, 0 failed\n" +
				"1 Monstera\n5 Monstera\n6 Monstera deliciosa\n9007199254740993 Monstera deliciosa\n"
			for _, id := range []string{"1", "2", "3", "5", "6", "21", "22", "23", "9007199254740993"} {
				want += "exported " + id + "\n"
			}
			want += "shade 1\ntropical 4\nplant.created 1\n24 buckets\nbackup has the secret plt_"
			program := programs[language]
			cmd := exec.CommandContext(t.Context(), program.Path, program.Args[1:]...)
			cmd.Dir, cmd.Env = program.Dir, append(program.Env, sampleIDs(t, server, adapt)...)
			// Then come ids and secrets, which differ.
			got := anyVersion.ReplaceAllString(output(t, cmd), "VERSION")
			if !strings.HasPrefix(got, want) {
				t.Errorf("%s: got\n%swant it to begin with\n%s", language, got, want)
			}
		}
	}
}

// anyVersion is the version of a plant in JSON, and its ETag.
var anyVersion = regexp.MustCompile(`"version":"[0-9a-z]{12,32}","etag":"\\"[0-9a-z]{12,32}\\""`)

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
	env := []string{"GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=off"}
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
		{"clients/python/README.md", "python", taken + "1 Monstera deliciosa\n100 created, 0 failed\nplant.created 1\n100 Plant 100\n"},
		{"clients/typescript/README.md", "ts", taken + "1n Monstera deliciosa\n2 created, 0 failed\nplant.created 1n\n"},
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
			testenv.Eventually(t, func() error {
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
