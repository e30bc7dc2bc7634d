// Changes of many plants at once, in the background, each of them one import; and what undoes them,
// and the deletion of one plant, until the next change of many.

import { PLANTS, allows, handled, importFile, listPlants, session } from './api.js';
import { $, askBefore, h, toast } from './dom.js';
import { count, plural, sentence, shorten } from './format.js';
import { plantJSON } from './json.js';
import { list, reload } from './list.js';
import { field, openForm } from './parts.js';
import { focusRow } from './rows.js';
import { select } from './selection.js';
import { suggestTags } from './suggest.js';
import { sleep } from './wait.js';

const KEY = `plantstore.undo ${PLANTS}`;
const KEPT = 2_000_000; // characters that a reload keeps: a browser stores 5 million for all pages
const IDS = 300; // in one request, whose header has a limit
const NAMED = 5; // plants in a message
const SECONDS = 10;
const PAUSE = 1000; // after the server has said that it gets too many requests

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {'create' | 'replace' | 'delete'} Mode
 *
 * @typedef {object} Undo an import that undoes a change
 * @property {string} text what was changed
 * @property {Mode} mode
 * @property {Plant[]} plants as they are again; in replace and delete only while they have the version
 * @property {string} by whose change it was
 */

let offers = /** @type {Undo[]} */ ([]); // the last one is undone first
let closeOffer = () => {};
let running = new AbortController();

const me = () => JSON.stringify([session.token().id, session.token().issuer, session.token().subject]);

// keep stores the offers for a reload, and reports whether it could.
function keep() {
  const text = JSON.stringify(offers);
  const had = document.activeElement === $('undo');
  $('undo').hidden = offers.length === 0 || !allows('plants:write');
  $('undo').title = `Undo: ${offers.at(-1)?.text}`;
  if (had && $('undo').hidden) {
    document.querySelector('h1')?.focus();
  }
  try {
    sessionStorage.removeItem(KEY);
    if (text.length <= KEPT) {
      sessionStorage.setItem(KEY, text);
    }
    return text.length <= KEPT;
  } catch {
    return false; // the browser stores no more
  }
}

/** resumeUndo offers what the same token could undo before it signed in, or the page was loaded, again. */
export function resumeUndo() {
  offers = offers.length > 0 ? offers : JSON.parse(sessionStorage.getItem(KEY) ?? '[]');
  offers = offers.filter(({ by }) => by === me());
  keep();
}

/** forgetUndo ends what runs, and forgets what could be undone. */
export function forgetUndo() {
  running.abort();
  running = new AbortController();
  closeOffer();
  offers = [];
  keep();
}

// offerUndo shows a message with an undo, and offers it on every page after that: an import of these
// plants. By default it creates them, where no others are. With bulk, earlier changes can no longer be undone.
export function offerUndo(/** @type {string} */ text, /** @type {Plant[]} */ plants, /** @type {Mode} */ mode = 'create', bulk = false) {
  offers = [...(bulk ? [] : offers), { text, mode, plants, by: me() }];
  const limit = keep() ? '' : ' You can undo this until you reload the page.';
  closeOffer();
  closeOffer = toast(text + limit, { keep: true, seconds: SECONDS, actions: [['Undo', undoLast, 'undo']] }).close;
}

/** undoLast undoes what was offered last. It reports whether there was anything. */
export function undoLast() {
  const undo = offers.pop();
  if (!undo || !allows('plants:write')) {
    return false;
  }
  closeOffer();
  keep();
  restore(undo);
  return true;
}

async function restore(/** @type {Undo} */ undo) {
  const { mode, plants } = undo;
  const { report, problem } = await send('Restoring', mode, plants);
  if (report) {
    const failed = Number(report.failed);
    const back = plants.length - failed;
    leftAlone(refused(plants, report), failed);
    const [is, it] = back === 1 ? ['is', 'it was'] : ['are', 'they were'];
    if (back > 0) {
      const subject = plants.length === 1 ? `Plant ${plants[0].id}` : plural(back, 'plant');
      toast(`${subject} ${is} ${mode === 'delete' ? 'deleted again' : `back as ${it}`}.`);
    }
  } else if (problem) {
    offers.push(undo);
    keep();
    toast(`${plural(plants.length, 'plant')} could not be restored: you can try again. ${sentence(problem.message)}`, { bad: true });
  }
  reload({ changed: plants[0].id });
}

// send imports the plants, and shows how far that is. It returns the report, or the problem if the
// user has to know of one. It calls next before the message goes, and the browser asks before the
// page is closed earlier.
/**
 * @param {string} doing
 * @param {Mode} mode
 * @param {Plant[]} plants
 * @param {(show: (share: number) => void) => Promise<void>} [next]
 */
const send = (doing, mode, plants, next = async () => {}) => askBefore(async () => {
  const { signal } = running;
  const body = new Blob(plants.map((plant) => line(mode, plant)), { type: 'application/x-ndjson' });
  const shown = toast(`${doing} ${plural(plants.length, 'plant')}…`, { keep: true, bar: true });
  let [report, problem] = /** @type {any[]} */ ([]);
  try {
    const sent = (/** @type {number} */ bytes) => shown.fill(bytes / body.size / 2);
    report = await patiently(() => importFile(body, { mode }, { signal, sent }));
  } catch (err) {
    problem = handled(err) ? undefined : err;
  }
  await next((share) => shown.fill((1 + share) / 2));
  shown.close();
  return { report, problem };
});

function line(/** @type {Mode} */ mode, /** @type {Plant} */ { id, name, tag, version }) {
  const members = mode === 'delete' ? `{"id":${id}` : plantJSON({ id, name, tag }).slice(0, -1);
  return `${members}${mode !== 'create' && version ? `,"if_version":"${version}"` : ''}}\n`;
}

// patiently calls f again as long as the server says that the token sends too many requests.
/** @type {<T>(f: () => Promise<T>) => Promise<T>} */
async function patiently(f) {
  for (;;) {
    try {
      return await f();
    } catch (err) {
      if (err.status !== 429) {
        throw err;
      }
    }
    await sleep(PAUSE);
  }
}

/** refused returns the plants that a report names. @param {Plant[]} plants @param {any} report */
const refused = (plants, report) => report.errors.map((/** @type {any} */ { line: n }) => plants[Number(n) - 1]);

// change changes these plants where they still are as the table shows them, and offers to undo what
// came of it. It reads them afterwards, because a report has no versions. The report lists only the
// first failures: of the plants after those, nobody knows who has changed them.
/**
 * @param {string} doing what happens to them
 * @param {string} done what has happened to them
 * @param {'replace' | 'delete'} mode
 * @param {Plant[]} plants as they are
 * @param {(plant: Plant) => Plant} to what one becomes
 */
async function change(doing, done, mode, plants, to) {
  const { signal } = running;
  let now = new Map();
  let unread = null;
  const { report, problem } = await send(doing, mode, plants.map(to), async (show) => {
    now = await readAll(plants, show).catch((err) => { unread = err; return now; });
  });
  if (signal.aborted || (!report && !problem)) {
    return;
  }
  const others = report ? refused(plants, report) : [];
  const failed = Number(report?.failed ?? 0);
  const known = failed > others.length ? plants.slice(0, plants.indexOf(others.at(-1))) : plants;
  const isDone = (/** @type {Plant} */ plant) => {
    const [is, wanted] = [now.get(plant.id), to(plant)];
    return !others.includes(plant) && (mode === 'delete' ? !is : is?.name === wanted.name && is?.tag === wanted.tag);
  };
  const all = unread ? [] : known.filter(isDone);
  const changed = all.filter(({ id, version }) => now.get(id)?.version !== version)
    .map((plant) => ({ ...plant, version: now.get(plant.id)?.version }));
  const n = report ? plants.length - failed : all.length;
  const few = known !== plants && changed.length < n;
  const limit = few ? ` Only the first ${plural(changed.length, 'change')} can be undone: too many were refused.`
    : problem ? ' Undoing that includes what others have done in the same way.' : '';
  const text = `${plural(n, 'plant')} ${n === 1 ? 'was' : 'were'} ${done}.${limit}`;
  if (changed.length > 0) {
    offerUndo(text, changed, mode === 'delete' ? 'create' : mode, true);
  } else if (n > 0) {
    toast(text);
  }
  if (problem || unread) {
    const what = unread ? `It is not known which plants were ${done}: this cannot be undone.` : `Not every plant was ${done}.`;
    toast(`${what} ${sentence((problem ?? unread).message)}`, { bad: true });
  }
  leftAlone(others, failed);
  reload({ changed: changed[0]?.id });
}

// readAll returns those of these plants that exist, by id.
async function readAll(/** @type {Plant[]} */ plants, /** @type {(share: number) => void} */ show) {
  const found = new Map();
  for (let i = 0; i < plants.length; i += IDS) {
    let query = `?id=${plants.slice(i, i + IDS).map(({ id }) => id)}`;
    while (query) {
      const { items, next } = await patiently(() => listPlants(query, { signal: running.signal }));
      items.forEach((plant) => found.set(plant.id, plant));
      query = next ?? '';
    }
    show(i / plants.length);
  }
  return found;
}

// named returns plants by name, for a message.
function named(/** @type {Plant[]} */ plants) {
  const names = plants.slice(0, NAMED).map(({ id, name }) => (name ? `${shorten(name, 40)} (${id})` : `plant ${id}`));
  return names.join(', ') + (plants.length > NAMED ? ` and ${count(plants.length - NAMED)} more` : '');
}

// leftAlone tells that n plants were not changed with the others, and names some.
function leftAlone(/** @type {Plant[]} */ plants, /** @type {number} */ n) {
  if (n > 0) {
    const [were, them] = n === 1 ? ['was', 'it'] : ['were', 'them'];
    const more = n > plants.length ? ', among others' : '';
    const why = `someone else has changed or deleted ${them}`;
    toast(`${plural(n, 'plant')} ${were} left alone: ${why}. ${named(plants)}${more}`, { bad: true });
  }
}

/** askDelete asks whether to delete these plants. @param {Plant[]} plants */
export function askDelete(plants) {
  const form = { title: `Delete ${plural(plants.length, 'plant')}?`, body: [], action: 'Delete', risky: true };
  ask(plants, form, () => change('Deleting', 'deleted', 'delete', plants, (plant) => plant));
}

/** askTag asks for a new tag of these plants. @param {Plant[]} plants */
export function askTag(plants) {
  const input = h('input', { id: 'bulk-tag', spellcheck: 'false', autofocus: '' });
  const body = [field('New tag', input, 'Leave it empty to remove the tag.')];
  suggestTags(input, 'options line');
  ask(plants, { title: `Change the tag of ${plural(plants.length, 'plant')}`, body, action: 'Change tag' }, () => {
    const tag = input.value || undefined;
    change('Changing the tag of', 're-tagged', 'replace', plants, (plant) => ({ ...plant, tag }));
  });
}

// ask opens the form. When it is sent, the plants are no longer selected, and the change starts.
/** @type {(plants: Plant[], form: {title: string, body: HTMLElement[], action: string, risky?: boolean}, start: () => void) => void} */
function ask(plants, form, start) {
  const gone = plants.filter(({ id }) => list.deleted.has(id));
  const warning = h('p', { class: 'problem' }, `Someone else has deleted ${named(gone)}.`);
  openForm({
    ...form,
    body: [h('p', {}, `${named(plants)}. You can undo this.`), ...(gone.length > 0 ? [warning] : []), ...form.body],
    run: async () => () => {
      select([]);
      focusRow(list.current);
      start();
    },
  });
}
