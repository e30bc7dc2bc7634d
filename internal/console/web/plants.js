// The page of plants: search, filters, table and selection. It draws what the list has, and
// what it shows follows from the URL.

import { PLANTS, allows } from './api.js';
import { $, STILL_WAITING, h, icon } from './dom.js';
import { count, plural, sentence, shorten } from './format.js';
import {
  MOST, close, filtered, filters, list, loaded, reload, select, selectMatches, selectPage, show, stopSelecting, subscribe,
} from './list.js';
import { startLive, stopLive } from './live.js';
import { copy, message, tell } from './parts.js';
import { cancel, closePlant, editPlant, mayLeave, openID, reloadPlant, showPlant } from './plant.js';
import { go, memory, state } from './route.js';
import { mountRows, move, newPlant, openPlant, renderRows, revealRow } from './rows.js';
import { format, wholeNumber } from './state.js';
import { suggestTags } from './suggest.js';
import { askDelete, askTag } from './undo.js';
import { openExport } from './export.js';
import { loadSamples, openImport } from './import.js';

const PAUSE = 200;
const DENSITY = 'plantstore.density';

const search = () => $('search', HTMLInputElement);
const tagFilter = () => $('tag-filter', HTMLInputElement);
const pickAll = () => $('pick-all', HTMLInputElement);
const button = (/** @type {string} */ id) => $(id, HTMLButtonElement);

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Plants',
  show(root, now) {
    const loads = show({ ...now, before: before() }); // first, so that the server works while the page is drawn
    const first = !root.firstChild;
    if (first) {
      mount(root);
    }
    fill(search(), now.q);
    fill(tagFilter(), now.tag);
    renderChips(now);
    renderGoto();
    showPlant(now.id);
    if (loads && now.id) {
      loaded().then(() => setTimeout(() => revealRow(now.id))); // once the page is visible
    }
    render();
    if (first) { // after the rows
      loaded().then(() => root.isConnected && startLive());
    }
  },
  refresh() {
    startLive();
    reload();
    reloadPlant();
  },
  leave: mayLeave,
  key(key) {
    switch (key) {
      case '/':
        if (!search().checkVisibility()) {
          return false;
        }
        search().focus();
        search().select();
        return true;
      case 'n':
        return allows('plants:write') && newPlant();
      case 'j':
        return move(1);
      case 'k':
        return move(-1);
      case 'e':
        return allows('plants:write') && editPlant(state().id || list.current);
      case 'Escape':
        return cancel();
    }
    return false;
  },
  hide() {
    close();
    closePlant();
    stopLive();
  },
};

subscribe((events) => {
  render();
  if (events.some(({ plant }) => plant && plant.id === openID())) {
    reloadPlant();
  }
});

// fill does not move the cursor of somebody who is typing.
function fill(/** @type {HTMLInputElement} */ field, /** @type {string} */ text) {
  if (field.value !== text) {
    field.value = text;
  }
}

function mount(/** @type {HTMLElement} */ root) {
  root.append($('plants-page', HTMLTemplateElement).content.cloneNode(true));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  const [words, tag] = [search(), tagFilter()];
  const start = () => {
    clearTimeout(pause);
    find(words.value, tag.value);
  };
  words.addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(start, PAUSE);
    renderGoto();
  });
  // A tag must match exactly, so wait until it is complete.
  tag.addEventListener('change', start);
  tag.addEventListener('input', () => {
    if (tag.value === '') {
      start();
    }
  });
  suggestTags(tag, 'options', start);
  $('filters').addEventListener('submit', (event) => {
    event.preventDefault();
    const id = document.activeElement === words && wholeNumber(words.value);
    if (id) {
      clearTimeout(pause);
      openPlant(id, words.value);
      return;
    }
    start();
  });
  $('goto').addEventListener('click', (event) => {
    event.preventDefault();
    openPlant(wholeNumber(words.value), words.value);
  });
  $('create').addEventListener('click', newPlant);
  $('import').addEventListener('click', openImport);
  $('export').addEventListener('click', () => openExport(filters()));
  for (const id of ['create', 'import', 'pick-all']) {
    $(id).hidden = !allows('plants:write');
  }
  $('export').hidden = !allows('plants:read');
  button('next').addEventListener('click', () => turnPage('next', nextPage));
  button('previous').addEventListener('click', () => turnPage('previous', previousPage));
  mountRows();
  pickAll().addEventListener('change', () => selectPage(pickAll().checked));
  $('pick-matches').addEventListener('click', () => (list.selecting === null ? tell(selectMatches) : stopSelecting()));
  $('news').addEventListener('click', () => reload());
  $('clear-chosen').addEventListener('click', () => select([]));
  $('delete-chosen').addEventListener('click', () => askDelete([...list.selected.values()]));
  $('retag-chosen').addEventListener('click', () => askTag([...list.selected.values()]));
  mountDensity();
}

// mountDensity makes the rows as dense as the user likes them, in this browser.
function mountDensity() {
  const apply = (/** @type {boolean} */ compact) => {
    $('plants').classList.toggle('compact', compact);
    $('density').ariaPressed = String(compact);
  };
  apply(localStorage.getItem(DENSITY) === 'compact');
  $('density').addEventListener('click', () => {
    const compact = !$('plants').matches('.compact');
    apply(compact);
    if (compact) {
      localStorage.setItem(DENSITY, 'compact');
    } else {
      localStorage.removeItem(DENSITY);
    }
  });
}

// find shows the first page of the plants with these words in their name and this tag. While
// the user types, the searches are one entry of the browser's history.
function find(/** @type {string} */ q, /** @type {string} */ tag) {
  const now = state();
  if (q !== now.q || tag !== now.tag) {
    go({ page: 'plants', id: now.id, q, tag }, { replace: q !== now.q && now.q !== '' && q !== '' });
  }
}

const firstPage = () => go({ page: 'plants' });

// trail is how the user came to this page: the position and the number of plants of each
// page before it. It is empty after a pasted link.
/** @returns {{after: string, size: number}[]} */
const trail = () => memory()?.trail ?? [];

// before returns how many plants are on the pages before this one, or null if that is not
// known.
function before() {
  const known = trail().length > 0 ? trail()[0].after === '' : state().after === '';
  return known ? trail().reduce((sum, { size }) => sum + size, 0) : null;
}

function nextPage() {
  const after = new URLSearchParams(list.next ?? '').get('after') ?? '';
  go({ ...state(), after }, { memory: { trail: [...trail(), { after: state().after, size: list.plants.length }] } });
}

function previousPage() {
  go({ ...state(), after: trail().at(-1)?.after ?? '' }, { memory: { trail: trail().slice(0, -1) } });
}

// turnPage changes the page, scrolls to its top, and moves the focus if the button is now
// disabled. It does nothing while a page is loading.
async function turnPage(/** @type {'next' | 'previous'} */ id, /** @type {() => void} */ to) {
  if (list.status) {
    return;
  }
  to();
  await loaded();
  scrollTo(0, 0);
  if (button(id).disabled) {
    $(id === 'next' ? 'previous' : 'next').focus();
  }
}

function render() {
  if (!document.getElementById('plants')) {
    return;
  }
  $('plants').ariaBusy = list.status ? 'true' : null;
  renderRows();
  renderSelection();
  renderPager();
  renderMessage();
  $('total').textContent = list.total === null ? '' : plural(list.total, 'plant');
  $('news').hidden = list.created.size === 0;
  $('news').textContent = `${plural(list.created.size, 'new plant')}. Show`;
}

function renderSelection() {
  const { selected, selecting, plants } = list;
  const here = plants.filter(({ id }) => selected.has(id)).length;
  const all = here > 0 && here === plants.length;
  pickAll().checked = all;
  pickAll().indeterminate = here > 0 && !all;
  $('chosen').hidden = selected.size === 0;
  $('chosen-count').textContent = selecting !== null
    ? `Selecting… ${count(selecting)}`
    : `${count(selected.size)} selected${selected.size === MOST ? ', the most at once' : ''}`;
  const more = all ? selected.size === plants.length && (list.next || list.after) : here > 0;
  $('pick-matches').hidden = selecting === null && !more;
  $('pick-matches').textContent = selecting !== null ? 'Stop' : filtered() ? 'Select all that match' : 'Select all plants';
  for (const id of ['retag-chosen', 'delete-chosen']) {
    button(id).disabled = selecting !== null;
  }
}

function renderPager() {
  const known = list.loaded === list.query;
  if (list.status === 'slow') {
    $('count').textContent = STILL_WAITING;
  } else if (list.status === 'searching') {
    const id = new URLSearchParams(list.next ?? '').get('after');
    $('count').textContent = `Searching… ${count(list.plants.length)} found up to ID ${id}`;
  } else if (list.plants.length === 0) {
    $('count').textContent = list.status ? 'Loading…' : '';
  } else if (known) {
    $('count').textContent = range();
  }
  if (known && !list.status) {
    button('previous').disabled = !list.after;
    button('next').disabled = !list.next;
    $('turn').hidden = !list.after && !list.next;
  }
  $('pager').hidden = !list.status && (list.failure !== null || !list.query || ($('turn').hidden && list.plants.length === 0));
}

function range() {
  const what = filtered() ? 'Matches' : 'Plants';
  if (list.before === null) {
    return `${what} after ID ${list.after}`;
  }
  const last = list.before + list.plants.length;
  const known = filtered() ? list.matches : list.total !== null && { n: list.total, more: false };
  const { n, more } = known && known.n >= last ? known : { n: last, more: list.next !== null };
  return `${what} ${count(list.before + 1)}–${count(last)} of ${count(n)}${more ? '+' : ''}`;
}

function renderChips(/** @type {{q: string, tag: string}} */ { q, tag }) {
  const chip = (/** @type {string} */ name, /** @type {string} */ text, /** @type {{q?: string, tag?: string}} */ without) => {
    const brief = shorten(text, 60);
    const onclick = () => go({ ...state(), after: '', ...without });
    const label = `Remove the filter ${name} ${brief}`;
    return h('li', {}, h('button', { 'aria-label': label, onclick }, h('span', { dir: 'auto' }, `${name}: ${brief}`), icon('close')));
  };
  $('chips').replaceChildren(...(tag ? [chip('Tag', tag, { tag: '' })] : []), ...(q.trim() ? [chip('Name', q, { q: '' })] : []));
}

// renderGoto offers the plant whose id is in the search field.
function renderGoto() {
  const id = wholeNumber(search().value);
  const link = $('goto', HTMLAnchorElement);
  link.hidden = !id;
  link.href = format({ page: 'plants', id });
  link.replaceChildren(`Go to plant ${id}`, h('kbd', {}, 'Enter'));
}

// renderMessage says why there are no rows. A message that is already shown stays as it is,
// with the focus in it; so does the last one until the plants that are wanted are there.
function renderMessage() {
  $('state').hidden = list.plants.length > 0;
  const forbidden = !allows('plants:read');
  $('plants').hidden ||= forbidden;
  if (list.plants.length > 0 || (list.loaded !== list.query && !forbidden)) {
    return;
  }
  const kind = forbidden ? 'forbidden' : list.failure ? list.failure.message : list.status === 'searching' ? list.status : 'empty';
  const key = JSON.stringify([kind, list.query, allows('plants:write')]);
  if ($('state').dataset.key !== key) {
    $('state').dataset.key = key;
    $('state').replaceChildren(...messageOf(kind));
  }
}

/** @returns {HTMLElement[]} */
function messageOf(/** @type {string} */ kind) {
  const { failure } = list;
  if (kind === 'forbidden') {
    return [message('Your token cannot list plants', 'It needs the scope plants:read. You can still use everything else that it allows.')];
  }
  if (failure) {
    const title = failure.status === 0 ? 'Server unreachable' : 'Something went wrong';
    return [message(title, sentence(failure.message), ['Try again', () => reload()])];
  }
  if (kind === 'searching') {
    return [message('Searching…', 'There are many plants. Matches appear here as they are found.')];
  }
  const { q, tag, after } = list;
  if (filtered()) {
    const parts = [q && `“${shorten(q, 80)}” in its name`, tag && `the tag “${shorten(tag, 80)}”`];
    return [message('No matches', `No plant has ${parts.filter(Boolean).join(' and ')}.`, ['Show all plants', firstPage])];
  }
  if (after) {
    return [message('This page is empty', 'Its plants have been deleted.', ['Back to the first page', firstPage])];
  }
  return allows('plants:write') ? [welcome()] : [message('No plants yet', 'Your token can read plants, but not create them.')];
}

// welcome is for an empty store.
function welcome() {
  const element = message(
    'No plants yet',
    'Create the first one, drop a file of plants anywhere on this page, or use the API:',
    ['New plant', newPlant, 'first'],
    ['Import', openImport],
    ['Load 20 sample plants', (event) => loadSamples(/** @type {HTMLElement} */ (event.currentTarget)), 'samples'],
  );
  const command = [
    `curl ${PLANTS} -H "Authorization: Bearer $PLANTSTORE_TOKEN" -H 'Content-Type: application/json'`,
    `-d '{"id": 1, "name": "Monstera", "tag": "tropical"}'`,
  ].join(' ');
  const onclick = () => copy(command, 'Command');
  const button = h('button', { class: 'tool quiet', title: 'Copy', 'aria-label': 'Copy the command', onclick }, icon('copy'));
  element.querySelector('p')?.after(h('div', { class: 'snippet' }, h('code', {}, command), button));
  return element;
}
