package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/e2e/harness"
	"plantstore/internal/testenv"
)

const pythonDir = harness.Root + "/clients/python"

// run runs a program in a folder, which must succeed, and returns its output.
func run(t testing.TB, dir string, env []string, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

func TestThePythonClientIsTyped(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program.py")
	// An ignored error that is none is an error.
	write(t, program, `
from plantstore import AsyncClient, Client, ImportLine, ImportReport, Plant, StoredPlant

def blocking(store: Client) -> None:
    etags: list[str] = [plant.etag for plant in store.list(details=True)]
    plants: list[StoredPlant] = store.page(details=True).plants
    print(etags, plants, next(store.export(details=True)).updated)
    changes = [ImportLine(plant.id, "Oak", if_version=plant.version) for plant in plants]
    report: ImportReport = store.import_plants([*changes, Plant(1, "Elm")], mode="replace", dry_run=True)
    print(report.replaced + report.deleted, store.import_lines([b"id\n1\n"], mode="delete", media="text/csv", versions=True))
    store.import_plants([Plant(1, "Elm")], mode="update")  # type: ignore[arg-type]
    print(next(store.list()).etag)  # type: ignore[attr-defined]
    print(store.page().plants[0].etag)  # type: ignore[attr-defined]
    print(next(store.export()).etag)  # type: ignore[attr-defined]

async def tasks(store: AsyncClient) -> None:
    etags: list[str] = [plant.etag async for plant in store.list(details=True)]
    plants: list[StoredPlant] = (await store.page(details=True)).plants
    print(etags, plants, [plant.updated async for plant in store.export(details=True)])
    await store.import_plants((ImportLine(plant.id) async for plant in store.list()), mode="delete")
    print([plant.etag async for plant in store.list()])  # type: ignore[attr-defined]
    print((await store.page()).plants[0].etag)  # type: ignore[attr-defined]
    print([plant.etag async for plant in store.export()])  # type: ignore[attr-defined]
`)
	run(t, pythonDir, nil, need(t, "mypy"), "--cache-dir", t.TempDir(), "src", program)
}

// TestThePythonWheelCanBeInstalled builds a wheel and installs it into an empty
// environment, without downloads, where it has its licence and all of its types.
func TestThePythonWheelCanBeInstalled(t *testing.T) {
	t.Parallel()
	python := need(t, "python3")
	source, dir := filepath.Join(t.TempDir(), "python"), t.TempDir()
	if err := os.CopyFS(source, os.DirFS(pythonDir)); err != nil { // the build leaves files behind
		t.Fatal(err)
	}
	run(t, source, nil, python, "-c", `from setuptools import build_meta; build_meta.build_wheel("dist")`)
	run(t, dir, nil, python, "-m", "venv", "env")
	wheels, err := filepath.Glob(filepath.Join(source, "dist", "*.whl"))
	if err != nil || len(wheels) != 1 {
		t.Fatalf("the build made %q, want one wheel", wheels)
	}
	installed := filepath.Join(dir, "env", "bin", "python")
	run(t, dir, nil, installed, "-m", "pip", "install", "--quiet", "--no-index", wheels[0])
	server := harness.Start(t)
	got := run(t, dir, []string{"URL=" + server.API, "TOKEN=" + token}, installed, "-c", `
import importlib.metadata, os, plantstore
with plantstore.Client(os.environ["URL"], os.environ["TOKEN"]) as store:
    store.create(plantstore.Plant(2**53 + 1, "Monstera"))
    print(store.get(2**53 + 1).id, os.path.exists(os.path.dirname(plantstore.__file__) + "/py.typed"))
about = importlib.metadata.metadata("plantstore")
print(about.get("License-Expression", about["License"]), about["Author-email"], about["Project-URL"], about["Keywords"] != None)
print([path.read_text() for path in importlib.metadata.files("plantstore") if path.name == "LICENSE"][0], end="")
`)
	want := "9007199254740993 True\nMIT The Plantstore authors <plantstore@example.com> Repository, https://plantstore.example.com True\n" + licence(t)
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	pyright, err := filepath.Abs(toolsDir + "/node_modules/pyright/index.js")
	if err != nil {
		t.Fatal(err)
	}
	testenv.NeedsTools(t, harness.Root)
	path := "PATH=" + filepath.Dir(installed) + string(os.PathListSeparator) + os.Getenv("PATH")
	run(t, dir, []string{path}, need(t, "node"), pyright, "--verifytypes", "plantstore", "--ignoreexternal")
}

// licence returns the licence that every package must include.
func licence(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(harness.Root + "/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestThePythonClientChecksItsArguments(t *testing.T) {
	t.Parallel()
	server := harness.Start(t)
	got := run(t, ".", []string{pythonPath(t), "URL=" + server.API, "TOKEN=" + token}, need(t, "python3"), "-c", `
import os
from datetime import datetime
from plantstore import Client, Plant, PlantstoreError, StoredPlant

store = Client(os.environ["URL"], os.environ["TOKEN"])

def failure(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except PlantstoreError as err:
        # Python 3.10 prints the name of an enumeration's member instead of its number.
        print(type(err).__name__, err.code if type(err.code) is int else repr(err.code))
    except Exception as err:
        print(type(err).__name__)
    else:
        print("no error")

failure(store.get, "1")
failure(store.get, True)
failure(store.get, 1.0)
failure(store.get, 2**63)
failure(store.create, Plant(1, "\ud800"))
failure(store.create, Plant(1, b"Oak"))
failure(store.list(q="\udfff").__next__)
failure(store.event_page, since=datetime(2026, 1, 31))
failure(Client, "ftp://example.com", "t")
failure(Client, "http://user:secret@example.com", "t")
failure(Client, "http://example.com", "two words")
failure(Client, "http://example.com", "plt_short")
failure(Client("http://127.0.0.1:9", "t", retries=0).get, 1)
known = StoredPlant(1, "Oak", version="x")
print(known == Plant(1, "Oak"), hash(known) == hash(Plant(1, "Oak")), known == Plant(1, "Oak", ""))
report = store.import_plants([Plant(2, "a"), Plant(3, "\udfff"), Plant(4, "b")])
print(report.created, report.failed, report.errors[0].line, report.errors[0].code)

def broken():
    yield Plant(5, "c")
    raise RuntimeError("mine")

failure(store.import_plants, broken())
with store.export() as plants:
    print(next(plants).id)
print([plant.id for plant in store.list(limit=1)])
`)
	want := "TypeError\nTypeError\nTypeError\nPlantstoreError 40005\nPlantstoreError 40001\nTypeError\nPlantstoreError 40006\n" +
		"ValueError\nValueError\nValueError\nValueError\nValueError\nTransportError 0\nTrue True False\n2 1 2 40001\nRuntimeError\n2\n[2, 4]\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestThePythonClientSaysThatItHasNoToken(t *testing.T) {
	t.Parallel()
	got := run(t, ".", []string{pythonPath(t)}, need(t, "python3"), "-c", `
import asyncio
from plantstore import AsyncClient, Client, Plant, PlantstoreError

def show(err):
    print(type(err).__name__, err.code, "PLANTSTORE_TOKEN" in err.message, "[token]" in err.message)

async def in_tasks(token):
    async with AsyncClient("http://127.0.0.1:9", token) as store:
        try:
            await store.create(Plant(1, "Oak"))
        except PlantstoreError as err:
            show(err)

for token in (None, ""):
    store = Client("http://127.0.0.1:9", token)
    for call in (
        lambda: store.create(Plant(1, "Oak")), lambda: list(store.list()), lambda: list(store.events()),
        lambda: store.export(), lambda: store.import_plants([]),
    ):
        try:
            call()
        except PlantstoreError as err:
            show(err)
    asyncio.run(in_tasks(token))
`)
	if want := strings.Repeat("UnauthorizedError 40101 True False\n", 12); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestThePythonClientRecognisesPlaceholders(t *testing.T) {
	t.Parallel()
	got := run(t, ".", []string{pythonPath(t)}, need(t, "python3"), "-c", `
from plantstore import AsyncClient, Client

for token in ("<TOKEN>", "plt_<TOKEN>", "plt_\u2026", "plt_...", "plt_", "a b", "hunter..2"):
    for client in (Client, AsyncClient):
        try:
            client("http://127.0.0.1:9", token)
            print("accepted")
        except ValueError as err:
            print(str(err))
`)
	if want := wantRefusals(2); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// wantRefusals is what clients say of four placeholders, two malformed tokens and a good one,
// n times each.
func wantRefusals(n int) string {
	return strings.Repeat("the token is a placeholder: put a real one in its place\n", 4*n) +
		strings.Repeat("a token that begins with plt_ has 40 characters, this one has 4\n", n) +
		strings.Repeat("the token has characters that are not allowed in a bearer token\n", n) +
		strings.Repeat("accepted\n", n)
}

// TestTheAsyncClientIsForTasks checks what only AsyncClient has: tasks that share it, that
// are cancelled, and that stop in the middle of an iteration.
func TestTheAsyncClientIsForTasks(t *testing.T) {
	t.Parallel()
	server := harness.Start(t)
	got := run(t, ".", []string{pythonPath(t), "URL=" + server.API, "TOKEN=" + token}, need(t, "python3"), "-W", "error", "-c", `
import asyncio, gc, os, threading
from plantstore import AsyncClient, IdTakenError, Plant

async def main():
    async with AsyncClient(os.environ["URL"], os.environ["TOKEN"]) as store:
        await asyncio.gather(*(store.create(Plant(id, "Oak")) for id in range(300)))
        print(len([plant async for plant in store.list(limit=100)]), "created, at most 100 at once:", len(store._pool._idle) <= 100)
        try:
            await store.create(Plant(1, "Elm"))
        except IdTakenError as err:
            print(err.code)

        async def source():
            for id in (2000, 2001):
                await asyncio.sleep(0)
                yield Plant(id, "Fern")
            raise RuntimeError("mine")

        try:
            await store.import_plants(source())
        except RuntimeError as err:
            print(err)
        async with store.export(after=298) as plants:
            print([plant.id async for plant in plants], bool(plants.cursor))

        store._pool.close()
        waiting = asyncio.create_task(store.events(after="latest").__anext__())
        async for event in store.events():
            break
        async for plant in store.export():
            break
        waiting.cancel()
        print([type(err).__name__ for err in await asyncio.gather(waiting, return_exceptions=True)])
        del waiting
    gc.collect()
    await asyncio.sleep(0)
    print(threading.active_count(), "thread")

asyncio.run(main())
`)
	want := "300 created, at most 100 at once: True\n40010\nmine\n[299] True\n['CancelledError']\n1 thread\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
