// The drawer beside the list: one plant with its history, also if it was deleted, or the form to
// create or edit it.

import { allows, deletePlant, findPlant, handled } from './api.js';
import { $, busily, h, toast } from './dom.js';
import { closeForm, fillForm, isEditing, mountForm, settled } from './form.js';
import { sentence, shorten } from './format.js';
import { plantJSON } from './json.js';
import { neighbour, reload } from './list.js';
import { copy, guardFocus, tell } from './parts.js';
import { go, memory, state } from './route.js';
import { focusRow, newPlant, openPlant } from './rows.js';
import { offerUndo } from './undo.js';
import { curl, drawHistory, drawPlant, readHistory, restore, reveal, title } from './view.js';
import { longer, renew, retry } from './wait.js';

/** @typedef {import('./api.js').Plant} Plant */

const SOON = 1000;

const drawer = {
  id: '', // of the plant that is open, new, or empty
  plant: /** @type {any} */ (null), // as it was read; null while it is read, if there is none, and for a new one
  past: /** @type {import('./view.js').Past | null} */ (null),
  edit: false, // whether to open the form when the plant has been read
  removing: false, // whether its deletion or restoring has been requested
  refused: '', // the JSON of the version that is shown because another could not be changed
  pause: SOON, // before the plant is read again, if it cannot be
  running: new AbortController(),
};

let opener = /** @type {any} */ (null); // the element that had the focus before

// deletion returns the event that deleted the plant, if it was deleted.
const deletion = () => {
  const last = drawer.plant ? undefined : drawer.past?.events[0];
  return last?.type === 'plant.deleted' ? last : null;
};

// openID returns the id of the plant that is open, or an empty text.
export const openID = () => drawer.id;

// showPlant opens the drawer with this plant, or closes it if there is none.
export function showPlant(/** @type {string} */ id) {
  if (id === drawer.id) {
    nameTab();
    return;
  }
  if (!drawer.id) {
    opener = document.activeElement;
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
  tellProblem();
  title(id);
  if (id !== 'new') {
    $('drawer-title').focus();
    read();
  } else if (allows('plants:write')) {
    openForm(null);
  } else {
    reveal('');
    tellProblem('Your token cannot create plants. It needs the scope plants:write.');
  }
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
    const { name } = drawer.plant ?? deletion()?.plant ?? {};
    document.title = `${drawer.id === 'new' ? 'New plant' : shorten(name || `Plant ${drawer.id}`, 80)} · Plantstore`;
  }
}

function stop() {
  drawer.running.abort();
  closeForm();
  Object.assign(drawer, { plant: null, past: null, refused: '', pause: SOON });
}

function restoreFocus(/** @type {string} */ last) {
  const lost = document.activeElement === document.body || $('drawer').contains(document.activeElement);
  if (lost && last !== 'new') {
    focusRow(last);
  } else if (lost) {
    (opener?.isConnected && opener !== document.body ? opener : $('create')).focus();
  }
}

function mount() {
  if ($('drawer').dataset.mounted) {
    return;
  }
  $('drawer').dataset.mounted = 'yes';
  mountForm({ created, saved, left, cancel });
  $('drawer-close').addEventListener('click', close);
  $('edit-plant').addEventListener('click', () => openForm(drawer.plant));
  $('delete-plant').addEventListener('click', busily(remove));
  $('restore-plant').addEventListener('click', busily(() => restoreTo(deletion()?.plant)));
  $('copy-id').addEventListener('click', () => copy(drawer.id, 'ID'));
  $('copy-curl').addEventListener('click', () => copy(curl(drawer.plant), 'curl command'));
}

// close closes the drawer, unless there is unsaved text.
const close = () => go({ ...state(), id: '' }, { memory: memory() });

// cancel leaves the form, or closes the drawer. It reports whether there was one.
export function cancel() {
  if (!drawer.id) {
    return false;
  }
  const back = () => {
    openView();
    $('edit-plant').focus();
  };
  if (!isEditing() || drawer.id === 'new' || !drawer.plant) {
    close();
  } else if (settled(back)) {
    back();
  }
  return true;
}

// mayLeave reports whether the user can go to the next state. If there is unsaved text, it asks, and
// calls again if the user discards it.
export const mayLeave = (/** @type {import('./state.js').State} */ next, /** @type {() => void} */ again) => (
  (next.page === 'plants' && next.id === drawer.id) || settled(again));

// reloadPlant reads the plant again, unless it is being edited or deleted. What was wrong before may be
// right again.
export function reloadPlant() {
  $('plant-problem').textContent = '';
  if (drawer.id && drawer.id !== 'new' && !isEditing() && !drawer.removing) {
    read();
  }
}

async function read() {
  drawer.running = renew(drawer.running);
  const { signal } = drawer.running;
  if (!drawer.plant && !drawer.past) {
    reveal('');
  }
  try {
    const plant = await findPlant(drawer.id, { signal });
    const past = plant || !allows('events:read') ? null : await readHistory(drawer.id, signal);
    if (isEditing()) { // opened in the meantime, with what was known
      return;
    }
    Object.assign(drawer, { plant, past, pause: SOON });
    if (!drawer.refused || drawer.refused !== (plant && plantJSON(plant))) {
      drawer.refused = '';
      tellProblem();
    }
    if (!plant && !deletion()) {
      showMissing();
    } else if (plant && drawer.edit) {
      openForm(plant);
    } else {
      openView();
    }
    drawer.edit = false;
  } catch (err) {
    if (!handled(err) && !isEditing()) {
      drawer.refused = '';
      showFailure(err, signal);
    }
  }
}

// tellProblem says what is wrong above the plant. A button that is there loses the focus to the title.
function tellProblem(/** @type {(Node | string)[]} */ ...words) {
  if ($('drawer-problem').contains(document.activeElement)) {
    $('drawer-title').focus();
  }
  $('drawer-problem').replaceChildren(...words);
}

// showFailure says why the plant could not be read, and offers to try again. A server that
// has a problem is asked again by itself, less and less often.
function showFailure(/** @type {import('./api.js').Failure} */ err, /** @type {AbortSignal} */ signal) {
  tellProblem(`${sentence(err.message)} `, h('button', { onclick: read }, 'Try again'));
  retry(signal, drawer.pause, err, read);
  drawer.pause = longer(drawer.pause);
}

function showMissing() {
  nameTab();
  reveal('');
  const create = h('button', { onclick: () => openForm(null, drawer.id) }, 'Create it');
  tellProblem(`There is no plant ${drawer.id}. `, allows('plants:write') ? create : '');
}

// openView shows the plant, or what it was before it was deleted.
function openView() {
  closeForm();
  title(drawer.id);
  nameTab();
  reveal('plant-view');
  drawPlant(drawer.plant ?? deletion()?.plant, deletion(), drawer.past);
  if (drawer.past) {
    showHistory();
  } else if (allows('events:read')) {
    readOn();
  }
}

const showHistory = () => drawer.past && drawHistory(drawer.past, drawer.plant ?? deletion()?.plant, { more: readOn, restoreTo });

// readOn reads more of the history.
async function readOn() {
  const { signal } = drawer.running;
  const say = (/** @type {string} */ text) => { $('history-status').textContent = text; };
  say('Loading…');
  await tell(async () => {
    drawer.past = await readHistory(drawer.id, signal, drawer.past ?? undefined);
    showHistory();
  }, say);
}

// editPlant opens the form for a plant. It reports whether there is one.
export function editPlant(/** @type {string} */ id) {
  if (!id || id === 'new' || isEditing()) {
    return false;
  }
  drawer.edit = true;
  if (id !== drawer.id) {
    openPlant(id);
  } else if (drawer.plant) {
    drawer.edit = false;
    openForm(drawer.plant);
  }
  return true;
}

// openForm shows the form with this plant, or for a new one.
function openForm(/** @type {Plant | null} */ plant, id = plant?.id) {
  title(plant ? plant.id : 'new');
  tellProblem();
  reveal('plant');
  fillForm(plant, drawer.running.signal, id);
}

function created(/** @type {string} */ id) {
  closeForm();
  close();
  const exact = BigInt(id).toString();
  const actions = /** @type {[string, () => void, string][]} */ (
    [['View', () => openPlant(exact), 'view'], ['Create another', newPlant, 'another']]);
  toast(`Plant ${exact} was created.`, { seconds: 10, actions: allows('plants:read') ? actions : actions.slice(1) });
  reload({ changed: exact });
}

function saved(/** @type {Plant} */ plant) {
  left(plant);
  toast(`Plant ${plant.id} was saved.`);
}

// left shows what is saved, or closes the drawer if that is nothing.
function left(/** @type {Plant | null} */ plant) {
  closeForm();
  if (plant) {
    Object.assign(drawer, { plant, past: null });
    openView();
    $('edit-plant').focus();
  } else {
    close();
  }
  reload({ changed: plant?.id });
}

// restoreTo makes the plant what it was.
async function restoreTo(/** @type {Plant | undefined} */ plant) {
  const { plant: now, running } = drawer;
  if (!plant) {
    return;
  }
  tellProblem();
  drawer.removing = true;
  try {
    const restored = await restore(plant, now);
    if (!running.signal.aborted) {
      left(restored);
    }
  } catch (err) {
    if (err.status === 412) {
      await refuse(now ? 'changed' : 'created', 'Nothing was restored.');
    } else if (err.status !== 401) {
      tellProblem(sentence(err.message));
    }
  } finally {
    drawer.removing = false;
  }
}

// refuse says that somebody has changed the plant, and shows it as it is now.
async function refuse(/** @type {string} */ changed, /** @type {string} */ then) {
  await read();
  drawer.refused = drawer.plant ? plantJSON(drawer.plant) : '';
  tellProblem(drawer.plant
    ? `Someone ${changed} it in the meantime. This is the current version. ${then}`
    : `Plant ${drawer.id} was already deleted.`);
}

// remove deletes the plant as it is shown. There is no question before it, but an undo after it.
async function remove() {
  const { plant } = drawer;
  tellProblem();
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
      await refuse('changed', 'Delete it anyway?');
    } else if (err.status !== 401) {
      tellProblem(sentence(err.message));
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
