package clients

import (
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"

	"plantstore/e2e/harness"
)

// TestClientsUseTLS runs the clients against a TLS proxy, with and without trust in its
// certificate. Without, they fail at the first attempt.
func TestClientsUseTLS(t *testing.T) {
	server := harness.Start(t)
	target, err := url.Parse(server.API)
	if err != nil {
		t.Fatal(err)
	}
	handler := httputil.NewSingleHostReverseProxy(target)
	handler.FlushInterval = -1
	handler.ErrorLog = log.New(io.Discard, "", 0)
	proxy := httptest.NewUnstartedServer(handler)
	proxy.Config.ErrorLog = handler.ErrorLog // refused certificates
	proxy.StartTLS()
	t.Cleanup(proxy.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: proxy.Certificate().Raw})))
	env := []string{"URL=" + proxy.URL, "TOKEN=" + token, "CA=" + ca, pythonPath(t)}
	const want = "untrusted\n200000 created\n200000 exported\nplant.created\n"

	got := run(t, ".", env, need(t, "python3"), "-c", `
import os, ssl
from plantstore import Client, Plant, TransportError
url, token = os.environ["URL"], os.environ["TOKEN"]
retried = []
try:
    Client(url, token, retrying=lambda *_: retried.append(1)).get(1)
except TransportError:
    print("retried" if retried else "untrusted")
with Client(url, token, ssl_context=ssl.create_default_context(cafile=os.environ["CA"])) as store:
    report = store.import_plants(Plant(id, "Oak") for id in range(200000))
    print(report.created + report.unchanged, "created")
    with store.export() as plants:
        print(sum(1 for _ in plants), "exported")
    for event in store.events():
        print(event.type)
        break
`)
	if got != want {
		t.Errorf("Python: got\n%swant\n%s", got, want)
	}

	got = run(t, ".", env, need(t, "python3"), "-W", "error", "-c", `
import asyncio, os, ssl
from plantstore import AsyncClient, Plant, TransportError
url, token = os.environ["URL"], os.environ["TOKEN"]
async def main():
    retried = []
    try:
        await AsyncClient(url, token, retrying=lambda *_: retried.append(1)).get(1)
    except TransportError:
        print("retried" if retried else "untrusted")
    async with AsyncClient(url, token, ssl_context=ssl.create_default_context(cafile=os.environ["CA"])) as store:
        report = await store.import_plants(Plant(id, "Oak") for id in range(200000))
        print(report.created + report.unchanged, "created")
        print(len([line async for line in store.export().lines()]), "exported")
        async for event in store.events():
            print(event.type)
            break
asyncio.run(main())
`)
	if got != want {
		t.Errorf("Python with asyncio: got\n%swant\n%s", got, want)
	}

	const script = `
const { Plantstore, TransportError } = await import(process.env.PLANTSTORE_CLIENT);
let retried = false;
const store = new Plantstore({ url: process.env.URL, token: process.env.TOKEN, retrying: () => { retried = true; } });
if (process.env.NODE_EXTRA_CA_CERTS !== process.env.CA) {
  await store.get(1).catch((err) => console.log(err instanceof TransportError && !retried ? "untrusted" : err));
} else {
  const report = await store.import((function* () { for (let id = 0; id < 200000; id++) yield { id, name: "Oak" }; })());
  console.log(report.created + report.unchanged, "created");
  let n = 0;
  for await (const _ of await store.export()) n++;
  console.log(n, "exported");
  for await (const event of store.events()) { console.log(event.type); break; }
}
`
	env = append(env, typescriptClient(t))
	args := []string{"--input-type=module", "--eval", script}
	got = run(t, ".", env, need(t, "node"), args...)
	got += run(t, ".", append(env, "NODE_EXTRA_CA_CERTS="+ca), need(t, "node"), args...)
	if got != want {
		t.Errorf("TypeScript: got\n%swant\n%s", got, want)
	}
}
