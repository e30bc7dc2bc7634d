// Import: a file of plants is shown, sent in batches, and reported on.

import { PLANTS, aborted, call, handled } from './api.js';
import { $, busy, h, toast, value } from './dom.js';
import { offer } from './export.js';
import { count, plural, sentence, size } from './format.js';
import { parse } from './json.js';
import { reload } from './plants.js';
import { FileProblem, failedFile, failedRecord, openFile } from './records.js';

const PREVIEW = 5;
const BATCH = 5000; // records
const BATCH_BYTES = 1_000_000;
const LISTED = 100;
const KEPT = 100_000; // failed records, for the file of them

const dialog = $('transfer');

/**
 * @typedef {import('./records.js').PlantFile} PlantFile
 * @typedef {import('./records.js').PlantRecord} PlantRecord
 * @typedef {{created: bigint, unchanged: bigint, failed: bigint, lines: {line: number, reason: string}[], records: string[]}} Report
 */

/** @type {File | null} */
let file = null;
let running = new AbortController();
let busyImporting = false;

export function startImport() {
  $('choose-file').addEventListener('click', () => $('file').click());
  $('file').addEventListener('change', () => take($('file').files));
  $('again').addEventListener('click', () => send());
  $('start-import').addEventListener('click', () => send());
  dialog.querySelector('.cancel').addEventListener('click', () => (busyImporting ? running.abort() : dialog.close()));
  dialog.addEventListener('cancel', (/** @type {Event} */ event) => {
    if (busyImporting) {
      event.preventDefault();
    }
  });
  startDrop();
}

export function openImport() {
  show('choose');
  dialog.showModal();
}

// stopImport ends an import and forgets the file, because the user signs out.
export function stopImport() {
  running.abort('signed out');
  file = null;
  $('report').replaceChildren();
  $('preview').replaceChildren();
  dialog.close();
}

// startDrop lets a file be dropped anywhere on the page, unless another dialog is open.
function startDrop() {
  const ready = () => $('import') && !$('import').hidden && !$('console').hidden && !busyImporting && !document.querySelector('dialog[open]:not(#transfer)');
  const on = (/** @type {'dragover' | 'dragleave' | 'drop'} */ name, /** @type {(event: DragEvent, files: FileList) => void} */ f) =>
    addEventListener(name, (event) => {
      if (event.dataTransfer?.types.includes('Files')) {
        event.preventDefault(); // otherwise the browser opens the file
        f(event, event.dataTransfer.files);
      }
    });
  on('dragover', () => {
    $('drop').hidden = !ready();
  });
  on('dragleave', (event) => {
    $('drop').hidden ||= event.relatedTarget === null;
  });
  on('drop', (_, files) => {
    $('drop').hidden = true;
    if (ready()) {
      take(files);
    }
  });
}

// take shows the first records of a file, if it is one of plants.
async function take(/** @type {FileList} */ files) {
  if (!dialog.open) {
    dialog.showModal();
  }
  show('choose');
  if (files.length !== 1) {
    $('choose-problem').textContent = `You chose ${files.length} files. Import one file at a time.`;
    return;
  }
  const [given] = files;
  file = given;
  $('file').value = ''; // so that the same file can be chosen again
  try {
    preview(await openFile(given), await firstRecords(given));
  } catch (err) {
    $('choose-problem').textContent = err instanceof FileProblem ? err.message : `${given.name} cannot be read.`;
  }
}

async function firstRecords(/** @type {File} */ given) {
  const records = [];
  for await (const record of (await openFile(given)).records) {
    records.push(record);
    if (records.length === PREVIEW) {
      break;
    }
  }
  return records;
}

const FORMATS = { ndjson: 'one JSON object per line', json: 'a JSON array', csv: 'CSV' };

function preview(/** @type {PlantFile} */ opened, /** @type {PlantRecord[]} */ records) {
  show('preview');
  const cell = (/** @type {string | undefined} */ text) => h('td', {}, value(text));
  const rows = records.map(({ json, problem, line }) => {
    const plant = problem ? {} : parse(json);
    return h('tr', {}, h('td', {}, count(line)), ...(problem || typeof plant !== 'object' || plant === null
      ? [h('td', { colspan: '3', class: 'problem' }, sentence(problem || 'not a plant'))]
      : ['id', 'name', 'tag'].map((key) => cell(plant[key] === undefined ? undefined : String(plant[key])))));
  });
  const heading = [opened.noun === 'line' ? 'Line' : 'Element', 'ID', 'Name', 'Tag'].map((name) => h('th', { scope: 'col' }, name));
  $('preview').replaceChildren(
    h('p', { class: 'file' }, file?.name ?? ''),
    h('p', { class: 'hint' }, `${size(file?.size ?? 0)}, ${FORMATS[opened.format]}. The first records:`),
    h('div', { class: 'sheet' }, h('table', { 'aria-label': 'First records' }, h('thead', {}, h('tr', {}, ...heading)), h('tbody', {}, ...rows))),
    ...(opened.ignored.length > 0 ? [h('p', { class: 'hint' }, `Ignored columns: ${opened.ignored.join(', ')}.`)] : []),
  );
  $('start-import').focus();
}

function show(/** @type {string} */ part) {
  for (const id of ['choose', 'preview', 'progress', 'report']) {
    $(id).hidden = id !== part;
  }
  $('again').hidden = true;
  $('start-import').hidden = part !== 'preview';
  $('choose-problem').textContent = '';
  dialog.querySelector('.cancel').textContent = part === 'progress' ? 'Stop' : part === 'report' ? 'Close' : 'Cancel';
}

// send imports the file, and reports on it.
async function send() {
  const given = /** @type {File} */ (file);
  running = new AbortController();
  const { signal } = running;
  /** @type {Report} */
  const report = { created: 0n, unchanged: 0n, failed: 0n, lines: [], records: [] };
  busyImporting = true;
  show('progress');
  $('file-name').textContent = `${given.name}, ${size(given.size)}`;
  progress(0, report);
  let opened = null;
  let problem = '';
  try {
    opened = await openFile(given);
    for await (const batch of batches(opened)) {
      await sendBatch(batch, opened, report, signal);
      progress((opened.read() / given.size) * 100, report);
    }
  } catch (err) {
    problem = why(err, signal);
  }
  busyImporting = false;
  if (signal.reason === 'signed out') {
    return;
  }
  finish(given, opened, report, problem);
  reload();
}

function why(/** @type {any} */ err, /** @type {AbortSignal} */ signal) {
  if (signal.aborted || aborted(err)) {
    return 'The import was stopped. Plants that were already imported are kept. Importing the same file again is safe.';
  }
  if (err instanceof FileProblem) {
    return err.message;
  }
  if (err.status === 0 || err.status === undefined) {
    return 'The connection to the server was lost, or the file can no longer be read. Part of it may have been imported. Importing the same file again is safe.';
  }
  return sentence(err.message);
}

// batches yields the records of a file, as many at a time as one request has.
async function* batches(/** @type {PlantFile} */ opened) {
  let batch = [];
  let bytes = 0;
  for await (const record of opened.records) {
    batch.push(record);
    bytes += record.json.length;
    if (batch.length >= BATCH || bytes >= BATCH_BYTES) {
      yield batch;
      batch = [];
      bytes = 0;
    }
  }
  yield batch;
}

// sendBatch imports records. The server names only the first ones that it refused: those
// after them are sent again, which is safe, until all are named.
async function sendBatch(/** @type {PlantRecord[]} */ batch, /** @type {PlantFile} */ opened, /** @type {Report} */ report, /** @type {AbortSignal} */ signal) {
  for (const record of batch.filter(({ problem }) => problem)) {
    fail(report, opened, record, record.problem);
  }
  let rest = batch.filter(({ problem }) => !problem);
  for (let first = true; rest.length > 0; first = false) {
    const { json } = await call('POST', `${PLANTS}/import`, {
      body: rest.map(({ json }) => `${json}\n`).join(''), headers: { 'Content-Type': 'application/x-ndjson' }, signal,
    });
    const { created, unchanged, failed, errors } = json();
    if (first) {
      report.created += BigInt(created);
      report.unchanged += BigInt(unchanged);
    }
    for (const { line, message } of errors) {
      fail(report, opened, rest[Number(line) - 1], message);
    }
    rest = BigInt(failed) > BigInt(errors.length) ? rest.slice(Number(errors.at(-1).line)) : [];
  }
}

function fail(/** @type {Report} */ report, /** @type {PlantFile} */ opened, /** @type {PlantRecord} */ { line, source }, /** @type {string} */ reason) {
  report.failed++;
  if (report.lines.length < LISTED) {
    report.lines.push({ line, reason });
  }
  if (report.records.length < KEPT) {
    report.records.push(failedRecord(opened.format, source, reason));
  }
}

function progress(/** @type {number} */ percent, /** @type {Report} */ { created, unchanged, failed }) {
  $('bar').value = percent;
  $('progress-text').textContent = `Importing… ${Math.floor(percent)} %, ${plural(created + unchanged + failed, 'plant')}`;
}

function finish(/** @type {File} */ given, /** @type {PlantFile | null} */ opened, /** @type {Report} */ report, /** @type {string} */ problem) {
  show('report');
  const figure = (/** @type {string} */ name, /** @type {bigint} */ n, /** @type {boolean} */ bad = false) => h('div', { class: bad ? 'bad' : undefined }, h('dt', {}, name), h('dd', {}, count(n)));
  const failed = opened !== null && report.failed > 0n;
  const title = problem ? given.name : failed ? `${given.name}: some ${opened.noun}s could not be imported` : `${given.name} was imported`;
  $('report').replaceChildren(
    h('p', { class: 'file', role: 'status' }, title),
    ...(problem ? [h('p', { class: 'problem', role: 'alert' }, problem)] : []),
    h('dl', { class: 'figures' }, figure('Created', report.created), figure('Unchanged', report.unchanged), figure('Failed', report.failed, failed)),
    ...(failed ? failures(given, opened, report) : []),
  );
  $('again').hidden = !problem;
  (problem ? $('again') : dialog.querySelector('.cancel')).focus();
}

function failures(/** @type {File} */ given, /** @type {PlantFile} */ opened, /** @type {Report} */ { failed, lines, records }) {
  const noun = opened.noun === 'line' ? 'Line' : 'Element';
  return [
    h('h3', { id: 'lines-title' }, failed > BigInt(lines.length) ? `Fix these ${opened.noun}s (the first ${lines.length})` : `Fix these ${opened.noun}s`),
    h('ul', { class: 'lines', tabindex: '0', 'aria-labelledby': 'lines-title' }, ...lines.map(({ line, reason }) => h('li', {}, h('span', {}, `${noun} ${count(line)}`), h('span', {}, sentence(reason))))),
    h('p', { class: 'hint' }, 'The other plants have been imported. The file below has these with their reasons: fix it and import it.'),
    h('button', { id: 'failed-lines', onclick: () => offer(new Blob(failedFile(opened, records)), `failed-${given.name}`) }, `Download failed ${opened.noun}s`),
  ];
}

const SAMPLES = ['Monstera deliciosa,tropical', 'Snake plant,succulent', 'Weeping fig,tree', 'Peace lily,tropical', 'Aloe vera,succulent', 'Boston fern,fern', 'Jade plant,succulent', 'English lavender,herb', 'Rosemary,herb', 'Japanese maple,tree', 'Common oak,tree', 'Spider plant,tropical', 'Golden pothos,tropical', 'Basil,herb', 'Thyme,herb', 'Silver birch,tree', 'Maidenhair fern,fern', 'Bird of paradise,tropical', 'Rubber plant,tropical', 'Common ivy,climber'];

/** loadSamples creates some plants, so that there is something to look at. */
export const loadSamples = (/** @type {HTMLElement} */ button) => busy(button, async () => {
  const lines = SAMPLES.map((text, i) => {
    const [name, tag] = text.split(',');
    return `${JSON.stringify({ id: i + 1, name, tag })}\n`;
  });
  try {
    const { json } = await call('POST', `${PLANTS}/import`, { body: lines.join(''), headers: { 'Content-Type': 'application/x-ndjson' } });
    toast(`${plural(BigInt(json().created), 'sample plant')} loaded.`);
    reload();
  } catch (err) {
    if (!handled(err)) {
      toast(sentence(err.message), { bad: true });
    }
  }
});
