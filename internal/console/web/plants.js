// The table of plants: search, tag filter, pages, and messages in place of rows.

import { aborted, listPlants } from './api.js';
import { $, STILL_WAITING, count, h, icon, shorten } from './dom.js';

const PAGE = 50;
const PAUSE = 200;

const list = {
  q: '',
  tag: '',
  pages: [], // for each page up to the current one: its query and the number of plants before it
  plants: [],
  next: null, // the query of the next page
  loaded: false, // whether plants and next are from the last response
  running: new AbortController(),
};

let actions; // what the buttons of a row do

export function startPlants(given) {
  actions = given;
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
  $('next').addEventListener('click', () => turnPage($('next'), nextPage));
  $('previous').addEventListener('click', () => turnPage($('previous'), previousPage));
}

// find shows the first page of the plants with this text in their name and this tag.
function find(q, tag) {
  if (list.pages.length > 0 && q === list.q && tag === list.tag) {
    return;
  }
  firstPage(q, tag);
}

export function firstPage(q = '', tag = '') {
  list.q = q;
  list.tag = tag;
  $('search').value = q;
  $('tag-filter').value = tag;
  list.pages = [{ query: firstQuery(), before: 0 }];
  $('pages').hidden = true;
  return reload();
}

function firstQuery() {
  return `?${new URLSearchParams({ limit: PAGE, ...filters() })}`;
}

// filters returns the query parameters of the current search.
export function filters() {
  return { ...(list.q && { q: list.q }), ...(list.tag && { tag: list.tag }) };
}

export const filtered = () => list.q !== '' || list.tag !== '';

function nextPage() {
  const { before } = list.pages.at(-1);
  list.pages.push({ query: list.next, before: before + list.plants.length });
  return reload();
}

function previousPage() {
  list.pages.pop();
  return reload();
}

// turnPage changes the page, scrolls to its top, and moves the focus if the button is now
// disabled. It does nothing while a page is loading, because that page has the query of
// the next one.
async function turnPage(button, to) {
  if ($('plants').ariaBusy) {
    return;
  }
  await to();
  $('plants-title').scrollIntoView({ block: 'nearest' });
  if (button.disabled) {
    (button.id === 'next' ? $('previous') : $('next')).focus();
  }
}

// reload loads the page again, and aborts a reload in progress.
export async function reload({ fresh } = {}) {
  list.running.abort();
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
  let { query } = list.pages.at(-1);
  const plants = [];
  for (;;) {
    const response = await listPlants(query, { signal, slow });
    plants.push(...response.plants);
    if (!response.next || plants.length >= PAGE) {
      list.next = response.next && withLimit(response.next, PAGE);
      list.plants = plants;
      return;
    }
    query = withLimit(response.next, PAGE - plants.length);
    list.plants = plants;
    renderSearching(new URLSearchParams(query).get('after'));
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
  const { before } = list.pages.at(-1);
  const last = before + list.plants.length;
  $('count').textContent = list.plants.length > 0 ? shown(before + 1, last) : '';
  $('previous').disabled = list.pages.length === 1;
  $('next').disabled = !list.next;
  $('pages').hidden = list.pages.length === 1 && !list.next;
  $('pager').hidden = $('pages').hidden && list.plants.length === 0;
  $('state').hidden = list.plants.length > 0;
  if (list.plants.length === 0) {
    renderEmpty();
  }
  $('tags').replaceChildren(...tagsShown().map((tag) => h('option', { value: tag })));
}

function shown(first, last) {
  const what = filtered() ? 'Matches' : 'Plants';
  return `${what} ${count(first)}–${count(last)} of ${count(last)}${list.next ? '+' : ''}`;
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
    h('td', { role: 'cell', class: 'tools' }, tool('Edit', (event) => actions.edit(plant.id, event.currentTarget)), tool('Delete', (event) => actions.remove(plant.id, event.currentTarget))),
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
    renderState('No matches', `No plant has ${list.q && `“${shorten(list.q, 80)}” in its name`}${list.q && list.tag && ' and '}${list.tag && `the tag “${shorten(list.tag, 80)}”`}.`, ['Show all plants', () => firstPage()]);
    return;
  }
  if (list.pages.length > 1) {
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
  if (err.status === 403) {
    renderState('This token cannot list plants', `${sentence(err.message)} You can still use everything else that it allows.`);
    return;
  }
  renderState(err.status === 0 ? 'No response' : 'Something went wrong', sentence(err.message), ['Try again', () => reload()]);
}

export function sentence(message) {
  const text = message[0].toUpperCase() + message.slice(1);
  return /[.!?)]$/.test(text) ? text : `${text}.`;
}

function renderState(title, message, ...buttons) {
  const children = [h('h2', {}, title), h('p', {}, message)];
  if (buttons.length > 0) {
    children.push(h('div', { class: 'actions' }, ...buttons.map(([name, run], i) => h('button', { type: 'button', class: i === 0 ? 'primary' : undefined, onclick: run }, name))));
  }
  $('state').replaceChildren(...children);
}

// clear removes everything that was loaded.
export function clear() {
  list.running.abort();
  list.pages = [];
  list.plants = [];
  list.next = null;
  list.loaded = false;
  $('rows').replaceChildren();
  $('tags').replaceChildren();
  $('state').replaceChildren();
  $('count').textContent = '';
}

// freeID suggests an id for a new plant: the one after the last plant, if that is on this
// page.
export function freeID() {
  if (!list.loaded || filtered() || list.next) {
    return '';
  }
  const last = list.plants.at(-1);
  if (!last) {
    return list.pages.length === 1 ? '1' : '';
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
