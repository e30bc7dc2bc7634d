package clients

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/e2e/harness"
)

// importers import so many plants from an iterator, and print how many were created and
// how many seconds that took, and the peak of their memory in KiB.
var importers = map[string]string{
	"go": `
	var n plantstore.ID
	if _, err := fmt.Sscan(os.Getenv("PLANTS"), &n); err != nil {
		log.Fatal(err)
	}
	store, err := client.New(os.Getenv("PLANTSTORE_URL"), os.Getenv("PLANTSTORE_TOKEN"), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	began := time.Now()
	report, err := store.Import(ctx, func(yield func(plantstore.Plant) bool) {
		for id := plantstore.ID(0); id < n && yield(plantstore.Plant{ID: id, Name: "Plant " + id.String(), Tag: plantstore.NewTag("imported")}); id++ {
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	seconds := time.Since(began).Seconds()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		log.Fatal(err)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	fmt.Println(report.Created, seconds, strings.Fields(peak)[0])
`,
	"python": `
import os, time
from plantstore import Client, Plant
with Client(os.environ["PLANTSTORE_URL"], os.environ["PLANTSTORE_TOKEN"]) as store:
    began = time.monotonic()
    report = store.import_plants(Plant(id, f"Plant {id}", "imported") for id in range(int(os.environ["PLANTS"])))
    seconds = time.monotonic() - began
print(report.created, seconds, open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
`,
	"python asyncio": `
import asyncio, os, time
from plantstore import AsyncClient, Plant
async def main():
    async def plants():
        for id in range(int(os.environ["PLANTS"])):
            yield Plant(id, f"Plant {id}", "imported")
    async with AsyncClient(os.environ["PLANTSTORE_URL"], os.environ["PLANTSTORE_TOKEN"]) as store:
        began = time.monotonic()
        report = await store.import_plants(plants())
        seconds = time.monotonic() - began
    print(report.created, seconds, open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
asyncio.run(main())
`,
	"typescript": `
const { Plantstore } = await import(process.env.PLANTSTORE_CLIENT);
const store = new Plantstore({ url: process.env.PLANTSTORE_URL, token: process.env.PLANTSTORE_TOKEN });
const began = Date.now();
const report = await store.import((function* () {
  for (let id = 0; id < Number(process.env.PLANTS); id++) {
    yield { id, name: "Plant " + id, tag: "imported" };
  }
})());
const seconds = (Date.now() - began) / 1000;
const { readFileSync } = await import("node:fs");
console.log(report.created, seconds, readFileSync("/proc/self/status", "utf8").match(/VmHWM:\s*(\d+)/)[1]);
`,
}

// TestImportRates reports how fast each client imports, and its peak memory.
func TestImportRates(t *testing.T) {
	harness.NeedProc(t)
	plants := harness.Times(20_000, 1_000_000)
	for _, language := range []string{"go", "python", "python asyncio", "typescript"} {
		t.Run(language, func(t *testing.T) {
			server, code := harness.Start(t), importers[language]
			var cmd *exec.Cmd
			switch language {
			case "go":
				cmd = exec.Command(buildGo(t, t.TempDir(), code))
			case "python", "python asyncio":
				cmd = exec.Command(need(t, "python3"), "-c", code)
				cmd.Env = append(cmd.Env, pythonPath(t))
			case "typescript":
				cmd = exec.Command(need(t, "node"), "--input-type=module", "--eval", code)
				cmd.Env = append(cmd.Env, typescriptClient(t))
			}
			cmd.Env = append(append(os.Environ(), cmd.Env...),
				"PLANTSTORE_URL="+server.API, "PLANTSTORE_TOKEN="+token, fmt.Sprintf("PLANTS=%d", plants))
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatal(err)
			}
			var created, peak int
			var seconds float64
			if _, err := fmt.Sscan(string(out), &created, &seconds, &peak); err != nil || created != plants {
				t.Fatalf("created %d plants, want %d: %v: %s", created, plants, err, out)
			}
			harness.Report(t, "%s: %d plants, %.0f per second, at most %d MiB of memory", language, plants, float64(plants)/seconds, peak>>10)
		})
	}
}

// buildGo builds a program, or statements, as a program of the product's module, and returns its path.
func buildGo(t *testing.T, dir, code string) string {
	t.Helper()
	if !strings.HasPrefix(code, "package main") {
		var imports strings.Builder
		for _, name := range []string{"context", "errors", "fmt", "log", "os", "slices", "strings", "time"} {
			if strings.Contains(code, name+".") || name == "context" {
				fmt.Fprintf(&imports, "\t%q\n", name)
			}
		}
		code = "package main\n\nimport (\n" + imports.String() + "\n\t\"plantstore\"\n\t\"plantstore/client\"\n)\n\n" +
			"func main() {\n\tctx := context.Background()\n" + code + "}\n"
	}
	source := filepath.Join(dir, "main.go")
	write(t, source, code)
	root, err := filepath.Abs(harness.Root)
	if err != nil {
		t.Fatal(err)
	}
	list, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "example")
	write(t, list, fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "examples", "example", "main.go"), source))
	run(t, root, nil, need(t, "go"), "build", "-overlay", list, "-o", program, "./examples/example")
	return program
}
