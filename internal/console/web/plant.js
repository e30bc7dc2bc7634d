// The drawer beside the list: one plant with its history, and the form to create or edit it.

import { allows, createPlant, deletePlant, getPlant, handled, names, PLANTS, replacePlant } from './api.js';
import { choose } from './conflict.js';
import { $, STILL_WAITING, busy, h, toast, value, when } from './dom.js';
import { readBack } from './feed.js';
import { happened, restoreBreaks, sentence, shorten } from './format.js';
import { plantJSON } from './json.js';
import { freeID, neighbour, reload } from './list.js';
import { copy, facts, guardFocus, openForm as openDialog } from './parts.js';
import { go, memory, state } from './route.js';
import { focusRow, newPlant, openPlant } from './rows.js';
import { suggestTags } from './suggest.js';
import { offerUndo } from './undo.js';
import { longer, retry } from './wait.js';

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {import('./feed.js').LogEvent} LogEvent
 */

const FIELDS = ['id', 'name', 'tag'];
const HISTORY = 200; // events that are read at once
const SOON = 1000;

const drawer = {
  id: '', // of the plant that is open, new, or empty
  /** @type {any} */
  plant: null, // as it was read; null while it is read, and for a new one
  form: false, // whether the form is shown
  /** @type {Record<string, string>} */
  initial: {}, // the values of the fields when the form opened
  /** @type {HTMLDialogElement | null} */
  question: null, // whether to discard unsaved text
  /** @type {any} */
  opener: null, // the element that had the focus before
  edit: false, // whether to open the form when the plant has been read
  removing: false, // whether its deletion has been requested
  refused: '', // the JSON of the version that is shown because another could not be deleted
  pause: SOON, // before the plant is read again, if it cannot be
  running: new AbortController(),
};

const field = (/** @type {string} */ name) => (
  name === 'id' ? $('plant-id', HTMLInputElement) : $(`plant-${name}`, HTMLTextAreaElement));
const slow = () => {
  $('plant-waiting').textContent = STILL_WAITING;
};

const mounted = () => document.getElementById('drawer') !== null;

// openID returns the id of the plant that is open, or an empty text.
export const openID = () => drawer.id;

// showPlant opens the drawer with this plant, or closes it if there is none.
export function showPlant(/** @type {string} */ id) {
  if (id === drawer.id) {
    nameTab();
    return;
  }
  if (!drawer.id) {
    drawer.opener = document.activeElement;
  }
  const last = drawer.id;
  stop();
  drawer.id = id;
  nameTab();
  $('drawer').hidden = id === '';
  guardFocus();
  if (id === '') {
    restoreFocus(last);
    return;
  }
  mount();
  $('drawer-problem').textContent = '';
  if (id === 'new' && allows('plants:write')) {
    openForm(null);
    return;
  }
  if (id === 'new') {
    title(id);
    reveal('');
    $('drawer-problem').textContent = 'Your token cannot create plants. It needs the scope plants:write.';
    return;
  }
  title(id);
  $('drawer-title').focus();
  read();
}

// closePlant forgets the plant, because the page is left.
export function closePlant() {
  stop();
  drawer.id = '';
  $('drawer').hidden = true;
  guardFocus();
}

// nameTab names the browser's tab after what is open.
function nameTab() {
  if (drawer.id) {
    const name = drawer.id === 'new' ? 'New plant' : shorten(drawer.plant?.name || `Plant ${drawer.id}`, 80);
    document.title = `${name} · Plantstore`;
  }
}

function stop() {
  drawer.running.abort();
  Object.assign(drawer, { plant: null, form: false, initial: {}, refused: '', pause: SOON });
}

function restoreFocus(/** @type {string} */ last) {
  if (document.activeElement !== document.body && !$('drawer').contains(document.activeElement)) {
    return;
  }
  if (last !== 'new') {
    focusRow(last);
    return;
  }
  (drawer.opener?.isConnected && drawer.opener !== document.body ? drawer.opener : $('create')).focus();
}

// reveal shows the form, the view, or none of them.
function reveal(/** @type {'plant' | 'plant-view' | ''} */ part) {
  $('plant').hidden = part !== 'plant';
  $('plant-view').hidden = part !== 'plant-view';
}

function mount() {
  if ($('drawer').dataset.mounted) {
    return;
  }
  $('drawer').dataset.mounted = 'yes';
  const form = $('plant', HTMLFormElement);
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    busy($('save-plant'), submit);
  });
  $('cancel-plant').addEventListener('click', cancel);
  // Names and tags can have several lines, but rarely do: Enter submits the form, and
  // Shift+Enter starts a new line.
  let shift = false;
  form.addEventListener('keydown', (event) => {
    shift = event.shiftKey;
  });
  form.addEventListener('beforeinput', (/** @type {any} */ event) => {
    if (event.inputType === 'insertLineBreak' && event.target.tagName === 'TEXTAREA' && !shift) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  $('drawer-close').addEventListener('click', close);
  $('edit-plant').addEventListener('click', () => openForm(drawer.plant));
  $('delete-plant').addEventListener('click', () => busy($('delete-plant'), remove));
  $('copy-id').addEventListener('click', () => copy(drawer.id, 'ID'));
  $('copy-curl').addEventListener('click', () => copy(curl(drawer.plant), 'curl command'));
  suggestTags(field('tag'), 'options line');
}

function title(/** @type {string} */ id) {
  $('drawer-title').replaceChildren(...(id === 'new' ? ['New plant'] : ['Plant ', h('span', { class: 'mono' }, id)]));
  $('copy-id').hidden = id === 'new';
}

// close closes the drawer, unless there is unsaved text.
function close() {
  go({ ...state(), id: '' }, { memory: memory() });
}

// cancel leaves the form, or closes the drawer. It reports whether there was one.
export function cancel() {
  if (!drawer.id) {
    return false;
  }
  const back = () => {
    openView();
    $('edit-plant').focus();
  };
  if (!drawer.form || drawer.id === 'new' || !drawer.plant) {
    close();
  } else if (settled(back)) {
    back();
  }
  return true;
}

const changed = () => drawer.form && FIELDS.some((name) => field(name).value !== drawer.initial[name]);

// settled reports whether there is no unsaved text. Otherwise it asks whether to discard it,
// and then calls leave.
function settled(/** @type {() => void} */ leave) {
  if (!changed()) {
    return true;
  }
  if (!drawer.question?.open) {
    drawer.question = openDialog({
      title: 'Discard your changes?',
      body: [h('p', {}, `You have unsaved changes to ${drawer.plant ? `plant ${drawer.id}` : 'a new plant'}.`)],
      action: 'Discard',
      back: 'Keep editing',
      risky: true,
      async run() {
        drawer.form = false;
        return leave;
      },
    });
  }
  return false;
}

/**
 * mayLeave reports whether the user can go to the next state. If there is unsaved text, it
 * asks, and calls again if the user discards it.
 * @param {import('./state.js').State} next
 * @param {() => void} again
 */
export const mayLeave = (next, again) => (next.page === 'plants' && next.id === drawer.id) || settled(again);

addEventListener('beforeunload', (event) => {
  if (changed()) {
    event.preventDefault(); // the browser asks
  }
});

// reloadPlant reads the plant again, unless it is being edited or deleted. What was wrong before may be
// right again.
export function reloadPlant() {
  $('plant-problem').textContent = '';
  if (drawer.id && drawer.id !== 'new' && !drawer.form && !drawer.removing) {
    read();
  }
}

async function read() {
  drawer.running.abort();
  drawer.running = new AbortController();
  const { signal } = drawer.running;
  if (!drawer.plant) {
    reveal('');
  }
  try {
    const plant = await getPlant(drawer.id, { signal });
    if (drawer.form) { // opened in the meantime, with what was known
      return;
    }
    drawer.plant = plant;
    drawer.pause = SOON;
    if (plantJSON(plant) !== drawer.refused) {
      drawer.refused = '';
      if ($('drawer-problem').contains(document.activeElement)) {
        $('drawer-title').focus();
      }
      $('drawer-problem').textContent = '';
    }
    if (drawer.edit) {
      drawer.edit = false;
      openForm(drawer.plant);
      return;
    }
    openView();
  } catch (err) {
    if (handled(err) || drawer.form) {
      return;
    }
    drawer.refused = '';
    if (err.status === 404) {
      showMissing();
      return;
    }
    showFailure(err, signal);
  }
}

// showFailure says why the plant could not be read, and offers to try again. A server that
// has a problem is asked again by itself, less and less often.
function showFailure(/** @type {import('./api.js').Failure} */ err, /** @type {AbortSignal} */ signal) {
  $('drawer-problem').replaceChildren(`${sentence(err.message)} `, h('button', { onclick: read }, 'Try again'));
  retry(signal, drawer.pause, err, read);
  drawer.pause = longer(drawer.pause);
}

function showMissing() {
  drawer.plant = null;
  nameTab();
  reveal('');
  $('drawer-problem').replaceChildren(`There is no plant ${drawer.id}.`);
  if (allows('plants:write')) {
    $('drawer-problem').append(' ', h('button', { onclick: () => openForm(null, drawer.id) }, 'Create it'));
  }
}

function openView() {
  const { plant } = drawer;
  drawer.form = false;
  title(drawer.id);
  nameTab();
  reveal('plant-view');
  for (const id of ['edit-plant', 'delete-plant']) {
    $(id).hidden = !allows('plants:write');
  }
  const showTag = () => go({ page: 'plants', id: plant.id, tag: plant.tag });
  $('plant-facts').replaceChildren(...facts(
    ['ID', h('span', { class: 'mono' }, plant.id)],
    ['Name', value(plant.name)],
    ['Tag', value(plant.tag), ...(plant.tag ? [' ', h('button', { class: 'tag', onclick: showTag }, 'Show all with this tag')] : [])],
  ));
  showHistory();
}

// curl returns a command that saves the plant as it is. The token is a variable: a command
// ends up in logs and chats.
function curl(/** @type {Plant} */ { id, name, tag }) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", `'\\''`)}'`;
  return [
    `curl -X PUT ${quote(`${PLANTS}/${id}`)}`,
    '-H "Authorization: Bearer $PLANTSTORE_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${quote(plantJSON({ name, tag }))}`,
  ].join(' \\\n  ');
}

// showHistory shows the changes of the plant that the log still has, newest first.
async function showHistory() {
  $('plant-history').hidden = !allows('events:read');
  if (!allows('events:read')) {
    return;
  }
  const { signal } = drawer.running;
  /** @type {LogEvent[]} */
  const events = [];
  const readOn = async (/** @type {string} */ before) => {
    $('history-status').textContent = 'Loading…';
    try {
      const known = await names();
      const { events: found, older } = await readBack({ id: drawer.id }, before, HISTORY, signal);
      signal.throwIfAborted(); // the response may have been there already
      events.push(...found);
      $('history').replaceChildren(...events.map((event, i) => entry(event, events[i + 1], known)));
      const none = `The log of changes has none of this plant${older ? ' among the newest. ' : '.'}`;
      $('history-status').replaceChildren(events.length === 0 ? none : '');
      if (older) {
        $('history-status').append(h('button', { onclick: () => readOn(older) }, 'Look further back'));
      }
    } catch (err) {
      if (!handled(err)) {
        $('history-status').textContent = sentence(err.message);
      }
    }
  };
  await readOn('');
}

function entry(/** @type {LogEvent} */ event, /** @type {LogEvent | undefined} */ previous, /** @type {Map<string, string>} */ known) {
  const past = previous && previous.type !== 'plant.deleted' ? previous.plant : null;
  /** @type {Node[]} */
  const parts = [];
  for (const [name, key] of [['Name', 'name'], ['Tag', 'tag']]) {
    if (event.type === 'plant.deleted' || (past && past[key] === event.plant[key]) || (!past && event.plant[key] === undefined)) {
      continue;
    }
    const brief = (/** @type {string | undefined} */ text) => value(text && shorten(text, 200));
    parts.push(h('div', {}, `${name}: `, ...(past ? [h('del', {}, brief(past[key])), ' → '] : []), brief(event.plant[key])));
  }
  const who = h('span', {}, `by ${known.get(event.by) ?? event.by}`);
  return h('li', {}, h('div', { class: 'meta' }, h('strong', {}, happened(event)), who, when(event.time)), ...parts);
}

// editPlant opens the form for a plant. It reports whether there is one.
export function editPlant(/** @type {string} */ id) {
  if (!id || id === 'new' || drawer.form) {
    return false;
  }
  if (id === drawer.id) {
    if (drawer.plant) {
      openForm(drawer.plant);
    } else {
      drawer.edit = true;
    }
    return true;
  }
  drawer.edit = true;
  openPlant(id);
  return true;
}

// openForm shows the form with this plant, or for a new one.
function openForm(/** @type {Plant | null} */ plant, id = plant?.id ?? freeID()) {
  drawer.form = true;
  title(plant ? plant.id : 'new');
  $('drawer-problem').textContent = '';
  reveal('plant');
  $('save-plant').textContent = plant ? 'Save' : 'Create';
  $('plant-id-field').hidden = plant !== null;
  field('id').value = id;
  field('name').value = plant?.name ?? '';
  field('tag').value = plant?.tag ?? '';
  drawer.initial = Object.fromEntries(FIELDS.map((name) => [name, field(name).value]));
  clearProblems();
  (field('id').value ? field('name') : field('id')).focus();
}

// formPlant returns the plant in the form. A field that was not edited keeps the value
// that was read, and one that was edited keeps its line breaks: a text area cannot
// represent every text.
function formPlant() {
  const { plant, initial } = drawer;
  const edited = (/** @type {string} */ name) => {
    const { value: text } = field(name);
    return plant && text === initial[name] ? plant[name] : restoreBreaks(plant?.[name] ?? '', text);
  };
  const tag = edited('tag') || (field('tag').value === initial.tag ? plant?.tag : undefined);
  return { id: plant?.id ?? field('id').value.trim(), name: edited('name'), tag };
}

async function submit(was = drawer.plant) {
  clearProblems();
  const plant = formPlant();
  const { signal } = drawer.running;
  try {
    if (!drawer.plant) {
      await createPlant(plant, { slow });
      created(plant.id);
      return;
    }
    const now = await replacePlant(plant, was, { slow });
    if (!signal.aborted) {
      saved(now);
    }
  } catch (err) {
    if (err.status === 412) {
      await resolveConflict(plant);
      return;
    }
    showProblems(err);
  } finally {
    if (mounted()) {
      $('plant-waiting').textContent = '';
    }
  }
}

function created(/** @type {string} */ id) {
  drawer.form = false;
  close();
  const exact = BigInt(id).toString();
  /** @type {[string, () => void, string?][]} */
  const view = allows('plants:read') ? [['View', () => openPlant(exact), 'view']] : [];
  toast(`Plant ${exact} was created.`, { seconds: 10, actions: [...view, ['Create another', newPlant, 'another']] });
  reload({ changed: exact });
}

function saved(/** @type {Plant} */ plant) {
  drawer.plant = plant;
  openView();
  $('edit-plant').focus();
  toast(`Plant ${plant.id} was saved.`);
  reload({ changed: plant.id });
}

function clearProblems() {
  $('plant-waiting').textContent = '';
  $('plant-problem').textContent = '';
  for (const name of FIELDS) {
    field(name).ariaInvalid = null;
    $(`plant-${name}-problem`).textContent = '';
  }
}

// showProblems shows the parts of the server's message next to the fields that they name.
function showProblems(/** @type {any} */ err) {
  if (err.status === 401 || !mounted()) {
    return; // the sign-in dialog shows it
  }
  let first = null;
  for (const part of err.message.split(/; (?="(?:id|name|tag)" )/)) {
    const name = /^"(id|name|tag)" /.exec(part)?.[1];
    if (!name) {
      $('plant-problem').textContent = sentence(part);
      continue;
    }
    $(`plant-${name}-problem`).textContent = sentence(name === 'id' ? words(part) : part);
    field(name).ariaInvalid = 'true';
    first ??= field(name);
  }
  first?.focus();
}

// words says in a form what the server says about JSON.
function words(/** @type {string} */ part) {
  if (/ is missing| must be an integer/.test(part)) {
    return 'Enter a whole number';
  }
  return part.replace(/^"id" (-?\d+ is taken)/, 'ID $1').replace(/^"id" must be/, 'The ID must be');
}

// resolveConflict shows both versions if someone else saved first, and saves what the user
// chooses.
async function resolveConflict(/** @type {Plant} */ mine) {
  let theirs = null;
  try {
    theirs = await getPlant(mine.id, { slow });
  } catch (err) {
    if (err.status !== 404) {
      showProblems(err);
      return;
    }
  }
  const choice = await choose(mine, theirs, drawer.plant);
  if (choice === 'theirs') {
    drawer.form = false;
    if (!theirs) {
      close();
      reload();
      return;
    }
    drawer.plant = theirs;
    openView();
    $('edit-plant').focus();
    reload({ changed: mine.id });
  } else if (choice) {
    drawer.plant = { ...drawer.plant, ...choice };
    field('name').value = choice.name;
    field('tag').value = choice.tag ?? '';
    await submit(theirs);
  }
}

// remove deletes the plant as it is shown. There is no question before it, but an undo
// after it.
async function remove() {
  const { plant } = drawer;
  $('drawer-problem').textContent = '';
  drawer.refused = '';
  drawer.removing = true;
  try {
    await deletePlant(plant);
    removed(plant);
    offerUndo(`Plant ${plant.id} was deleted.`, [plant]);
  } catch (err) {
    if (err.status === 404) {
      removed(plant);
      toast(`Plant ${plant.id} was already deleted.`);
    } else if (err.status === 412) {
      await read();
      drawer.refused = drawer.plant ? plantJSON(drawer.plant) : '';
      $('drawer-problem').textContent = drawer.plant
        ? 'Someone changed it in the meantime. This is the current version. Delete it anyway?'
        : `Plant ${plant.id} was already deleted.`;
    } else if (err.status !== 401) {
      $('drawer-problem').textContent = sentence(err.message);
    }
  } finally {
    drawer.removing = false;
  }
}

async function removed(/** @type {Plant} */ plant) {
  const near = neighbour(plant.id);
  close();
  await reload();
  focusRow(near);
}
