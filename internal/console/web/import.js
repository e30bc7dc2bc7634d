// Import: a file of plants is shown, with what would become of it, sent, and reported on; what
// failed is put right. It goes on while its dialog is closed.

import { aborted, allows, importFile, listPlants } from './api.js';
import { $, askBefore, busily, h, toast, value } from './dom.js';
import { offer } from './export.js';
import { failedFile, find, ignored, openFile, part, plantOf, whole } from './file.js';
import { count, plural, restoreBreaks, sentence, size } from './format.js';
import { plantJSON } from './json.js';
import { fact, tell } from './parts.js';
import { renew } from './wait.js';

const SHOWN = 5; // records of a preview with each outcome
const FIELDS = 100; // records that can be put right at a time
const CHECKED = 16_000_000; // bytes: of a larger file, only the first records are checked
const KEPT = 1000; // records that failed

const dialog = $('transfer', HTMLDialogElement);
const chooser = $('file', HTMLInputElement);

/**
 * @typedef {import('./file.js').PlantFile} PlantFile
 * @typedef {import('./file.js').FileRecord} FileRecord
 *
 * @typedef {'created' | 'replaced' | 'unchanged' | 'failed'} Outcome
 * @typedef {Record<string, string>} Query
 *
 * @typedef {{
 *   created: string, replaced?: string, unchanged: string, failed: string,
 *   errors: {line: string, message: string}[], first?: Record<string, string[]>,
 * }} Report what an import has done, or would do: numbers are texts, and only the first errors are there,
 *   and of a dry run the first lines of each outcome
 *
 * @typedef {FileRecord & {reason: string, now: import('./file.js').Cells}} Wrong a record that
 *   failed, and as it will be sent again
 * @typedef {{opened: PlantFile, query: Query, report: Report | null, problem: string, wrong: Wrong[]}} Result
 */

/** @type {Record<Outcome, [string, string, string?]>} as a heading, in the preview, and of many */
const OUTCOMES = {
  created: ['Created', 'will be created'],
  replaced: ['Replaced', 'will be replaced'],
  unchanged: ['Unchanged', 'is there already', 'are there already'],
  failed: ['Failed', 'will fail'],
};
const KINDS = /** @type {Outcome[]} */ (Object.keys(OUTCOMES));

/** number returns how many records have an outcome. @param {Report} report @param {Outcome} kind */
const number = (report, kind) => BigInt(report[kind] ?? 0);

let file = /** @type {PlantFile | null} */ (null);
let checking = new AbortController();
let running = /** @type {AbortController | null} */ (null);
let result = /** @type {Result | null} */ (null);
let status = /** @type {import('./dom.js').Toast | null} */ (null); // the message in place of the dialog
let changed = () => {};

/** startImport sets what to call when an import has changed the store. @param {() => void} f */
export function startImport(f) {
  changed = f;
  $('choose-file').addEventListener('click', () => chooser.click());
  chooser.addEventListener('change', () => take(chooser.files ?? []));
  $('again').addEventListener('click', () => send());
  $('start-import').addEventListener('click', () => send());
  $('replace').addEventListener('change', () => file && check(file));
  $('send-fixed').addEventListener('click', busily(() => tell(sendFixed)));
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

function closeStatus() {
  status?.close();
  status = null;
}

function reopen() {
  closeStatus();
  dialog.showModal();
}

// stopImport ends an import and forgets the file, because the user signs out.
export function stopImport() {
  running?.abort('signed out');
  checking.abort();
  file = result = null;
  $('report').replaceChildren();
  $('first-records').replaceChildren();
  dialog.close();
}

// startDrop lets a file be dropped anywhere on the page, unless another dialog is open.
function startDrop() {
  const ready = () => document.getElementById('import')?.hidden === false && !$('console').hidden && !running
    && !document.querySelector('dialog[open]:not(#transfer)');
  const drag = (/** @type {DragEvent} */ event) => {
    const { type, dataTransfer: data, relatedTarget: to } = event;
    if (!data?.types.includes('Files')) {
      return;
    }
    event.preventDefault(); // otherwise the browser opens the file
    $('drop').hidden = type === 'drop' || (type === 'dragover' ? !ready() : $('drop').hidden || to === null);
    if (type === 'drop' && ready()) {
      take(data.files);
    }
  };
  ['dragover', 'dragleave', 'drop'].forEach((name) => addEventListener(name, /** @type {EventListener} */ (drag)));
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
    preview(file);
  } catch (err) {
    $('choose-problem').textContent = err instanceof DOMException ? `${given.name} cannot be read.` : err.message;
  }
}

function preview(/** @type {PlantFile} */ opened) {
  const { file: { name, size: bytes }, description, table } = opened;
  $('replace', HTMLInputElement).checked = false;
  show('preview');
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
function mapping(/** @type {import('./file.js').Table} */ table, /** @type {() => void} */ changed) {
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

/** query returns how the user wants a file to be imported. @returns {Query} */
const query = () => ($('replace', HTMLInputElement).checked ? { mode: 'replace' } : {});

// check shows the first records, and what the server says will become of them: of the whole
// file, unless it is large.
async function check(/** @type {PlantFile} */ opened) {
  checking = renew(checking);
  const { signal } = checking;
  const say = (/** @type {string} */ text, bad = false) => {
    $('verdict').textContent = text;
    $('verdict').className = bad ? 'problem' : 'hint';
  };
  say('Checking…');
  $('record-number').textContent = opened.noun === 'line' ? 'Line' : 'Element';
  const first = opened.first.filter(({ text }) => text.trim() !== '').slice(0, SHOWN);
  $('first-records').replaceChildren(...first.map((record) => row(opened, record)));
  const unused = ignored(opened.table);
  $('ignored').textContent = unused.length > 0 ? `Ignored columns: ${unused.join(', ')}.` : '';
  await tell(async () => {
    const all = opened.file.size <= CHECKED;
    const trial = { ...query(), dry_run: 'true' };
    const report = await (all ? importFile(await whole(opened), trial, { signal }) : sendPart(opened, opened.first, trial, signal));
    const { rows, nameless } = await outcomes(opened, report, all, signal);
    const total = KINDS.reduce((sum, kind) => sum + number(report, kind), 0n);
    const parts = KINDS.filter((kind) => number(report, kind) > 0n)
      .map((kind) => `${count(number(report, kind))} ${(report[kind] !== '1' && OUTCOMES[kind][2]) || OUTCOMES[kind][1]}`);
    const flag = nameless === 0 ? '' : ` ${plural(nameless, 'record')} ${nameless === 1 ? 'has' : 'have'} no name.`;
    const beginning = `Of ${all ? '' : 'the first '}${plural(total, 'record')}`;
    say(`${beginning}, ${parts.join(', ') || 'none will be created'}.${flag}`, report.failed !== '0' || nameless > 0);
    $('first-records').replaceChildren(...rows);
  }, (text) => say(text, true));
}

// outcomes returns, in the order of the file, the first records with each outcome and the first
// without a name, and how many have none.
/** @type {(opened: PlantFile, dryRun: Report, all: boolean, signal: AbortSignal) => Promise<{rows: Node[], nameless: number}>} */
async function outcomes(opened, { first = {}, errors }, all, signal) {
  /** @type {Map<number, Outcome>} */
  const shown = new Map(KINDS.flatMap((kind) => (first[kind] ?? []).map((line) => [Number(line), kind])));
  errors.slice(0, SHOWN).forEach(({ line }) => shown.set(Number(line), 'failed'));
  const failed = new Map(errors.map(({ line, message }) => [Number(line), message]));
  const empty = await find(opened, ({ line }, plant) => !failed.has(line) && plant().name?.trim() === '', all);
  empty.slice(0, SHOWN).forEach(({ line }) => shown.set(line, shown.get(line) ?? 'created'));
  const found = await find(opened, ({ line }) => shown.has(line), all);
  const replaced = found.filter(({ line }) => shown.get(line) === 'replaced').map(({ text }) => plantOf(opened, text).id?.trim());
  const there = replaced.length > 0 && allows('plants:read')
    ? (await listPlants(`?id=${replaced.join()}`, { signal })).items : [];
  const rows = found.map((record) => row(opened, record, shown.get(record.line), failed.get(record.line), there));
  return { rows, nameless: empty.length };
}

// sendPart sends records that follow one another, and returns what became of them.
/** @type {(opened: PlantFile, some: FileRecord[], how: Query, signal?: AbortSignal) => Promise<Report>} */
async function sendPart(opened, some, how, signal) {
  const { body, before } = part(opened, some);
  const report = await importFile(body, how, { signal });
  const move = (/** @type {string} */ line) => String(Number(line) + before);
  const first = Object.entries(report.first ?? {}).map(([kind, lines]) => [kind, lines.map(move)]);
  const errors = report.errors.map((/** @type {any} */ error) => ({ ...error, line: move(error.line) }));
  return { ...report, errors, first: Object.fromEntries(first) };
}

// row shows a record, what will become of it, or why it fails, and which of the plants that are there it replaces.
/** @type {(opened: PlantFile, record: FileRecord, outcome?: Outcome, reason?: string, there?: import('./api.js').Plant[]) => Node} */
function row(opened, { line, text }, outcome, reason = '', there = []) {
  const plant = plantOf(opened, text);
  const old = there.find(({ id }) => outcome === 'replaced' && id === plant.id?.trim());
  const cell = (/** @type {'name' | 'tag'} */ member) => h('td', {},
    old && old[member] !== plant[member] && [h('del', {}, value(old[member])), ' '],
    member === 'name' && plant.name?.trim() === '' ? h('span', { class: 'problem' }, 'no name') : value(plant[member]),
  );
  const word = outcome ? OUTCOMES[outcome][0].toLowerCase() : '';
  const fate = h('td', { class: reason ? 'problem' : 'hint' }, reason ? sentence(reason) : word);
  return h('tr', {}, h('td', {}, count(line)), h('td', {}, value(plant.id)), cell('name'), cell('tag'), fate);
}

function show(/** @type {string} */ part) {
  ['choose', 'preview', 'progress', 'report', 'again', 'send-fixed'].forEach((id) => { $(id).hidden = id !== part; });
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
  show('progress');
  $('file-name').textContent = `${name}, ${size(bytes)}`;
  progress(0, bytes);
  $('close-import').focus();
  /** @type {Result} */
  const done = { opened, query: query(), report: null, problem: '', wrong: [] };
  try {
    await askBefore(async () => {
      const body = await whole(opened);
      done.report = await importFile(body, done.query, { signal, sent: (bytes) => progress(bytes, body.size) });
      done.wrong = await findFailed(done);
    });
  } catch (err) {
    done.problem = why(err, signal);
  }
  running = null;
  closeStatus();
  if (signal.reason === 'signed out') {
    return;
  }
  finish(done);
  changed();
}

function why(/** @type {any} */ err, /** @type {AbortSignal} */ signal) {
  if (signal.aborted || aborted(err)) {
    return 'The import was stopped. Plants that were already imported are kept. Importing the same file again is safe.';
  }
  return err.status ? sentence(err.message) : 'The connection to the server was lost, or the file can no longer be read. '
    + 'Part of it may have been imported. Importing the same file again is safe.';
}

function progress(/** @type {number} */ sent, /** @type {number} */ total) {
  const percent = Math.floor((sent / total) * 100);
  const text = sent < total ? `Importing… ${percent} %, ${size(sent)} of ${size(total)}` : 'Everything was sent. Waiting for the report…';
  $('bar', HTMLProgressElement).value = percent;
  $('progress-text').textContent = text;
  status?.say(text);
}

/** finish shows the report, or says that there is one if the dialog was closed. @param {Result} done */
function finish(done) {
  result = done;
  show('report');
  drawReport(done);
  if (!dialog.open) {
    const { title, bad } = outcome(done);
    status = toast(done.problem ? `${title}: ${done.problem}` : `${title}.`, { bad, keep: true, actions: [['Show', reopen, 'show']] });
    return;
  }
  $(done.problem ? 'again' : 'cancel-import').focus();
}

/** outcome says in a few words how an import ended. @param {Result} done */
function outcome({ opened: { file: { name }, noun }, report, problem }) {
  const failed = report !== null && report.failed !== '0';
  const title = failed ? `${name}: some ${noun}s could not be imported` : `${name} was imported`;
  return { title: problem ? name : title, failed, bad: failed || problem !== '' };
}

function drawReport(/** @type {Result} */ done) {
  const { report, problem, wrong } = done;
  const { title, failed } = outcome(done);
  const kinds = KINDS.filter((kind) => report?.[kind] !== undefined);
  $('report').replaceChildren(...h('div', {},
    h('p', { class: 'file', role: 'status' }, title),
    problem && h('p', { class: 'problem', role: 'alert' }, problem),
    report && h('dl', { class: 'figures' }, ...kinds.map((kind) => (
      fact(OUTCOMES[kind][0], count(number(report, kind)), kind === 'failed' && failed && 'bad')))),
    failed && failures(done),
  ).childNodes);
  $('again').hidden = !problem;
  $('send-fixed').hidden = wrong.length === 0;
}

/** failures shows the records that failed, to be put right. @param {Result} done */
function failures({ opened, report, wrong }) {
  const { file: { name }, noun } = opened;
  const failed = number(/** @type {Report} */ (report), 'failed');
  const title = `Fix these ${noun}s${failed > FIELDS ? ` (the first ${FIELDS})` : ''}`;
  const part = failed > wrong.length ? `the first ${count(wrong.length)} ` : '';
  const save = () => offer(new Blob([failedFile(wrong, opened.table?.separator)]), `failed-${name.replace(/\.[^.]*$/, '')}.csv`);
  return [
    h('h3', { id: 'lines-title' }, title),
    h('ul', { class: 'lines', tabindex: '0', 'aria-labelledby': 'lines-title' }, ...wrong.slice(0, FIELDS).map((one) => fields(noun, one))),
    h('p', { class: 'hint' }, 'The others have been imported. Fix these here and send them again, or download them with their reasons.'),
    h('button', { id: 'failed-lines', onclick: save }, `Download ${part}failed ${noun}s`),
  ];
}

// fields shows a record that failed in fields.
function fields(/** @type {string} */ noun, /** @type {Wrong} */ { line, reason, now }) {
  const name = `${noun === 'line' ? 'Line' : 'Element'} ${count(line)}`;
  const input = (/** @type {'id' | 'name' | 'tag'} */ member, /** @type {string} */ label) => {
    const was = now[member];
    const oninput = () => { now[member] = field.value === '' && was === undefined ? undefined : restoreBreaks(was ?? '', field.value); };
    const describe = { 'placeholder': label, 'aria-label': `${label} in ${name.toLowerCase()}`, 'data-member': member };
    const field = h('textarea', { rows: 1, spellcheck: 'false', ...describe, oninput });
    field.value = was ?? '';
    return field;
  };
  const inputs = h('div', { class: 'fix' }, input('id', 'ID'), input('name', 'Name'), input('tag', 'Tag'));
  return h('li', {}, h('span', {}, name), h('span', {}, sentence(reason)), inputs);
}

// sendFixed sends the records again that are in the fields. Those that fail again stay.
async function sendFixed() {
  const done = /** @type {Result} */ (result);
  const { wrong, query: how, report } = done;
  const sent = wrong.slice(0, FIELDS);
  const lines = sent.map(({ now }) => `${plantJSON({ ...now, name: now.name ?? '' })}\n`);
  /** @type {Report} */
  const again = await importFile(new Blob(lines, { type: 'application/x-ndjson' }), how);
  if (result !== done) {
    return; // the user has signed out
  }
  const reasons = new Map(again.errors.map(({ line, message }) => [Number(line), message]));
  const left = sent.flatMap((one, i) => (reasons.has(i + 1) ? [{ ...one, reason: reasons.get(i + 1) ?? '' }] : []));
  const before = /** @type {Report} */ (report);
  const sum = Object.fromEntries(KINDS.filter((kind) => before[kind] !== undefined)
    .map((kind) => [kind, `${number(before, kind) + number(again, kind) - (kind === 'failed' ? BigInt(sent.length) : 0n)}`]));
  result = { ...done, report: { ...before, ...sum }, wrong: [...left, ...wrong.slice(FIELDS)] };
  drawReport(result);
  toast(`${plural(sent.length - left.length, done.opened.noun)} imported.`);
  changed();
}

// findFailed returns the records that failed, with their reasons. The report has the reasons of
// the first ones; in a file that is not large, the records after those are checked again.
/** @type {(done: Result) => Promise<Wrong[]>} */
async function findFailed({ opened, report, query: how }) {
  const all = opened.file.size <= CHECKED;
  let last = /** @type {Report} */ (report);
  const reasons = new Map(last.errors.map(({ line, message }) => [Number(line), message]));
  let rest = all && number(last, 'failed') > reasons.size ? await find(opened, () => true, true) : [];
  while (number(last, 'failed') > last.errors.length && rest.length > 0 && reasons.size < KEPT) {
    const named = Number(last.errors.at(-1)?.line);
    rest = rest.filter(({ line }) => line > named);
    last = await sendPart(opened, rest, { ...how, dry_run: 'true' });
    rest.filter(({ text }) => text.includes('\ufffd')).forEach(({ line }) => reasons.set(line, 'the record is not valid UTF-8'));
    last.errors.forEach(({ line, message }) => reasons.set(Number(line), message));
  }
  const found = await find(opened, ({ line }) => reasons.has(line), true);
  return found.slice(0, KEPT).map(({ line, text }) => ({ line, text, reason: reasons.get(line) ?? '', now: plantOf(opened, text) }));
}

const SAMPLES = [
  'Monstera deliciosa,tropical', 'Snake plant,succulent', 'Weeping fig,tree', 'Peace lily,tropical', 'Aloe vera,succulent',
  'Boston fern,fern', 'Jade plant,succulent', 'English lavender,herb', 'Rosemary,herb', 'Japanese maple,tree', 'Common oak,tree',
  'Spider plant,tropical', 'Golden pothos,tropical', 'Basil,herb', 'Thyme,herb', 'Silver birch,tree', 'Maidenhair fern,fern',
  'Bird of paradise,tropical', 'Rubber plant,tropical', 'Common ivy,climber',
];

/** loadSamples creates some plants, so that there is something to look at. */
export const loadSamples = busily(() => tell(async () => {
  const lines = SAMPLES.map((text, i) => `${i + 1},${text}\n`);
  const { created } = await importFile(new Blob(['id,name,tag\n', ...lines], { type: 'text/csv' }));
  toast(`${plural(BigInt(created), 'sample plant')} loaded.`);
  changed();
}));
