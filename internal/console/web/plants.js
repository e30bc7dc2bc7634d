// The page of plants: search, filter, table, selection. What it shows follows from the URL.

import { PLANTS, about, aborted, allows, listPlants } from './api.js';
import { $, STILL_WAITING, copy, h, icon, visible } from './dom.js';
import { follow } from './feed.js';
import { count, hasWords, plural, sentence, shorten } from './format.js';
import { startLive, stopLive } from './live.js';
import { message } from './parts.js';
import { cancel, closePlant, editPlant, mayLeave, openID, reloadPlant, showPlant } from './plant.js';
import { go, memory, state } from './route.js';
import { format, wholeNumber } from './state.js';
import { suggestTags } from './suggest.js';
import { askDelete, askTag } from './undo.js';
import { openExport } from './export.js';
import { loadSamples, openImport } from './import.js';

const PAGE = 50;
const PAUSE = 200;
const OVERLAP = 5000; // in which a change may arrive before or after the table that has it

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {import('./feed.js').LogEvent} LogEvent
 */

const list = {
  query: '', // of the plants that are wanted
  shown: '', // of the plants that are shown
  /** @type {Plant[]} */
  plants: [],
  /** @type {string | null} */
  next: null, // the query of the next page
  /** @type {bigint | null} */
  total: null, // of all plants, if the server says so
  current: '', // the id of the row that has the focus, or will get it
  /** @type {Map<string, Plant>} */
  chosen: new Map(), // the selected plants, by id
  /** @type {Set<string>} */
  fresh: new Set(), // ids of plants that others have created on this page
  running: new AbortController(),
  watching: false, // whether the table follows the log of changes
  /** @type {{at: number, events: LogEvent[]}[]} */
  recent: [], // the last changes
  /** @type {ReturnType<typeof setTimeout> | null} */
  counting: null, // a timer
  feed: new AbortController(),
  done: Promise.resolve(),
};

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Plants',
  show(root, now) {
    const first = !root.firstChild;
    if (first) {
      mount(root);
    }
    fill($('search'), now.q);
    fill($('tag-filter'), now.tag);
    renderChips(now);
    renderGoto();
    const changed = list.query !== query(now);
    if (changed) {
      list.query = query(now);
      list.current = '';
      choose();
    }
    showPlant(now.id); // before the list: to search it may take a while
    if (changed) {
      reload();
    }
    markRows();
    if (first) { // what was requested before comes first
      startLive();
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
        $('search').focus();
        $('search').select();
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
    list.running.abort();
    list.feed.abort();
    closePlant();
    stopLive();
    choose();
    Object.assign(list, { query: '', shown: '', plants: [], next: null, total: null, watching: false, recent: [], fresh: new Set() });
  },
};

// fill does not move the cursor of somebody who is typing.
function fill(/** @type {HTMLInputElement} */ field, /** @type {string} */ text) {
  if (field.value !== text) {
    field.value = text;
  }
}

function mount(/** @type {HTMLElement} */ root) {
  root.append($('plants-page').content.cloneNode(true));
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let pause;
  const search = () => {
    clearTimeout(pause);
    find($('search').value, $('tag-filter').value);
  };
  $('search').addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(search, PAUSE);
    renderGoto();
  });
  // A tag must match exactly, so wait until it is complete.
  $('tag-filter').addEventListener('change', search);
  $('tag-filter').addEventListener('input', () => {
    if ($('tag-filter').value === '') {
      search();
    }
  });
  suggestTags($('tag-filter'), $('tags'), search);
  $('filters').addEventListener('submit', (/** @type {Event} */ event) => {
    event.preventDefault();
    const id = document.activeElement === $('search') && wholeNumber($('search').value);
    if (id) {
      clearTimeout(pause);
      openPlant(id, $('search').value);
      return;
    }
    search();
  });
  $('goto').addEventListener('click', (/** @type {Event} */ event) => {
    event.preventDefault();
    openPlant(wholeNumber($('search').value), $('search').value);
  });
  $('create').addEventListener('click', newPlant);
  $('import').addEventListener('click', openImport);
  $('export').addEventListener('click', () => openExport(filters()));
  for (const id of ['create', 'import', 'pick-all']) {
    $(id).hidden = !allows('plants:write');
  }
  $('export').hidden = !allows('plants:read');
  $('next').addEventListener('click', () => turnPage($('next'), nextPage));
  $('previous').addEventListener('click', () => turnPage($('previous'), previousPage));
  $('rows').addEventListener('click', clickRow);
  $('rows').addEventListener('keydown', pressInRow);
  $('rows').addEventListener('focusin', (/** @type {any} */ event) => setCurrent(event.target.closest('tr').dataset.id));
  $('pick-all').addEventListener('change', () => choose(...($('pick-all').checked ? list.plants : [])));
  $('news').addEventListener('click', () => reload());
  $('clear-chosen').addEventListener('click', () => choose());
  $('delete-chosen').addEventListener('click', () => askDelete([...list.chosen.values()]));
  $('retag-chosen').addEventListener('click', () => askTag([...list.chosen.values()]));
}

// find shows the first page of the plants with these words in their name and this tag. While
// the user types, the searches are one entry of the browser's history.
function find(/** @type {string} */ q, /** @type {string} */ tag) {
  const now = state();
  if (q !== now.q || tag !== now.tag) {
    go({ page: 'plants', id: now.id, q, tag }, { replace: q !== now.q && now.q !== '' && q !== '' });
  }
}

export const newPlant = () => go({ ...state(), id: 'new' }, { memory: memory() });
export const firstPage = () => go({ page: 'plants' });

/** openPlant opens a plant beside the list. @param {string} id @param {string} [q] */
export const openPlant = (id, q = state().q) => go({ ...state(), q, id }, { memory: q === state().q ? memory() : null });

// query returns the query of the page of plants at this position.
function query(/** @type {import('./state.js').State} */ { q, tag, after }) {
  return `?${new URLSearchParams({ limit: String(PAGE), ...(after && { after }), ...filters({ q, tag }) })}`;
}

// filters returns the query parameters of the search.
export function filters(/** @type {{q: string, tag: string}} */ { q, tag } = state()) {
  return { ...(q.trim() && { q }), ...(tag && { tag }) };
}

export const filtered = () => state().q.trim() !== '' || state().tag !== '';

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
  const { after } = state();
  go({ ...state(), after: new URLSearchParams(list.next ?? '').get('after') ?? '' }, { memory: { trail: [...trail(), { after, size: list.plants.length }] } });
}

function previousPage() {
  go({ ...state(), after: trail().at(-1)?.after ?? '' }, { memory: { trail: trail().slice(0, -1) } });
}

// turnPage changes the page, scrolls to its top, and moves the focus if the button is now
// disabled. It does nothing while a page is loading.
async function turnPage(/** @type {HTMLButtonElement} */ button, /** @type {() => void} */ to) {
  if ($('plants').ariaBusy) {
    return;
  }
  to();
  await list.done;
  scrollTo(0, 0);
  if (button.disabled) {
    (button.id === 'next' ? $('previous') : $('next')).focus();
  }
}

// reload loads the page again, and aborts a reload in progress. It does nothing if another
// page than that of the plants is open.
export function reload(/** @type {{fresh?: string} | undefined} */ options = undefined) {
  if ($('plants')) {
    list.done = load(options);
  }
  return list.done;
}

async function load(/** @type {{fresh?: string}} */ { fresh } = {}) {
  list.running.abort();
  if (!allows('plants:read')) {
    renderForbidden();
    return;
  }
  list.running = new AbortController();
  const { signal } = list.running;
  const began = performance.now();
  const table = $('plants');
  table.ariaBusy = 'true';
  $('pager').hidden = false;
  $('count').textContent = list.plants.length === 0 ? 'Loading…' : $('count').textContent;
  try {
    await readPage(signal);
    render(fresh);
    countAll(signal);
    list.fresh = new Set();
    apply(list.recent.filter(({ at }) => at >= began).flatMap(({ events }) => events)); // the table has the older ones
  } catch (err) {
    if (!aborted(err)) {
      renderFailure(err);
    }
  } finally {
    if (!signal.aborted) {
      table.ariaBusy = null;
    }
  }
}

// countAll shows how many plants there are, if the server says so.
async function countAll(/** @type {AbortSignal} */ signal) {
  try {
    const { plants } = await about({ signal });
    list.total = plants === undefined ? null : BigInt(plants);
    renderTotal();
  } catch {
    // The number shown stays.
  }
}

function renderTotal() {
  $('total').textContent = list.total === null ? '' : plural(list.total, 'plant');
  if (list.shown === list.query && list.plants.length > 0) {
    $('count').textContent = range();
  }
}

// readPage reads plants until the page is full or there are no more: the server limits
// the work of one search and may return a partial page.
async function readPage(/** @type {AbortSignal} */ signal) {
  const slow = () => {
    $('count').textContent = STILL_WAITING;
  };
  const wanted = list.query;
  let next = wanted;
  /** @type {Plant[]} */
  const plants = [];
  for (;;) {
    const response = await listPlants(next, { signal, slow });
    plants.push(...response.plants);
    list.plants = plants;
    list.shown = wanted;
    if (!response.next || plants.length >= PAGE) {
      list.next = response.next && withLimit(response.next, PAGE);
      watch(response.date);
      return;
    }
    next = withLimit(response.next, PAGE - plants.length);
    renderSearching(new URLSearchParams(next).get('after'));
  }
}

// watch keeps the table up to date. It starts a little before the table was read, by the
// server's clock: to apply a change twice does no harm. Nothing jumps.
function watch(/** @type {string} */ date) {
  if (list.watching || !allows('events:read')) {
    return;
  }
  list.watching = true;
  list.feed = new AbortController();
  const from = date ? { since: new Date(Date.parse(date) - OVERLAP).toISOString() } : { after: 'latest' };
  follow(from, list.feed.signal, arrive, () => {
    list.watching = false;
    reload();
  });
}

// arrive applies new changes. load repeats those that arrive while it reads the table.
function arrive(/** @type {LogEvent[]} */ events) {
  const now = performance.now();
  list.recent = [...list.recent.filter(({ at }) => now - at < OVERLAP), { at: now, events }];
  apply(events);
  if (events.some(({ plant }) => plant?.id === openID())) {
    reloadPlant();
  }
  if (list.plants.length === 0 && list.fresh.size > 0) {
    reload();
    return;
  }
  list.counting ??= setTimeout(() => {
    list.counting = null;
    if (!list.feed.signal.aborted) {
      countAll(list.feed.signal);
    }
  }, 1000);
}

function apply(/** @type {LogEvent[]} */ events) {
  for (const { type, plant } of events.filter((event) => event.plant)) {
    const at = list.plants.findIndex(({ id }) => id === plant.id);
    if (type === 'plant.deleted') {
      list.fresh.delete(plant.id);
      rowOf(plant.id)?.classList.add('deleted');
    } else if (at >= 0) {
      replaceRow(at, plant);
    } else if (belongs(plant)) {
      list.fresh.add(plant.id);
    }
  }
  renderNews();
}

function replaceRow(/** @type {number} */ at, /** @type {Plant} */ plant) {
  const tr = rowOf(plant.id);
  if (tr.look === look(plant) && !tr.matches('.deleted')) {
    return;
  }
  list.plants[at] = plant;
  changeRows(() => tr.replaceWith(row(plant, plant.id)));
}

// belongs reports whether a plant would be on this page.
function belongs(/** @type {Plant} */ { id, name, tag }) {
  const { q, tag: wanted, after } = state();
  const last = list.plants.at(-1)?.id;
  return hasWords(name, q) && (!wanted || tag === wanted)
    && (!after || BigInt(id) > BigInt(after)) && (!list.next || last === undefined || BigInt(id) < BigInt(last));
}

function renderNews() {
  $('news').hidden = list.fresh.size === 0;
  $('news').textContent = `${plural(list.fresh.size, 'new plant')}. Show`;
}

function renderSearching(/** @type {string | null} */ id) {
  renderRows();
  $('count').textContent = `Searching… ${count(list.plants.length)} found up to ID ${id}`;
  $('state').hidden = list.plants.length > 0;
  renderState('Searching…', 'There are many plants. Matches appear here as they are found.');
}

function withLimit(/** @type {string} */ query, /** @type {number} */ limit) {
  const parameters = new URLSearchParams(query);
  parameters.set('limit', String(limit));
  return `?${parameters}`;
}

function render(/** @type {string | undefined} */ fresh) {
  renderRows(fresh);
  $('count').textContent = list.plants.length > 0 ? range() : '';
  $('previous').disabled = !state().after;
  $('next').disabled = !list.next;
  $('turn').hidden = !state().after && !list.next;
  $('pager').hidden = $('turn').hidden && list.plants.length === 0;
  $('state').hidden = list.plants.length > 0;
  if (list.plants.length === 0) {
    renderEmpty();
  }
}

function range() {
  const what = filtered() ? 'Matches' : 'Plants';
  const first = before();
  if (first === null) {
    return `${what} after ID ${state().after}`;
  }
  const last = first + list.plants.length;
  const of = list.total !== null && !filtered() ? list.total : last;
  return `${what} ${count(first + 1)}–${count(last)} of ${count(of)}${list.next && of === last ? '+' : ''}`;
}

function renderChips(/** @type {{q: string, tag: string}} */ { q, tag }) {
  const chip = (/** @type {string} */ name, /** @type {string} */ text, /** @type {{q?: string, tag?: string}} */ without) => h('li', {}, h('button', { 'aria-label': `Remove the filter ${name} ${shorten(text, 60)}`, onclick: () => go({ ...state(), after: '', ...without }) }, h('span', { dir: 'auto' }, `${name}: ${shorten(text, 60)}`), icon('close')));
  $('chips').replaceChildren(...(tag ? [chip('Tag', tag, { tag: '' })] : []), ...(q.trim() ? [chip('Name', q, { q: '' })] : []));
}

// renderGoto offers the plant whose id is in the search field.
function renderGoto() {
  const id = wholeNumber($('search').value);
  $('goto').hidden = !id;
  $('goto').href = format({ page: 'plants', id });
  $('goto').replaceChildren(`Go to plant ${id}`, h('kbd', {}, 'Enter'));
}

// renderRows keeps the rows that have not changed, so that no click on them is lost.
function renderRows(/** @type {string | undefined} */ fresh = undefined) {
  const looks = list.plants.map(look);
  if (!list.plants.some(({ id }) => id === list.current)) {
    list.current = list.plants[0]?.id ?? '';
  }
  $('plants').hidden = !list.plants.length;
  changeRows((rows) => {
    for (const tr of [...rows.children]) {
      if (tr.matches('.deleted') || tr.dataset.id === fresh || !looks.includes(tr.look)) {
        tr.remove();
      }
      tr.className = '';
    }
    let at = rows.firstChild;
    for (const plant of list.plants) {
      if (at?.dataset.id !== plant.id) {
        at = rows.insertBefore(row(plant, fresh), at);
      }
      at = at.nextSibling;
    }
  });
}

// changeRows keeps the focus and the selection.
function changeRows(/** @type {(rows: any) => void} */ change) {
  const rows = $('rows');
  const focused = rows.contains(document.activeElement);
  change(rows);
  choose(...list.plants.filter(({ id }) => list.chosen.has(id)));
  markRows();
  if (focused && !rows.contains(document.activeElement)) {
    focusRow(list.current);
  }
}

const look = (/** @type {Plant} */ { id, name, tag }) => JSON.stringify([format({ ...state(), id }), name, tag]);

function row(/** @type {Plant} */ plant, /** @type {string | undefined} */ fresh) {
  const { id, name, tag } = plant;
  const link = h('a', {
    class: 'name', dir: 'auto', href: format({ ...state(), id }), title: name.length > 40 ? shorten(name, 1000) : undefined,
  }, ...(name === '' ? [h('span', { class: 'blank' }, 'empty')] : visible(shorten(name, 300))));
  const pick = h('input', { type: 'checkbox', tabindex: '-1', 'aria-label': `Select plant ${id}` });
  pick.hidden = !allows('plants:write');
  return Object.assign(h(
    'tr',
    { role: 'row', 'data-id': id, class: id === fresh ? 'fresh' : '' },
    h('td', { role: 'cell', class: 'pick' }, h('label', {}, pick)),
    h('td', { role: 'cell', class: 'id' }, id),
    h('td', { role: 'cell', class: 'name-cell' }, link),
    h('td', { role: 'cell', class: 'tag-cell' }, tagCell(tag)),
  ), { look: look(plant) });
}

function tagCell(/** @type {string | undefined} */ tag) {
  if (!tag) {
    return h('span', { class: 'blank', 'aria-label': tag === undefined ? 'no tag' : undefined }, tag === undefined ? '–' : 'empty');
  }
  const only = `Only plants tagged ${shorten(tag, 60)}`;
  return h('button', { class: 'tag', tabindex: '-1', title: only, 'aria-label': only, onclick: () => find($('search').value, tag) }, h('span', { dir: 'auto' }, ...visible(shorten(tag, 80))));
}

const rowOf = (/** @type {string | undefined} */ id) => (id ? $('rows').querySelector(`tr[data-id="${id}"]`) : null);

// markRows marks the open row and the current one.
function markRows() {
  for (const tr of $('rows').children) {
    const { id } = tr.dataset;
    tr.classList.toggle('open', id === state().id);
    tr.querySelector('.name').tabIndex = id === list.current ? 0 : -1;
  }
}

// Rows are one stop of the Tab key. Within it j, k and the arrows move.

function clickRow(/** @type {any} */ event) {
  const id = event.target.closest('tr')?.dataset.id;
  if (event.target.closest('.pick')) {
    choose(...list.plants.filter((plant) => rowOf(plant.id).querySelector('.pick input').checked));
    return;
  }
  if (!id || event.target.closest('button') || event.ctrlKey || event.metaKey || event.shiftKey) {
    return;
  }
  event.preventDefault();
  setCurrent(id);
  openPlant(id);
}

function pressInRow(/** @type {any} */ event) {
  /** @type {number | undefined} */
  const step = { ArrowDown: 1, ArrowUp: -1 }[/** @type {'ArrowUp'} */ (event.key)];
  if (step && !event.altKey) {
    event.preventDefault();
    move(step);
  }
  if (event.key === ' ' && event.target.matches('a.name') && allows('plants:write')) {
    event.preventDefault();
    rowOf(list.current).querySelector('.pick input').click();
  }
}

function setCurrent(/** @type {string} */ id) {
  list.current = id;
  markRows();
}

// move goes to the next or the previous row. If a plant is open beside the list, it opens
// that of the row instead.
function move(/** @type {number} */ step) {
  const focused = $('rows').contains(document.activeElement) || state().id !== '';
  const at = list.plants.findIndex(({ id }) => id === (state().id || list.current));
  const plant = list.plants[focused ? at + step : Math.max(at, 0)];
  if (!plant) {
    return true;
  }
  if (!state().id || go({ ...state(), id: plant.id }, { replace: true, memory: memory() })) {
    focusRow(plant.id);
  }
  return true;
}

// choose selects these plants, and no others.
export function choose(/** @type {Plant[]} */ ...plants) {
  list.chosen = new Map(plants.map((plant) => [plant.id, plant]));
  if (!$('plants')) {
    return;
  }
  for (const plant of list.plants) {
    const pick = rowOf(plant.id)?.querySelector('.pick input');
    if (pick) {
      pick.checked = list.chosen.has(plant.id);
    }
  }
  $('chosen').hidden = plants.length === 0;
  $('chosen-count').textContent = `${count(plants.length)} selected`;
  $('pick-all').checked = plants.length > 0 && plants.length === list.plants.length;
  $('pick-all').indeterminate = plants.length > 0 && plants.length < list.plants.length;
}

function renderEmpty() {
  const { q, tag, after } = state();
  if (filtered()) {
    renderState('No matches', `No plant has ${q && `“${shorten(q, 80)}” in its name`}${q && tag && ' and '}${tag && `the tag “${shorten(tag, 80)}”`}.`, ['Show all plants', firstPage]);
    return;
  }
  if (after) {
    renderState('This page is empty', 'Its plants have been deleted.', ['Back to the first page', firstPage]);
    return;
  }
  if (!allows('plants:write')) {
    renderState('No plants yet', 'Your token can read plants, but not create them.');
    return;
  }
  renderState('No plants yet', 'Create the first one, drop a file of plants anywhere on this page, or use the API:', ['New plant', newPlant], ['Import', openImport], ['Load 20 sample plants', (event) => loadSamples(/** @type {HTMLElement} */ (event.currentTarget))]);
  const command = `curl ${PLANTS} -H "Authorization: Bearer $PLANTSTORE_TOKEN" -H 'Content-Type: application/json' -d '{"id": 1, "name": "Monstera", "tag": "tropical"}'`;
  $('state').querySelector('p').after(h('div', { class: 'snippet' }, h('code', {}, command), h('button', { class: 'tool quiet', title: 'Copy', 'aria-label': 'Copy the command', onclick: () => copy(command, 'Command') }, icon('copy'))));
}

// renderFailure keeps the rows if they are what was asked for: the server may be back soon.
function renderFailure(/** @type {any} */ err) {
  if (list.shown === list.query) {
    $('count').textContent = list.plants.length > 0 ? range() : '';
    return;
  }
  list.plants = [];
  list.next = null;
  renderRows();
  $('count').textContent = '';
  $('pager').hidden = true;
  $('state').hidden = false;
  renderState(err.status === 0 ? 'Server unreachable' : 'Something went wrong', sentence(err.message), ['Try again', () => reload()]);
}

function renderForbidden() {
  $('plants').hidden = true;
  $('pager').hidden = true;
  $('state').hidden = false;
  renderState('Your token cannot list plants', 'It needs the scope plants:read. You can still use everything else that it allows.');
}

/** @param {Parameters<typeof message>} args */
const renderState = (...args) => $('state').replaceChildren(message(...args));

// freeID suggests an id for a new plant: the one after the last plant, if that is on this
// page.
export function freeID() {
  if (list.shown !== list.query || filtered() || list.next) {
    return '';
  }
  const last = list.plants.at(-1);
  if (!last) {
    return state().after ? '' : '1';
  }
  return wholeNumber(String(BigInt(last.id) + 1n));
}

// focusRow moves the focus to a plant's row, or to the title if there is none.
export function focusRow(/** @type {string | undefined} */ id) {
  const link = rowOf(id)?.querySelector('a.name');
  if (link && id) {
    setCurrent(id);
  }
  (link ?? $('plants-title')).focus();
}

// neighbour returns the id of the plant after this one, or before it if it is the last.
export function neighbour(/** @type {string} */ id) {
  const at = list.plants.findIndex((plant) => plant.id === id);
  return (list.plants[at + 1] ?? list.plants[at - 1])?.id ?? '';
}
