// The table of plants: search, tag filter, pages, and messages in place of rows.

import { aborted, allows, listPlants } from './api.js';
import { $, STILL_WAITING, h, icon } from './dom.js';
import { count, sentence, shorten } from './format.js';
import { startLive, stopLive } from './live.js';
import { editPlant, newPlant, removePlant } from './plant.js';
import { go, memory, state } from './route.js';
import { exportPlants, openImport } from './transfer.js';

const PAGE = 50;
const PAUSE = 200;

const list = {
  shown: '', // the search and position that plants and next belong to
  plants: [],
  next: null, // the query of the next page
  loaded: false, // whether plants and next are from the last response
  running: new AbortController(),
};

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Plants',
  show(root, now) {
    if (!root.firstChild) {
      mount(root);
    }
    fill($('search'), now.q);
    fill($('tag-filter'), now.tag);
    if (list.shown !== query(now)) {
      list.shown = query(now);
      reload();
    }
  },
  refresh() {
    startLive();
    reload();
  },
  hide() {
    list.running.abort();
    Object.assign(list, { shown: '', plants: [], next: null, loaded: false });
    stopLive();
  },
};

// fill does not move the cursor of somebody who is typing.
function fill(field, text) {
  if (field.value !== text) {
    field.value = text;
  }
}

function mount(root) {
  root.append($('plants-page').content.cloneNode(true));
  let pause;
  const search = () => {
    clearTimeout(pause);
    find($('search').value, $('tag-filter').value);
  };
  $('search').addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(search, PAUSE);
  });
  // A tag must match exactly, so wait until it is complete.
  $('tag-filter').addEventListener('change', search);
  $('tag-filter').addEventListener('input', () => {
    if ($('tag-filter').value === '') {
      search();
    }
  });
  $('filters').addEventListener('submit', (event) => {
    event.preventDefault();
    search();
  });
  $('create').addEventListener('click', newPlant);
  $('import').addEventListener('click', openImport);
  $('export').addEventListener('click', exportPlants);
  $('next').addEventListener('click', () => turnPage($('next'), nextPage));
  $('previous').addEventListener('click', () => turnPage($('previous'), previousPage));
  startLive();
}

// find shows the first page of the plants with this text in their name and this tag. While
// the user types, the searches are one entry of the browser's history.
function find(q, tag) {
  const now = state();
  if (q !== now.q || tag !== now.tag) {
    go({ page: 'plants', id: now.id, q, tag }, { replace: q !== now.q && now.q !== '' && q !== '' });
  }
}

const firstPage = () => go({ page: 'plants' });

// query returns the query of the page of plants at this position.
function query({ q, tag, after }) {
  return `?${new URLSearchParams({ limit: PAGE, ...(after && { after }), ...filters({ q, tag }) })}`;
}

// filters returns the query parameters of the search.
export function filters({ q, tag } = state()) {
  return { ...(q && { q }), ...(tag && { tag }) };
}

export const filtered = () => state().q !== '' || state().tag !== '';

// trail is how the user came to this page: the position and the number of plants of each
// page before it. It is empty after a pasted link.
const trail = () => memory()?.trail ?? [];

// before returns how many plants are on the pages before this one, or null if that is not
// known.
function before() {
  const known = trail().length > 0 ? trail()[0].after === '' : state().after === '';
  return known ? trail().reduce((sum, { size }) => sum + size, 0) : null;
}

function nextPage() {
  const { after } = state();
  go({ ...state(), after: new URLSearchParams(list.next).get('after') ?? '' }, { memory: { trail: [...trail(), { after, size: list.plants.length }] } });
}

function previousPage() {
  go({ ...state(), after: trail().at(-1)?.after ?? '' }, { memory: { trail: trail().slice(0, -1) } });
}

// turnPage changes the page, scrolls to its top, and moves the focus if the button is now
// disabled. It does nothing while a page is loading, because that page has the query of
// the next one.
async function turnPage(button, to) {
  if ($('plants').ariaBusy) {
    return;
  }
  to();
  await list.done;
  $('plants-title').scrollIntoView({ block: 'nearest' });
  if (button.disabled) {
    (button.id === 'next' ? $('previous') : $('next')).focus();
  }
}

// reload loads the page again, and aborts a reload in progress. It does nothing if another
// page than that of the plants is open.
export function reload(options) {
  if (!$('plants')) {
    return undefined;
  }
  list.done = load(options);
  return list.done;
}

async function load({ fresh } = {}) {
  list.running.abort();
  if (!allows('plants:read')) {
    renderForbidden();
    return;
  }
  list.running = new AbortController();
  const { signal } = list.running;
  const table = $('plants');
  table.ariaBusy = 'true';
  $('pager').hidden = false;
  $('count').textContent = list.plants.length === 0 ? 'Loading…' : $('count').textContent;
  try {
    await readPage(signal);
    list.loaded = true;
    render(fresh);
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

// readPage reads plants until the page is full or there are no more: the server limits
// the work of one search and may return a partial page.
async function readPage(signal) {
  const slow = () => {
    $('count').textContent = STILL_WAITING;
  };
  let next = list.shown;
  const plants = [];
  for (;;) {
    const response = await listPlants(next, { signal, slow });
    plants.push(...response.plants);
    if (!response.next || plants.length >= PAGE) {
      list.next = response.next && withLimit(response.next, PAGE);
      list.plants = plants;
      return;
    }
    next = withLimit(response.next, PAGE - plants.length);
    list.plants = plants;
    renderSearching(new URLSearchParams(next).get('after'));
  }
}

function renderSearching(id) {
  renderRows();
  $('count').textContent = `Searching… ${count(list.plants.length)} found up to ID ${id}`;
  $('state').hidden = list.plants.length > 0;
  renderState('Searching…', 'There are many plants. Matches appear here as they are found.');
}

function withLimit(query, limit) {
  const parameters = new URLSearchParams(query);
  parameters.set('limit', limit);
  return `?${parameters}`;
}

function render(fresh) {
  renderRows(fresh);
  $('count').textContent = list.plants.length > 0 ? shown() : '';
  $('previous').disabled = !state().after;
  $('next').disabled = !list.next;
  $('turn').hidden = !state().after && !list.next;
  $('pager').hidden = $('turn').hidden && list.plants.length === 0;
  $('state').hidden = list.plants.length > 0;
  if (list.plants.length === 0) {
    renderEmpty();
  }
  $('tags').replaceChildren(...tagsShown().map((tag) => h('option', { value: tag })));
}

function shown() {
  const what = filtered() ? 'Matches' : 'Plants';
  const first = before();
  if (first === null) {
    return `${what} after ID ${state().after}`;
  }
  const last = first + list.plants.length;
  return `${what} ${count(first + 1)}–${count(last)} of ${count(last)}${list.next ? '+' : ''}`;
}

function tagsShown() {
  return [...new Set(list.plants.map((plant) => plant.tag).filter(Boolean))].filter((tag) => tag.length <= 100).sort();
}

function renderRows(fresh) {
  $('plants').hidden = list.plants.length === 0;
  $('rows').replaceChildren(...list.plants.map((plant) => row(plant, plant.id === fresh)));
}

function row(plant, fresh) {
  const what = `plant ${plant.id}, ${shorten(plant.name, 60)}`;
  const tool = (name, run) =>
    h('button', { type: 'button', class: 'tool quiet', 'aria-label': `${name} ${what}`, title: name, 'data-do': name, onclick: run }, icon(name.toLowerCase()));
  return h(
    'tr',
    { role: 'row', 'data-id': plant.id, class: fresh ? 'fresh' : undefined },
    h('td', { role: 'cell', class: 'id' }, plant.id),
    h('td', { role: 'cell', class: 'name-cell' }, text('name', plant.name, 300)),
    h('td', { role: 'cell', class: 'tag-cell' }, tagCell(plant.tag)),
    h('td', { role: 'cell', class: 'tools' }, tool('Edit', (event) => editPlant(plant.id, event.currentTarget)), tool('Delete', (event) => removePlant(plant.id, event.currentTarget))),
  );
}

// text shows a name or a tag, or says that there is nothing to see.
function text(style, content, max) {
  return content.trim() === '' ? h('span', { class: 'blank' }, content === '' ? 'empty' : 'blank') : h('span', { class: style, dir: 'auto' }, shorten(content, max));
}

function tagCell(tag) {
  if (tag === undefined) {
    return h('span', { class: 'blank', 'aria-label': 'no tag' }, '–');
  }
  if (tag.trim() === '') {
    return text('', tag, 1);
  }
  const only = `Only plants tagged ${shorten(tag, 60)}`;
  return h('button', { type: 'button', class: 'tag', title: only, 'aria-label': only, onclick: () => find($('search').value, tag) }, h('span', { dir: 'auto' }, shorten(tag, 80)));
}

function renderEmpty() {
  if (filtered()) {
    renderState('No matches', `No plant has ${state().q && `“${shorten(state().q, 80)}” in its name`}${state().q && state().tag && ' and '}${state().tag && `the tag “${shorten(state().tag, 80)}”`}.`, ['Show all plants', () => firstPage()]);
    return;
  }
  if (state().after) {
    renderState('This page is empty', 'Its plants have been deleted.', ['Back to the first page', () => firstPage()]);
    return;
  }
  renderState('No plants yet', 'Create the first one, or drop a file of plants anywhere on this page.', ['New plant', () => $('create').click()], ['Import', () => $('import').click()]);
}

function renderFailure(err) {
  list.loaded = false;
  list.plants = [];
  list.next = null;
  renderRows();
  $('count').textContent = '';
  $('pager').hidden = true;
  $('state').hidden = false;
  renderState(err.status === 0 ? 'No response' : 'Something went wrong', sentence(err.message), ['Try again', () => reload()]);
}

function renderForbidden() {
  $('pager').hidden = true;
  $('state').hidden = false;
  renderState('Your token cannot list plants', 'It needs the scope plants:read. You can still use everything else that it allows.');
}

function renderState(title, message, ...buttons) {
  const children = [h('h2', {}, title), h('p', {}, message)];
  if (buttons.length > 0) {
    children.push(h('div', { class: 'actions' }, ...buttons.map(([name, run], i) => h('button', { type: 'button', class: i === 0 ? 'primary' : undefined, onclick: run }, name))));
  }
  $('state').replaceChildren(...children);
}

// freeID suggests an id for a new plant: the one after the last plant, if that is on this
// page.
export function freeID() {
  if (!list.loaded || filtered() || list.next) {
    return '';
  }
  const last = list.plants.at(-1);
  if (!last) {
    return !state().after ? '1' : '';
  }
  const id = BigInt(last.id) + 1n;
  return id < 2n ** 63n && id > 0n ? id.toString() : '';
}

// focusRow moves the focus to a button in a plant's row, or to the title if there is none.
export function focusRow(id, name) {
  const target = $('rows').querySelector(`tr[data-id="${id}"] [data-do="${name}"]`);
  (target ?? $('plants-title')).focus();
}

// neighbour returns the id of the plant after this one, or before it if it is the last.
export function neighbour(id) {
  const at = list.plants.findIndex((plant) => plant.id === id);
  return (list.plants[at + 1] ?? list.plants[at - 1])?.id;
}
