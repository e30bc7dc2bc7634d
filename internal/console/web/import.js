// Import: a file of plants is shown, sent, and reported on. It goes on while its dialog is closed.

import { aborted, handled, importFile } from './api.js';
import { $, busy, h, toast, value } from './dom.js';
import { offer } from './export.js';
import { failedFile, ignored, openFile, part, plantOf, records, whole } from './file.js';
import { count, plural, sentence, size } from './format.js';
import { fact, tell } from './parts.js';

const SHOWN = 5; // records of a preview, and as many that will fail
const CHECKED = 16_000_000; // bytes: of a larger file, only the first records are checked
const KEPT = 1000; // records that failed, for a file of them

const dialog = $('transfer', HTMLDialogElement);
const chooser = $('file', HTMLInputElement);

/**
 * @typedef {import('./file.js').PlantFile} PlantFile
 * @typedef {import('./file.js').FileRecord} FileRecord
 * @typedef {import('./file.js').Table} Table
 *
 * @typedef {object} Report what an import has done, or would do; numbers are texts
 * @property {string} created
 * @property {string} unchanged
 * @property {string} failed
 * @property {{line: string, message: string}[]} errors the first ones
 */

/** @type {PlantFile | null} */
let file = null;
let checking = new AbortController();
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
  dialog.addEventListener('paste', ({ clipboardData }) => {
    const text = clipboardData?.getData('text');
    if (text && !running) {
      take([new File([text], 'Pasted text')]);
    }
  });
  dialog.addEventListener('close', () => {
    checking.abort();
    if (running && !running.signal.aborted) {
      const stop = () => running?.abort();
      const options = { keep: true, onclose: stop, closeLabel: 'Stop the import' };
      status = toast($('progress-text').textContent ?? '', { ...options, actions: [['Show', reopen, 'show'], ['Stop', stop, 'stop']] });
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
  checking.abort();
  file = null;
  $('report').replaceChildren();
  $('first-records').replaceChildren();
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

// take shows the first records of a file.
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
  chooser.value = ''; // so that the same file can be chosen again
  try {
    file = await openFile(given);
    show('preview');
    preview(file);
  } catch (err) {
    $('choose-problem').textContent = err instanceof DOMException ? `${given.name} cannot be read.` : err.message;
  }
}

function preview(/** @type {PlantFile} */ opened) {
  const { file: { name, size: bytes }, description, table } = opened;
  $('preview-name').textContent = name;
  $('preview-format').textContent = `${size(bytes)}, ${description}.`;
  $('mapping').hidden = !table || (!table.chosen && (table.columns.tag >= 0 || ignored(table).length === 0));
  if (table) {
    mapping(table, () => check(opened));
  }
  check(opened);
  $('start-import').focus();
}

// mapping lets the user choose which columns contain the id, the name and the tag.
function mapping(/** @type {Table} */ table, /** @type {() => void} */ changed) {
  const { headings, columns } = table;
  for (const name of /** @type {const} */ (['id', 'name', 'tag'])) {
    const select = $(`column-${name}`, HTMLSelectElement);
    const options = headings.map((text, i) => h('option', { value: i }, text || `column ${i + 1}`));
    select.replaceChildren(...(name === 'tag' ? [h('option', { value: -1 }, 'none')] : []), ...options);
    select.value = `${columns[name]}`;
    select.onchange = () => {
      columns[name] = Number(select.value);
      table.chosen = true;
      changed();
    };
  }
}

// check shows the first records, and what the server says will become of them: of the whole
// file, unless it is large.
async function check(/** @type {PlantFile} */ opened) {
  checking.abort();
  checking = new AbortController();
  const { signal } = checking;
  const say = (/** @type {string} */ text, bad = false) => {
    $('verdict').textContent = text;
    $('verdict').className = bad ? 'problem' : 'hint';
  };
  say('Checking…');
  $('record-number').textContent = opened.noun === 'line' ? 'Line' : 'Element';
  $('first-records').replaceChildren(...firstRows(opened, []));
  const unused = ignored(opened.table);
  $('ignored').textContent = unused.length > 0 ? `Ignored columns: ${unused.join(', ')}.` : '';
  try {
    const all = opened.file.size <= CHECKED;
    const report = await (all ? importFile(await whole(opened), { dry_run: 'true' }, { signal }) : checkPart(opened, opened.first, signal));
    const { created, unchanged, failed, errors } = report;
    const total = `${all ? '' : 'the first '}${plural(BigInt(created) + BigInt(unchanged) + BigInt(failed), 'record')}`;
    const outcomes = [
      [created, 'will be created'], [unchanged, unchanged === '1' ? 'is there already' : 'are there already'], [failed, 'will fail'],
    ].filter(([n]) => n !== '0').map(([n, what]) => `${count(BigInt(n))} ${what}`);
    say(`Of ${total}, ${outcomes.join(', ') || 'none will be created'}.`, failed !== '0');
    $('first-records').replaceChildren(...firstRows(opened, errors));
  } catch (err) {
    if (!handled(err)) {
      say(sentence(err.message), true);
    }
  }
}

/**
 * checkPart returns what would become of records that follow one another.
 * @param {PlantFile} opened
 * @param {FileRecord[]} some
 * @param {AbortSignal} [signal]
 * @returns {Promise<Report>}
 */
async function checkPart(opened, some, signal) {
  const { body, before } = part(opened, some);
  const report = await importFile(body, { dry_run: 'true' }, { signal });
  return { ...report, errors: report.errors.map((/** @type {any} */ e) => ({ ...e, line: String(Number(e.line) + before) })) };
}

// firstRows shows the first records, and the first of those that will fail.
function firstRows(/** @type {PlantFile} */ opened, /** @type {Report['errors']} */ errors) {
  const first = opened.first.filter(({ text }) => text.trim() !== '').slice(0, SHOWN);
  const others = errors.filter(({ line }) => !first.some((record) => `${record.line}` === line)).slice(0, SHOWN);
  return [...first.map(({ line, text }) => {
    const error = errors.find((e) => e.line === `${line}`);
    if (error) {
      return failingRow(error);
    }
    const plant = plantOf(opened, text);
    return h('tr', {}, h('td', {}, count(line)), ...[plant.id, plant.name, plant.tag].map((cell) => h('td', {}, value(cell))));
  }), ...others.map(failingRow)];
}

const failingRow = (/** @type {Report['errors'][0]} */ { line, message }) => (
  h('tr', {}, h('td', {}, count(BigInt(line))), h('td', { colspan: '3', class: 'problem' }, sentence(message))));

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
  const opened = /** @type {PlantFile} */ (file);
  const { name, size: bytes } = opened.file;
  checking.abort();
  running = new AbortController();
  const { signal } = running;
  addEventListener('beforeunload', ask);
  show('progress');
  $('file-name').textContent = `${name}, ${size(bytes)}`;
  progress(0, bytes);
  $('close-import').focus();
  /** @type {Report | null} */
  let report = null;
  let problem = '';
  try {
    const body = await whole(opened);
    report = await importFile(body, {}, { signal, sent: (bytes) => progress(bytes, body.size) });
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
  finish(opened, report, problem);
  changed();
}

function why(/** @type {any} */ err, /** @type {AbortSignal} */ signal) {
  if (signal.aborted || aborted(err)) {
    return 'The import was stopped. Plants that were already imported are kept. Importing the same file again is safe.';
  }
  if (err.status === 0 || err.status === undefined) {
    return 'The connection to the server was lost, or the file can no longer be read. '
      + 'Part of it may have been imported. Importing the same file again is safe.';
  }
  return sentence(err.message);
}

function progress(/** @type {number} */ sent, /** @type {number} */ total) {
  const percent = Math.floor((sent / total) * 100);
  const text = sent < total ? `Importing… ${percent} %, ${size(sent)} of ${size(total)}` : 'Everything was sent. Waiting for the report…';
  $('bar', HTMLProgressElement).value = percent;
  $('progress-text').textContent = text;
  status?.say(text);
}

/**
 * finish shows the report, or says that there is one if the dialog was closed.
 * @param {PlantFile} opened
 * @param {Report | null} report
 * @param {string} problem
 */
function finish(opened, report, problem) {
  show('report');
  const { file: { name }, noun } = opened;
  const failed = report !== null && report.failed !== '0';
  const outcome = failed ? `${name}: some ${noun}s could not be imported` : `${name} was imported`;
  const title = problem ? name : outcome;
  $('report').replaceChildren(
    h('p', { class: 'file', role: 'status' }, title),
    ...(problem ? [h('p', { class: 'problem', role: 'alert' }, problem)] : []),
    ...(report ? [h('dl', { class: 'figures' },
      fact('Created', count(BigInt(report.created))),
      fact('Unchanged', count(BigInt(report.unchanged))),
      fact('Failed', count(BigInt(report.failed)), failed ? 'bad' : undefined),
    )] : []),
    ...(failed ? failures(opened, report) : []),
  );
  $('again').hidden = !problem;
  if (!dialog.open) {
    const bad = failed || problem !== '';
    status = toast(problem ? `${title}: ${problem}` : `${title}.`, { bad, keep: true, actions: [['Show', reopen, 'show']] });
    return;
  }
  (problem ? $('again') : $('cancel-import')).focus();
}

function failures(/** @type {PlantFile} */ opened, /** @type {Report} */ report) {
  const { file: { name }, noun } = opened;
  const { errors } = report;
  const number = BigInt(report.failed);
  const title = `Fix these ${noun}s${number > errors.length ? ` (the first ${errors.length})` : ''}`;
  const kept = opened.file.size <= CHECKED ? KEPT : errors.length;
  const save = (/** @type {any} */ event) => busy(event.currentTarget, () => tell(async () => {
    offer(new Blob(failedFile(opened, await findFailed(opened, report))), `failed-${name}`);
  }));
  return [
    h('h3', { id: 'lines-title' }, title),
    h('ul', { class: 'lines', tabindex: '0', 'aria-labelledby': 'lines-title' },
      ...errors.map(({ line, message }) => (
        h('li', {}, h('span', {}, `${noun === 'line' ? 'Line' : 'Element'} ${count(BigInt(line))}`), h('span', {}, sentence(message))))),
    ),
    h('p', { class: 'hint' }, 'The other plants have been imported. The file below has these with their reasons: fix it and import it.'),
    h('button', { id: 'failed-lines', onclick: save }, `Download ${number > kept ? `the first ${count(kept)} ` : ''}failed ${noun}s`),
  ];
}

/**
 * findFailed returns the records that failed, with their reasons. The report has the reasons of
 * the first ones; in a file that is not large, the records after those are checked again.
 * @param {PlantFile} opened
 * @param {Report} report
 */
async function findFailed(opened, report) {
  const { file: { size: bytes }, format } = opened;
  const reasons = new Map(report.errors.map(({ line, message }) => [line, message]));
  /** @type {FileRecord[]} */
  const all = [];
  for await (const record of records(opened.file, format)) {
    if (bytes <= CHECKED || reasons.has(`${record.line}`)) {
      all.push(record);
    }
  }
  let last = report;
  let rest = bytes <= CHECKED ? all : [];
  while (BigInt(last.failed) > last.errors.length && rest.length > 0 && reasons.size < KEPT) {
    const named = Number(last.errors.at(-1)?.line);
    rest = rest.filter(({ line }) => line > named);
    last = await checkPart(opened, rest);
    rest.filter(({ text }) => text.includes('\ufffd')).forEach(({ line }) => reasons.set(`${line}`, 'the record is not valid UTF-8'));
    last.errors.forEach(({ line, message }) => reasons.set(line, message));
  }
  return all.flatMap(({ line, text }) => (reasons.has(`${line}`) ? [{ text, reason: reasons.get(`${line}`) ?? '' }] : [])).slice(0, KEPT);
}

const SAMPLES = [
  'Monstera deliciosa,tropical', 'Snake plant,succulent', 'Weeping fig,tree', 'Peace lily,tropical', 'Aloe vera,succulent',
  'Boston fern,fern', 'Jade plant,succulent', 'English lavender,herb', 'Rosemary,herb', 'Japanese maple,tree', 'Common oak,tree',
  'Spider plant,tropical', 'Golden pothos,tropical', 'Basil,herb', 'Thyme,herb', 'Silver birch,tree', 'Maidenhair fern,fern',
  'Bird of paradise,tropical', 'Rubber plant,tropical', 'Common ivy,climber',
];

/** loadSamples creates some plants, so that there is something to look at. */
export const loadSamples = (/** @type {HTMLElement} */ button) => busy(button, () => tell(async () => {
  const lines = SAMPLES.map((text, i) => `${i + 1},${text}\n`);
  const { created } = await importFile(new Blob(['id,name,tag\n', ...lines], { type: 'text/csv' }));
  toast(`${plural(BigInt(created), 'sample plant')} loaded.`);
  changed();
}));
