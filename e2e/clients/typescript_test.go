package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

const typescriptDir = harness.Root + "/clients/typescript"

// typescriptClient compiles the client and returns the variable with which the driver
// finds it.
func typescriptClient(t testing.TB) string {
	t.Helper()
	compiler := need(t, "tsc")
	compiled.once.Do(func() {
		dir, err := os.MkdirTemp("", "plantstore-typescript-")
		if err != nil {
			t.Fatal(err)
		}
		harness.AtExit(func() { os.RemoveAll(dir) })
		run(t, typescriptDir, nil, compiler, "--outDir", dir)
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(`{"type": "module"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		compiled.dir = dir
	})
	return "PLANTSTORE_CLIENT=" + filepath.Join(compiled.dir, "index.js")
}

var compiled struct {
	once sync.Once
	dir  string
}

// node runs a module that imports the compiled client from PLANTSTORE_CLIENT.
func node(t *testing.T, script string, args ...string) string {
	t.Helper()
	args = append(args, "--input-type=module", "--eval", script)
	return run(t, ".", []string{typescriptClient(t)}, need(t, "node"), args...)
}

func TestTheTypeScriptClientLosesNoInteger(t *testing.T) {
	const script = `
const { parse, parseExactly } = await import(process.env.PLANTSTORE_CLIENT.replace("index.js", "json.js"));
const show = (value) => JSON.stringify(value, (_, v) => (typeof v === "bigint" ? v + "n" : v));
const deep = "[".repeat(50) + "]".repeat(50);
for (const text of [
  "9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "9223372036854775807",
  "-9223372036854775808", "1.5", "12345678901234567.5", "1e400", "-0", " [ 1 , 9007199254740993 ] ",
  '{"id":9007199254740993,"n\\"ame":"9007199254740993 \\\\","__proto__":{"a":[true,false,null]},"x":{}}',
  '"' + "\\u0000".repeat(300000) + '9007199254740993"', '{"a":' + deep + ',"b":1234567890123456789}',
]) {
  for (const f of [parse, parseExactly]) {
    console.log(show(f(text)).slice(0, 150));
  }
}
for (const text of ["", "[1,]", "{\"a\" 9007199254740993}", "9007199254740993 x", "01234567890123456"]) {
  for (const f of [parse, parseExactly]) {
    try { console.log("accepted", text, f(text)); } catch (err) { console.log(err.name); }
  }
}
`
	want := ""
	for _, line := range []string{
		`9007199254740991`, `"9007199254740992n"`, `"9007199254740993n"`, `"-9007199254740993n"`, `"9223372036854775807n"`,
		`"-9223372036854775808n"`, `1.5`, `12345678901234568`, `null`, `0`, `[1,"9007199254740993n"]`,
		`{"id":"9007199254740993n","n\"ame":"9007199254740993 \\","__proto__":{"a":[true,false,null]},"x":{}}`,
		`"` + strings.Repeat(`\u0000`, 30)[:149],
		`{"a":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `,"b":"1234567890123456789n"}`,
		"SyntaxError", "SyntaxError", "SyntaxError", "SyntaxError", "SyntaxError",
	} {
		want += line + "\n" + line + "\n"
	}
	if got := node(t, script); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	// Engines that show a reviver the source of a number, some only with this option.
	const option = "--harmony-json-parse-with-source"
	if exec.Command(need(t, "node"), option, "--eval", "").Run() == nil {
		if got := node(t, script, option); got != want {
			t.Errorf("with %s: got\n%s\nwant\n%s", option, got, want)
		}
	}
}

func TestAPlantCanBeWrittenAsJSONInTypeScript(t *testing.T) {
	got := node(t, `
const { parse, stringify } = await import(process.env.PLANTSTORE_CLIENT);
const plant = { id: 9007199254740993n, name: "a \"#5\" #6 \\", tag: "#7" };
const values = [plant, [1n, -2n, "#", "##-3", 'x"#4', "#4\\"], { "#8": "#8", "#9": 9n }, 10n, "#10", { at: new Date(0), none: undefined }];
for (const value of values) {
  console.log(stringify(value));
}
console.log(stringify(plant, 1));
const same = parse(stringify(values.slice(0, 1)))[0];
console.log(same.id === plant.id, same.name === plant.name, same.tag === plant.tag);
`)
	want := `{"id":9007199254740993,"name":"a \"#5\" #6 \\","tag":"#7"}
[1,-2,"#","##-3","x\"#4","#4\\"]
{"#8":"#8","#9":9}
10
"#10"
{"at":"1970-01-01T00:00:00.000Z"}
{
 "id": 9007199254740993,
 "name": "a \"#5\" #6 \\",
 "tag": "#7"
}
true true true
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheTypeScriptClientSaysThatItHasNoToken(t *testing.T) {
	got := node(t, `
const { Plantstore } = await import(process.env.PLANTSTORE_CLIENT);
for (const token of [undefined, ""]) {
  const store = new Plantstore({ url: "http://127.0.0.1:9", token });
  const all = async (values) => { for await (const _ of await values) throw "a value"; };
  for (const call of [() => store.create({ id: 1, name: "Oak" }), () => all(store.list()), () => all(store.events()), () => store.import([])]) {
    await call().catch((err) => console.log(err.name, err.code, err.message.includes("PLANTSTORE_TOKEN")));
  }
}
`)
	if want := strings.Repeat("UnauthorizedError 40101 true\n", 8); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheTypeScriptClientRecognisesPlaceholders(t *testing.T) {
	got := node(t, `
const { Plantstore } = await import(process.env.PLANTSTORE_CLIENT);
for (const token of ["<TOKEN>", "plt_<TOKEN>", "plt_\u2026", "plt_...", "plt_", "a b", "hunter..2"]) {
  try {
    new Plantstore({ url: "http://127.0.0.1:9", token });
    console.log("accepted");
  } catch (err) {
    console.log(err instanceof TypeError ? err.message : err);
  }
}
`)
	if want := wantRefusals(1); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestTheTypeScriptClientDoesNotRetryABadPort calls a port that fetch never connects to.
func TestTheTypeScriptClientDoesNotRetryABadPort(t *testing.T) {
	got := node(t, `
const { Plantstore } = await import(process.env.PLANTSTORE_CLIENT);
const store = new Plantstore({ url: "http://127.0.0.1:1", token: "secret", retries: 1, retrying: () => console.log("retried") });
await store.get(1).catch((err) => console.log(err.name, err.message));
`)
	if want := "TransportError get plant 1: fetch failed: bad port\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheTypeScriptClientChecksItsArguments(t *testing.T) {
	server := harness.Start(t)
	got := node(t, `
const { Plantstore, verifyWebhook } = await import(process.env.PLANTSTORE_CLIENT);
const store = new Plantstore({ url: "`+server.API+`", token: "`+token+`" });
const failure = async (f) => { try { await f(); return "no error"; } catch (err) { return err.name + " " + (err.code ?? ""); } };
console.log(await failure(() => store.get(2 ** 53)));
console.log(await failure(() => store.get(1.5)));
console.log(await failure(() => store.get("1")));
console.log(await failure(() => store.get(2n ** 63n)));
console.log(await failure(() => store.create({ id: 1, name: "\ud800" })));
console.log(await failure(() => store.get(1, { signal: AbortSignal.abort() })));
await store.create({ id: 1, name: "Oak" });
console.log((await store.get(1)).id === 1n);
const stop = new AbortController();
const following = failure(async () => { for await (const event of store.events({ signal: stop.signal })) { console.log(event.type); stop.abort(); } });
console.log(await following);
const nobody = new Plantstore({ url: "http://`+harness.ReserveAddr(t)+`", token: "t", retrying: () => later.abort() });
const later = new AbortController();
console.log(await failure(() => nobody.get(1, { signal: later.signal })));
const report = await store.import([{ id: 2, name: "a" }, { id: 3, name: "\udfff" }, { id: 4, name: "b" }]);
console.log(report.created, report.failed, report.errors[0].line, report.errors[0].code);
console.log(await failure(() => store.import((function* () { yield { id: 5, name: "c" }; throw new RangeError("mine"); })())));
Reflect.deleteProperty(globalThis, "crypto"); // as in Node 18
const at = Math.floor(Date.now() / 1000);
const headers = new Headers({ "webhook-id": "1", "webhook-timestamp": String(at), "webhook-signature": "v1,AAAA" });
console.log(await failure(() => verifyWebhook(headers, "{}", "whsec_AAAA")));
`)
	want := "TypeError \nTypeError \nTypeError \nPlantstoreError 40005\nPlantstoreError 40001\nAbortError 20\ntrue\n" +
		"plant.created\nAbortError 20\nAbortError 20\n2 1 2 40001\nRangeError \nPlantstoreError 0\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// compiler is a version of TypeScript with which the client must work.
type compiler struct{ name, path, module, resolution string }

// compilers are the oldest version, which is Debian's, and the newest ones, each with one of
// the ways to find modules.
func compilers(t *testing.T) []compiler {
	t.Helper()
	testenv.NeedsTools(t, harness.Root)
	tools, err := filepath.Abs(toolsDir + "/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	return []compiler{
		{"oldest", need(t, "tsc"), "ES2022", "node"},
		{"5.9", tools + "/typescript/bin/tsc", "ES2022", "bundler"},
		{"6", tools + "/typescript-6/bin/tsc", "nodenext", "nodenext"},
		{"7", tools + "/typescript-7/bin/tsc", "nodenext", "nodenext"},
	}
}

// TestTheTypeScriptPackageCanBeInstalled packs the client with each version of TypeScript,
// installs it into an empty project, without downloads, and uses it there. What the newest
// version packs works with all of them.
func TestTheTypeScriptPackageCanBeInstalled(t *testing.T) {
	npm, all := need(t, "npm"), compilers(t)
	for i, packer := range all {
		users := all
		if i < len(all)-1 {
			users = all[i : i+1]
		}
		t.Run(packer.name, func(t *testing.T) {
			t.Parallel()
			source, project := typescriptSource(t), t.TempDir()
			// As npm ci leaves it behind.
			bin := filepath.Join(source, "node_modules", ".bin")
			if err := os.MkdirAll(bin, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(packer.path, filepath.Join(bin, "tsc")); err != nil {
				t.Fatal(err)
			}
			env := []string{"npm_config_cache=" + t.TempDir(), "npm_config_update_notifier=false"}
			run(t, source, env, npm, "pack", "--offline")
			write(t, filepath.Join(project, "package.json"), `{"name": "project", "private": true, "type": "module"}`)
			run(t, project, env, npm, "install", "--offline", "--no-audit", "--no-fund", filepath.Join(source, "plantstore-1.0.0.tgz"))
			write(t, filepath.Join(project, "program.ts"), `
import { Plantstore, verifyWebhook, type StoredPlant } from "plantstore";
const store = new Plantstore({ url: "http://127.0.0.1:9", token: "t" });
export async function read(): Promise<bigint> {
  const plant: StoredPlant = await store.get(1);
  for await (const event of store.events({ types: ["plant.created"] })) {
    return event.plant.id;
  }
  return plant.id;
}
export async function write(lines: Uint8Array): Promise<void> {
  await store.importLines(lines, { mode: "replace", media: "text/csv", versions: true });
  const plants = store.list({ details: true });
  const report = await store.import((async function* () { for await (const p of plants) yield { ...p, ifVersion: p.version }; })(), { mode: "replace" });
  await store.import([{ id: 1, ifVersion: "x" }, { id: report.replaced + report.deleted }], { mode: "delete", dryRun: true });
  await store.import([{ id: 1, name: "Oak" }], { mode: "delete" });
  // @ts-expect-error only to delete a plant does its id suffice
  await store.import([{ id: 1 }], { mode: "replace" });
  await verifyWebhook(new Headers(), lines, "whsec_AAAA");
}
for await (const plant of store.list({ details: true })) {
  await store.delete(plant.id, { ifMatch: plant.etag });
}
for await (const plant of await store.export({ details: true })) {
  const updated: Date | undefined = plant.updated;
  console.log(updated);
}
const [first] = (await store.page({ details: true })).plants;
console.log(first!.version);
const [plain] = (await store.page()).plants;
// @ts-expect-error only details have an ETag: without one, a delete would be unconditional
await store.delete(1, { ifMatch: plain!.etag });
// @ts-expect-error a number may have lost the id
export const id: number = (await store.get(1)).id;
`)
			for _, user := range users {
				run(t, project, nil, user.path, "--noEmit", "--strict", "--target", "ES2022", "--module", user.module, "--moduleResolution", user.resolution, "program.ts")
			}
			got := run(t, project, nil, need(t, "node"), "--input-type=module", "--eval",
				`import * as plantstore from "plantstore"; console.log(Object.keys(plantstore).sort().slice(0, 3).join());
import { readFileSync } from "node:fs";
const { author, keywords, license, repository } = JSON.parse(readFileSync("node_modules/plantstore/package.json"));
console.log(license, author, repository.url, keywords.length > 0);
process.stdout.write(readFileSync("node_modules/plantstore/LICENSE"));`)
			want := "Code,Export,ForbiddenError\nMIT The Plantstore authors <plantstore@example.com> https://plantstore.example.com true\n" + licence(t)
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// TestTheTypeScriptLockIsCurrent checks what npm ci does before it downloads anything.
func TestTheTypeScriptLockIsCurrent(t *testing.T) {
	env := []string{"npm_config_cache=" + t.TempDir(), "npm_config_update_notifier=false"}
	run(t, typescriptSource(t), env, need(t, "npm"), "ci", "--dry-run", "--offline", "--no-audit", "--no-fund")
}

// typescriptSource returns a copy of the client as it is in the repository.
func typescriptSource(t *testing.T) string {
	t.Helper()
	source := filepath.Join(t.TempDir(), "typescript")
	if err := os.CopyFS(source, os.DirFS(typescriptDir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node_modules", "dist"} {
		if err := os.RemoveAll(filepath.Join(source, name)); err != nil {
			t.Fatal(err)
		}
	}
	return source
}
