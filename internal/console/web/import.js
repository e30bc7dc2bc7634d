// Import: a file of plants is shown, sent in batches, and reported on. It goes on while its
// dialog is closed.

import { aborted, allows, importPlants, listPlants } from './api.js';
import { ignored, separatorName } from './csv.js';
import { $, busy, h, toast, value } from './dom.js';
import { offer } from './export.js';
import { count, plural, sentence, size } from './format.js';
import { parse, refusal } from './json.js';
import { fact, tell } from './parts.js';
import { FileProblem, failedFile, failedRecord, openFile } from './records.js';
import { wholeNumber } from './state.js';

const SHOWN = 5; // records of a preview, and as many that will fail
const CHECKED = 1000;
const BATCH = 5000; // records
const BATCH_BYTES = 1_000_000;
const LISTED = 100;
const KEPT = 100_000; // failed records, for the file of them

const dialog = $('transfer', HTMLDialogElement);
const chooser = $('file', HTMLInputElement);

/**
 * @typedef {import('./records.js').PlantFile} PlantFile
 * @typedef {import('./records.js').PlantRecord} PlantRecord
 * @typedef {import('./records.js').Columns} Columns
 * @typedef {import('./csv.js').Table} Table
 * @typedef {{records: PlantRecord[], complete: boolean}} First what a preview is about
 *
 * @typedef {object} Report
 * @property {bigint} created
 * @property {bigint} unchanged
 * @property {bigint} failed
 * @property {{line: number, reason: string}[]} lines
 * @property {string[]} records
 */

/** @type {File | null} */
let file = null;
/** @type {Columns | undefined} */
let columns; // if they were chosen by hand
/** @type {AbortController | null} */
let running = null;
/** @type {import('./dom.js').Toast | null} */
let status = null; // the message in place of the dialog
let changed = () => {};

/** startImport sets what to call when an import has changed the store. @param {() => void} f */
export function startImport(f) {
  changed = f;
  $('choose-file').addEventListener('click', () => chooser.click());
  chooser.addEventListener('change', () => take(chooser.files ?? []));
  $('again').addEventListener('click', () => send());
  $('start-import').addEventListener('click', () => send());
  $('close-import').addEventListener('click', () => dialog.close());
  $('cancel-import').addEventListener('click', () => (running ? running.abort() : dialog.close()));
  dialog.addEventListener('close', () => {
    if (running && !running.signal.aborted) {
      const stop = () => running?.abort();
      const options = { keep: true, onclose: stop, closeLabel: 'Stop the import' };
      status = toast($('progress-text').textContent ?? '', { ...options, actions: [['Show', reopen], ['Stop', stop]] });
    }
  });
  startDrop();
}

export function openImport() {
  if (!running) {
    show('choose');
  }
  reopen();
}

function reopen() {
  status?.close();
  status = null;
  dialog.showModal();
}

// stopImport ends an import and forgets the file, because the user signs out.
export function stopImport() {
  running?.abort('signed out');
  file = null;
  $('report').replaceChildren();
  $('preview').replaceChildren();
  dialog.close();
}

// ask lets the browser ask before the user leaves the page, which would stop the import.
const ask = (/** @type {Event} */ event) => event.preventDefault();

// startDrop lets a file be dropped anywhere on the page, unless another dialog is open.
function startDrop() {
  const ready = () => document.getElementById('import')?.hidden === false && !$('console').hidden && !running
    && !document.querySelector('dialog[open]:not(#transfer)');
  /**
   * @param {'dragover' | 'dragleave' | 'drop'} name
   * @param {(event: DragEvent, files: FileList) => void} f
   */
  const on = (name, f) => addEventListener(name, (event) => {
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
async function take(/** @type {FileList | File[]} */ files) {
  if (!dialog.open) {
    reopen();
  }
  show('choose');
  if (files.length !== 1) {
    $('choose-problem').textContent = `You chose ${files.length} files. Import one file at a time.`;
    return;
  }
  const [given] = files;
  file = given;
  columns = undefined;
  chooser.value = ''; // so that the same file can be chosen again
  try {
    const opened = await openFile(given);
    const first = await firstRecords(opened);
    show('preview');
    preview(given, opened, first);
  } catch (err) {
    $('choose-problem').textContent = err instanceof FileProblem ? err.message : `${given.name} cannot be read.`;
  }
}

// firstRecords reads and checks some records. Where the file cannot be read further, the last
// one says so: the import will get that far.
async function firstRecords(/** @type {PlantFile} */ opened) {
  /** @type {PlantRecord[]} */
  const records = [];
  let bytes = 0;
  try {
    for await (const record of opened.records) {
      records.push({ ...record, problem: record.problem || refusal(record.json) });
      bytes += record.json.length;
      if (records.length === CHECKED || bytes > BATCH_BYTES) {
        return { records, complete: false };
      }
    }
  } catch (err) {
    if (!(err instanceof FileProblem) || records.length === 0) {
      throw err;
    }
    records.push({ line: records.length + 1, json: '', source: null, problem: err.message });
  }
  return { records, complete: true };
}

const FORMATS = { ndjson: 'one JSON object per line', json: 'a JSON array', csv: 'CSV' };

function preview(/** @type {File} */ given, /** @type {PlantFile} */ opened, /** @type {First} */ first) {
  const { format, table } = opened;
  const sheet = h('div', {}, ...firstRows(opened, first));
  $('preview').replaceChildren(
    h('p', { class: 'file' }, given.name),
    h('p', { class: 'hint' }, `${size(given.size)}, ${FORMATS[format]}${table ? `, separator ${separatorName(table.separator)}` : ''}.`),
    ...(table && (table.problem || (table.columns.tag < 0 && ignored(table).length > 0)) ? [mapping(given, table, sheet)] : []),
    sheet,
  );
  $('start-import').focus();
}

// mapping lets the user choose which columns have the id, the name and the tag.
function mapping(/** @type {File} */ given, /** @type {Table} */ table, /** @type {HTMLElement} */ sheet) {
  const chosen = { ...table.columns };
  const choose = async (/** @type {keyof Columns} */ name, /** @type {number} */ column) => {
    chosen[name] = column;
    const mine = { ...chosen };
    columns = mine;
    const opened = await openFile(given, mine);
    const first = await firstRecords(opened);
    if (columns === mine) { // otherwise another column was chosen meanwhile
      sheet.replaceChildren(...firstRows(opened, first));
    }
  };
  const unreadable = () => sheet.replaceChildren(h('p', { class: 'problem' }, `${given.name} cannot be read.`));
  const select = (/** @type {keyof Columns} */ name, /** @type {string} */ label) => {
    const headings = table.headings.map((text, i) => [i, text.trim() || `column ${i + 1}`]);
    const options = [...(name === 'tag' ? [[-1, 'none']] : []), ...headings];
    return h('label', {}, label, h(
      'select',
      { id: `column-${name}`, onchange: (/** @type {any} */ event) => choose(name, Number(event.target.value)).catch(unreadable) },
      ...options.map(([i, text]) => h('option', { value: i, selected: i === chosen[name] ? '' : undefined }, String(text))),
    ));
  };
  return h(
    'fieldset',
    { class: 'mapping' },
    h('legend', {}, table.problem ? 'Which columns have the ID, the name and the tag?' : 'Is another column the tag?'),
    ...(table.problem ? [select('id', 'ID'), select('name', 'Name')] : []),
    select('tag', 'Tag'),
  );
}

// firstRows shows the first records and those among the checked ones that will fail. More may
// fail: only the IDs that are shown are looked up.
function firstRows(/** @type {PlantFile} */ { noun, table }, /** @type {First} */ { records, complete }) {
  const bad = records.filter(({ problem }) => problem);
  const shown = [...records.slice(0, SHOWN), ...bad.filter((record) => records.indexOf(record) >= SHOWN).slice(0, SHOWN)];
  const rows = shown.map((record) => previewRow(record));
  const all = `${complete ? '' : 'the first '}${plural(records.length, 'record')}`;
  const verdict = h('p', { id: 'verdict', role: 'status', class: bad.length > 0 ? 'problem' : 'hint' });
  const judge = (/** @type {number} */ failing) => {
    verdict.className = failing > 0 ? 'problem' : 'hint';
    verdict.textContent = failing > 0 ? `At least ${count(failing)} of ${all} will fail.` : 'The first records:';
  };
  judge(bad.length);
  markTaken(shown, rows, (taken) => judge(bad.length + taken));
  const heading = [noun === 'line' ? 'Line' : 'Element', 'ID', 'Name', 'Tag'].map((name) => h('th', { scope: 'col' }, name));
  const unused = table ? ignored(table) : [];
  return [
    verdict,
    h('div', { class: 'sheet', tabindex: '0', role: 'group', 'aria-label': 'First records' }, h(
      'table',
      { 'aria-label': 'First records' },
      h('thead', {}, h('tr', {}, ...heading)),
      h('tbody', {}, ...rows),
    )),
    ...(unused.length > 0 ? [h('p', { class: 'hint' }, `Ignored columns: ${unused.join(', ')}.`)] : []),
  ];
}

function previewRow(/** @type {PlantRecord} */ { line, json, problem }) {
  const number = h('td', {}, count(line));
  if (problem) {
    return h('tr', {}, number, h('td', { colspan: '3', class: 'problem' }, sentence(problem)));
  }
  const plant = parse(json);
  return h('tr', {}, number, ...['id', 'name', 'tag'].map((key) => h('td', {}, value(plant[key]))));
}

/**
 * markTaken marks the rows whose id another plant has, once the server has said so.
 * @param {PlantRecord[]} records
 * @param {HTMLElement[]} rows
 * @param {(taken: number) => void} tell
 */
async function markTaken(records, rows, tell) {
  let taken = 0;
  await Promise.all(records.map(async (record, i) => {
    const plant = record.problem ? {} : parse(record.json);
    if (!allows('plants:read') || !/^-?\d+$/.test(plant.id)) {
      return;
    }
    const after = wholeNumber(String(BigInt(plant.id) - 1n));
    const query = new URLSearchParams({ limit: '1', ...(after && { after }) });
    const { items: [found] } = await listPlants(`?${query}`, {}).catch(() => ({ items: [] }));
    if (found && BigInt(found.id) === BigInt(plant.id) && (found.name !== plant.name || found.tag !== plant.tag)) {
      taken++;
      rows[i].replaceWith(previewRow({ ...record, problem: `"id" ${found.id} is taken by another plant: choose another id` }));
      tell(taken);
    }
  }));
}

function show(/** @type {string} */ part) {
  for (const id of ['choose', 'preview', 'progress', 'report']) {
    $(id).hidden = id !== part;
  }
  $('again').hidden = true;
  $('close-import').hidden = part !== 'progress';
  $('start-import').hidden = part !== 'preview';
  $('choose-problem').textContent = '';
  $('cancel-import').textContent = part === 'progress' ? 'Stop' : part === 'report' ? 'Close' : 'Cancel';
}

// send imports the file, and reports on it.
async function send() {
  const given = /** @type {File} */ (file);
  running = new AbortController();
  const { signal } = running;
  /** @type {Report} */
  const report = { created: 0n, unchanged: 0n, failed: 0n, lines: [], records: [] };
  addEventListener('beforeunload', ask);
  show('progress');
  $('file-name').textContent = `${given.name}, ${size(given.size)}`;
  progress(0, report);
  $('close-import').focus();
  let opened = null;
  let problem = '';
  try {
    opened = await openFile(given, columns);
    for await (const batch of batches(opened)) {
      await sendBatch(batch, opened, report, signal);
      progress((opened.read() / given.size) * 100, report);
    }
  } catch (err) {
    problem = why(err, signal);
  }
  running = null;
  removeEventListener('beforeunload', ask);
  status?.close();
  status = null;
  if (signal.reason === 'signed out') {
    return;
  }
  finish(given, opened, report, problem);
  changed();
}

function why(/** @type {any} */ err, /** @type {AbortSignal} */ signal) {
  if (signal.aborted || aborted(err)) {
    return 'The import was stopped. Plants that were already imported are kept. Importing the same file again is safe.';
  }
  if (err instanceof FileProblem) {
    return err.message;
  }
  if (err.status === 0 || err.status === undefined) {
    return 'The connection to the server was lost, or the file can no longer be read. '
      + 'Part of it may have been imported. Importing the same file again is safe.';
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

/**
 * sendBatch imports records. The server names only the first ones that it refused: those
 * after them are sent again, which is safe, until all are named.
 * @param {PlantRecord[]} batch
 * @param {PlantFile} opened
 * @param {Report} report
 * @param {AbortSignal} signal
 */
async function sendBatch(batch, opened, report, signal) {
  for (const record of batch.filter(({ problem }) => problem)) {
    fail(report, opened, record, record.problem);
  }
  let rest = batch.filter(({ problem }) => !problem);
  for (let first = true; rest.length > 0; first = false) {
    const { created, unchanged, failed, errors } = await importPlants(rest.map(({ json }) => json), { signal });
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

/**
 * @param {Report} report
 * @param {PlantFile} opened
 * @param {PlantRecord} record
 * @param {string} reason
 */
function fail(report, opened, { line, source }, reason) {
  report.failed++;
  if (report.lines.length < LISTED) {
    report.lines.push({ line, reason });
  }
  if (report.records.length < KEPT) {
    report.records.push(failedRecord(opened, source, reason));
  }
}

function progress(/** @type {number} */ percent, /** @type {Report} */ { created, unchanged, failed }) {
  const text = `Importing… ${Math.floor(percent)} %, ${plural(created + unchanged + failed, 'plant')}`;
  $('bar', HTMLProgressElement).value = percent;
  $('progress-text').textContent = text;
  status?.say(text);
}

/**
 * finish shows the report, or says that there is one if the dialog was closed.
 * @param {File} given
 * @param {PlantFile | null} opened
 * @param {Report} report
 * @param {string} problem
 */
function finish(given, opened, report, problem) {
  show('report');
  const failed = opened !== null && report.failed > 0n;
  const outcome = failed ? `${given.name}: some ${opened.noun}s could not be imported` : `${given.name} was imported`;
  const title = problem ? given.name : outcome;
  $('report').replaceChildren(
    h('p', { class: 'file', role: 'status' }, title),
    ...(problem ? [h('p', { class: 'problem', role: 'alert' }, problem)] : []),
    h(
      'dl',
      { class: 'figures' },
      fact('Created', count(report.created)),
      fact('Unchanged', count(report.unchanged)),
      fact('Failed', count(report.failed), failed ? 'bad' : undefined),
    ),
    ...(failed ? failures(given, opened, report) : []),
  );
  $('again').hidden = !problem;
  if (!dialog.open) {
    const bad = failed || problem !== '';
    status = toast(problem ? `${title}: ${problem}` : `${title}.`, { bad, keep: true, actions: [['Show', reopen]] });
    return;
  }
  (problem ? $('again') : $('cancel-import')).focus();
}

function failures(/** @type {File} */ given, /** @type {PlantFile} */ opened, /** @type {Report} */ { failed, lines, records }) {
  const noun = opened.noun === 'line' ? 'Line' : 'Element';
  const title = `Fix these ${opened.noun}s${failed > BigInt(lines.length) ? ` (the first ${lines.length})` : ''}`;
  const save = () => offer(new Blob(failedFile(opened, records)), `failed-${given.name}`);
  return [
    h('h3', { id: 'lines-title' }, title),
    h(
      'ul',
      { class: 'lines', tabindex: '0', 'aria-labelledby': 'lines-title' },
      ...lines.map(({ line, reason }) => h('li', {}, h('span', {}, `${noun} ${count(line)}`), h('span', {}, sentence(reason)))),
    ),
    h('p', { class: 'hint' }, 'The other plants have been imported. The file below has these with their reasons: fix it and import it.'),
    h('button', { id: 'failed-lines', onclick: save }, `Download failed ${opened.noun}s`),
  ];
}

const SAMPLES = [
  'Monstera deliciosa,tropical', 'Snake plant,succulent', 'Weeping fig,tree', 'Peace lily,tropical', 'Aloe vera,succulent',
  'Boston fern,fern', 'Jade plant,succulent', 'English lavender,herb', 'Rosemary,herb', 'Japanese maple,tree', 'Common oak,tree',
  'Spider plant,tropical', 'Golden pothos,tropical', 'Basil,herb', 'Thyme,herb', 'Silver birch,tree', 'Maidenhair fern,fern',
  'Bird of paradise,tropical', 'Rubber plant,tropical', 'Common ivy,climber',
];

/** loadSamples creates some plants, so that there is something to look at. */
export const loadSamples = (/** @type {HTMLElement} */ button) => busy(button, () => tell(async () => {
  const { created } = await importPlants(SAMPLES.map((text, i) => {
    const [name, tag] = text.split(',');
    return JSON.stringify({ id: i + 1, name, tag });
  }));
  toast(`${plural(BigInt(created), 'sample plant')} loaded.`);
  changed();
}));
