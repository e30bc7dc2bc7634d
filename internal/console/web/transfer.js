// Import and export: files with one plant per line.

import { PLANTS, classify, failure, session } from './api.js';
import { $, busy, h, toast } from './dom.js';
import { count, sentence, size } from './format.js';
import { parse } from './json.js';
import { filters, filtered, reload } from './plants.js';

const NDJSON = 'application/x-ndjson';

const dialog = $('transfer');
let request = null; // the import in progress
let file = null; // the file being imported

export function startTransfer() {
  $('choose-file').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', () => take($('file').files));
  $('again').addEventListener('click', () => send(file));
  dialog.querySelector('.cancel').addEventListener('click', () => (request ? request.abort() : dialog.close()));
  dialog.addEventListener('cancel', (event) => {
    if (request) {
      event.preventDefault();
    }
  });
  startDrop();
}

export function openImport() {
  show('choose');
  dialog.showModal();
}

export const exportPlants = () => busy($('export'), download);

// startDrop lets a file be dropped anywhere on the page, unless another dialog is open.
function startDrop() {
  const ready = () => !$('console').hidden && !request && !document.querySelector('dialog[open]:not(#transfer)');
  const on = (name, f) =>
    addEventListener(name, (event) => {
      if (event.dataTransfer.types.includes('Files')) {
        event.preventDefault(); // otherwise the browser opens the file
        f(event);
      }
    });
  on('dragover', () => {
    $('drop').hidden = !ready();
  });
  on('dragleave', (event) => {
    $('drop').hidden ||= event.relatedTarget === null;
  });
  on('drop', (event) => {
    $('drop').hidden = true;
    if (ready()) {
      take(event.dataTransfer.files);
    }
  });
}

function take(files) {
  if (!dialog.open) {
    dialog.showModal();
  }
  if (files.length !== 1) {
    show('choose');
    $('choose-problem').textContent = `You chose ${files.length} files. Import one file at a time.`;
    return;
  }
  [file] = files;
  $('file').value = ''; // so that the same file can be chosen again
  send(file);
}

function show(part) {
  for (const id of ['choose', 'progress', 'report']) {
    $(id).hidden = id !== part;
  }
  $('again').hidden = true;
  $('choose-problem').textContent = '';
  dialog.querySelector('.cancel').textContent = part === 'progress' ? 'Stop' : 'Close';
}

// send uploads a file. XMLHttpRequest reports the progress of an upload; fetch does not.
function send(given) {
  show('progress');
  $('file-name').textContent = `${given.name}, ${size(given.size)}`;
  progress(0, 'Uploading…');
  const xhr = new XMLHttpRequest();
  request = xhr;
  xhr.upload.addEventListener('progress', ({ loaded, total }) => {
    if (loaded < total) {
      progress((loaded / total) * 100, `Uploading… ${Math.floor((loaded / total) * 100)} %`);
    }
  });
  xhr.upload.addEventListener('load', () => progress(null, 'Uploaded. Waiting until everything is saved…'));
  xhr.addEventListener('abort', () => session.secret() && stopped('The import was stopped. Plants that were already imported are kept. Importing the same file again is safe.'));
  xhr.addEventListener('error', () => stopped('The connection to the server was lost, or the file can no longer be read. Part of it may have been imported. Importing the same file again is safe.'));
  xhr.addEventListener('load', () => {
    if (xhr.status !== 200) {
      stopped(failure(xhr.status, xhr.responseText, xhr.getResponseHeader('X-Request-Id')).message);
      return;
    }
    finished(parse(xhr.responseText));
  });
  xhr.open('POST', `${PLANTS}/import`);
  xhr.setRequestHeader('Authorization', `Bearer ${session.secret()}`);
  xhr.setRequestHeader('Content-Type', NDJSON);
  xhr.send(given);
}

function progress(percent, text) {
  if (percent === null) {
    $('bar').removeAttribute('value');
  } else {
    $('bar').value = percent;
  }
  $('progress-text').textContent = text;
}

function stopped(message) {
  request = null;
  show('report');
  $('report').replaceChildren(h('p', { class: 'file' }, file.name), h('p', { class: 'problem', role: 'alert' }, sentence(message)));
  $('again').hidden = false;
  $('again').focus();
  reload();
}

function finished(report) {
  request = null;
  show('report');
  const figure = (name, value, bad) => h('div', { class: bad ? 'bad' : undefined }, h('dt', {}, name), h('dd', {}, count(BigInt(value))));
  const failed = report.failed !== '0';
  $('report').replaceChildren(
    h('p', { class: 'file', role: 'status' }, failed ? `${file.name}: some lines could not be imported` : `${file.name} was imported`),
    h('dl', { class: 'figures' }, figure('Created', report.created), figure('Unchanged', report.unchanged), figure('Failed', report.failed, failed)),
  );
  if (failed) {
    $('report').append(...failedLines(report));
  }
  dialog.querySelector('.cancel').focus();
  reload();
}

function failedLines({ failed, errors }) {
  const title = BigInt(failed) > errors.length ? `First ${errors.length} failed lines` : 'Failed lines';
  return [
    h('h3', { id: 'lines-title' }, title),
    h('ul', { class: 'lines', tabindex: '0', 'aria-labelledby': 'lines-title' }, ...errors.map(({ line, message }) => h('li', {}, h('span', {}, `Line ${count(BigInt(line))}`), h('span', {}, sentence(message))))),
    h('p', { class: 'hint' }, 'Fix these lines and import the file again. The other plants have been imported.'),
  ];
}

let exporting = new AbortController();

// stopTransfer ends what runs, because the user signs out.
export function stopTransfer() {
  exporting.abort('signed out');
  request?.abort();
  dialog.close();
  file = null;
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

function meter(tell) {
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

function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = h('a', { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
