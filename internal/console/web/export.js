// Export: the plants that match the filters, in a file.

import { PLANTS, aborted, classify, failure, request } from './api.js';
import { h, toast } from './dom.js';
import { sentence, size } from './format.js';
import { parse } from './json.js';
import { openForm } from './parts.js';

/** @typedef {'csv' | 'spreadsheet' | 'ndjson' | 'json'} ExportFormat */

/** @type {[ExportFormat, string, string][]} */
const FORMATS = [
  ['csv', 'CSV', 'One plant per line: id, name, tag.'],
  ['spreadsheet', 'CSV for a spreadsheet', 'Formulas are made harmless with an apostrophe. Not for import.'],
  ['ndjson', 'NDJSON', 'One JSON object per line.'],
  ['json', 'JSON', 'One array.'],
];

let exporting = /** @type {AbortController | null} */ (null);

/** openExport asks for the format. It does nothing while an export is running. @param {URLSearchParams} filters */
export function openExport(filters) {
  if (exporting) {
    return;
  }
  /** @type {ExportFormat} */
  let chosen = 'csv';
  const choices = FORMATS.map(([format, name, hint]) => {
    const onchange = () => { chosen = format; };
    return h('label', { class: 'check' },
      h('input', { type: 'radio', name: 'format', value: format, checked: format === chosen, onchange }),
      h('span', {}, h('strong', {}, name), h('br'), hint));
  });
  openForm({
    title: filters.size > 0 ? 'Export the matching plants' : 'Export all plants',
    body: [h('fieldset', { id: 'formats', class: 'field checks' }, h('legend', {}, 'Format'), ...choices)],
    action: 'Export',
    run: async () => () => download(chosen, filters),
  });
}

// stopExport ends an export, because the user signs out.
export const stopExport = () => exporting?.abort('signed out');

// download saves the plants that match the filters to a file. Its message stays until it is
// done; closing the message stops it.
async function download(/** @type {ExportFormat} */ format, /** @type {URLSearchParams} */ filters) {
  const controller = exporting = new AbortController();
  const { signal } = controller;
  const stop = () => controller.abort('stopped');
  const message = toast('Exporting…', { keep: true, actions: [['Stop', stop]], onclose: stop, closeLabel: 'Stop the export' });
  const name = fileName(format, filters);
  let bytes = 0;
  let picked = /** @type {any} */ (null);
  try {
    picked = await pick(name, stop);
    const body = await read(format, filters, signal);
    const file = body.pipeThrough(meter((n) => {
      bytes = n;
      message.say(`Exporting… ${size(n)}`);
    }));
    if (picked) { // it changes only when the file is complete
      await file.pipeTo(await picked.createWritable(), { signal });
    } else { // the browser keeps it until then, on disk if it is large
      const blob = await new Response(file).blob();
      signal.throwIfAborted();
      offer(blob, name);
    }
    message.close();
    toast(`${filters.size > 0 ? 'The matching plants were' : 'All plants were'} exported: ${size(bytes)}.`);
  } catch (err) {
    message.close();
    await discard(picked);
    tell(err, signal);
  } finally {
    exporting = null;
  }
}

// pick lets the user choose where the file goes, in browsers that can. It returns null in
// others, and calls stop if the user chooses none.
async function pick(/** @type {string} */ name, /** @type {() => void} */ stop) {
  try {
    return await /** @type {any} */ (window).showSaveFilePicker?.({ suggestedName: name }) ?? null;
  } catch (err) {
    if (aborted(err)) {
      stop();
    }
    return null; // or the browser does not allow it here
  }
}

// read returns the file as the server sends it, or, in a format that the server does not have,
// made of NDJSON as it arrives.
/** @type {(format: ExportFormat, filters: URLSearchParams, signal: AbortSignal) => Promise<ReadableStream<Uint8Array>>} */
async function read(format, filters, signal) {
  const headers = { Accept: format === 'csv' ? 'text/csv' : 'application/x-ndjson' };
  const response = await request('GET', `${PLANTS}?${filters}`, { headers, signal });
  if (!response.ok) {
    throw failure(response, await response.text());
  }
  const body = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body);
  const layout = LAYOUTS[format];
  return layout ? body.pipeThrough(new TextDecoderStream()).pipeThrough(layOut(layout)).pipeThrough(new TextEncoderStream()) : body;
}

// A spreadsheet recognises UTF-8 by the byte order mark, and runs a text that begins like a formula.
const harmless = (/** @type {string} */ text) => `"${/^[=+\-@\t\r\n]/.test(text) ? "'" : ''}${text.replaceAll('"', '""')}"`;
const row = (/** @type {string} */ json) => {
  const { id, name, tag } = parse(json);
  return `${id},${harmless(name)},${tag === undefined ? '' : harmless(tag)}\n`;
};

/**
 * @typedef {{first: string, one: (json: string) => string, between: string, last: string}} Layout of records
 * @type {Partial<Record<ExportFormat, Layout>>}
 */
const LAYOUTS = {
  spreadsheet: { first: '\ufeffid,name,tag\n', one: row, between: '', last: '' },
  json: { first: '[\n', one: (json) => json, between: ',\n', last: '\n]\n' },
};

/** @param {Layout} layout @returns {TransformStream<string, string>} */
function layOut({ first, one, between, last }) {
  let rest = '';
  let lead = first;
  return new TransformStream({
    transform(text, controller) {
      const lines = (rest + text).split('\n');
      rest = lines.pop() ?? '';
      if (lines.length > 0) {
        controller.enqueue(lead + lines.map(one).join(between));
        lead = between;
      }
    },
    flush: (controller) => controller.enqueue(lead === first ? first + last : last),
  });
}

// discard removes the empty file that a browser creates when a new one is picked, so that it
// does not look like an export of no plants.
async function discard(/** @type {any} */ picked) {
  try {
    if (picked && (await picked.getFile()).size === 0) {
      await picked.remove();
    }
  } catch {
    // It stays.
  }
}

function tell(/** @type {any} */ err, /** @type {AbortSignal} */ signal) {
  if (signal.aborted) {
    if (signal.reason === 'stopped') {
      toast('The export was stopped. Nothing was saved.');
    }
    return;
  }
  const { status, message } = classify(err);
  if (status !== 401) {
    const lost = 'The export failed: the connection to the server was lost. Nothing was saved. Try again.';
    toast(status === 0 ? lost : sentence(message), { bad: true });
  }
}

// fileName names the file after the filters and the day.
function fileName(/** @type {ExportFormat} */ format, /** @type {URLSearchParams} */ filters) {
  const word = (/** @type {string} */ text) => text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 40);
  const words = [...filters].map(([name, text]) => word(name === 'untagged' ? name : text));
  const extension = format === 'spreadsheet' ? 'csv' : format;
  return `${['plants', ...words.filter(Boolean), new Date().toISOString().slice(0, 10)].join('-')}.${extension}`;
}

// meter says how many bytes pass, now and then and at the end.
function meter(/** @type {(bytes: number) => void} */ say) {
  let [bytes, next] = [0, 0];
  return new TransformStream({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (performance.now() > next) {
        next = performance.now() + 250;
        say(bytes);
      }
      controller.enqueue(chunk);
    },
    flush: () => say(bytes),
  });
}

// offer saves a file.
export function offer(/** @type {Blob} */ blob, /** @type {string} */ name) {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
