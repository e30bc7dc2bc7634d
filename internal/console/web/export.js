// Export: the plants that match the filters, in a file with one plant per line.

import { PLANTS, classify, failure, session } from './api.js';
import { $, busy, h, toast } from './dom.js';
import { sentence, size } from './format.js';
import { filters, filtered } from './plants.js';

const NDJSON = 'application/x-ndjson';

let exporting = new AbortController();

export const exportPlants = () => busy($('export'), download);

// stopExport ends an export, because the user signs out.
export function stopExport() {
  exporting.abort('signed out');
}

// download saves the plants that match the filters to a file. The browser stores the
// bytes as they arrive, on disk if there are many; the page never has them all in memory.
// Its message stays until it is done; closing the message stops it.
async function download() {
  exporting = new AbortController();
  const { signal } = exporting;
  const stop = () => exporting.abort('stopped');
  const all = !filtered();
  const name = fileName();
  const message = toast('Exporting…', { keep: true, actions: [['Stop', stop]], onclose: stop, closeLabel: 'Stop the export' });
  try {
    const query = new URLSearchParams(filters()).toString();
    const response = await fetch(PLANTS + (query && `?${query}`), {
      headers: { Accept: NDJSON, Authorization: `Bearer ${session.secret()}` },
      signal,
      cache: 'no-store',
      credentials: 'omit',
    });
    if (!response.ok) {
      throw failure(response.status, await response.text(), response.headers.get('X-Request-Id'));
    }
    const blob = await new Response(/** @type {ReadableStream} */ (response.body).pipeThrough(meter((bytes) => message.say(`Exporting… ${size(bytes)}`)))).blob();
    signal.throwIfAborted();
    offer(blob, name);
    message.close();
    toast(`${all ? 'All plants were' : 'The matching plants were'} exported: ${size(blob.size)}.`);
  } catch (err) {
    message.close();
    if (signal.aborted) {
      if (signal.reason === 'stopped') {
        toast('The export was stopped. Nothing was saved.');
      }
      return;
    }
    const { status, message: text } = classify(err);
    if (status !== 401) {
      toast(status === 0 ? 'The export failed: the connection to the server was lost. Nothing was saved. Try again.' : sentence(text), { bad: true });
    }
  }
}

// fileName names the file after the filters and the day.
function fileName() {
  const words = Object.values(filters()).map((text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40));
  return `${['plants', ...words.filter(Boolean), new Date().toISOString().slice(0, 10)].join('-')}.ndjson`;
}

function meter(/** @type {(bytes: number) => void} */ tell) {
  let bytes = 0;
  let next = 0;
  return new TransformStream({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (performance.now() > next) {
        next = performance.now() + 250;
        tell(bytes);
      }
      controller.enqueue(chunk);
    },
  });
}

// offer saves a file.
export function offer(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
