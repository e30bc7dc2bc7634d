// The rows of the table of plants. They are one stop of the Tab key; within it j, k and the arrows move.

import { allows } from './api.js';
import { $, h, visible, when } from './dom.js';
import { hue, shorten } from './format.js';
import { list, setCurrent } from './list.js';
import { go, memory, state } from './route.js';
import { extend, toggle } from './selection.js';
import { format } from './state.js';

/** @typedef {import('./api.js').Plant} Plant */

export const newPlant = () => go({ ...state(), id: 'new' }, { memory: memory() });

/** openPlant opens a plant beside the list. @param {string} id @param {string} [q] */
export const openPlant = (id, q = state().q) => go({ ...state(), q, id }, { memory: q === state().q ? memory() : null });

// How each row looked when it was drawn.
/** @type {WeakMap<Element, string>} */
const drawn = new WeakMap();

/** @type {(id: string | undefined) => HTMLElement | null} */
const linkOf = (id) => (id ? document.querySelector(`#rows tr[data-id="${id}"] a.name`) : null);

export function mountRows() {
  $('rows').addEventListener('click', clickRow);
  $('rows').addEventListener('keydown', pressInRow);
  $('rows').addEventListener('focusin', (/** @type {any} */ event) => setCurrent(event.target.closest('tr').dataset.id));
}

/** renderRows keeps the rows that have not changed, so that no click on them is lost. */
export function renderRows() {
  if (list.loaded !== list.query) {
    return; // the rows of the page before stay until the next one is there
  }
  const rows = $('rows');
  const focused = rows.contains(document.activeElement);
  const looks = list.plants.map(look);
  [...rows.children].filter((tr) => !looks.includes(drawn.get(tr) ?? '')).forEach((tr) => tr.remove());
  const writes = allows('plants:write');
  let next = rows.firstElementChild;
  list.plants.forEach((plant, i) => {
    const tr = next?.getAttribute('data-id') === plant.id ? next : rows.insertBefore(row(plant, writes), next);
    drawn.set(tr, looks[i]);
    markRow(tr, plant.id);
    next = tr.nextElementSibling;
  });
  $('plants').hidden = list.plants.length === 0;
  if (focused && !rows.contains(document.activeElement)) {
    focusRow(list.current);
  }
}

function markRow(/** @type {Element} */ tr, /** @type {string} */ id) {
  tr.classList.toggle('fresh', list.changed.has(id));
  tr.classList.toggle('deleted', list.deleted.has(id));
  tr.classList.toggle('open', id === state().id);
  tr.querySelectorAll('a').forEach((link) => { link.tabIndex = id === list.current ? 0 : -1; });
  tr.querySelectorAll('input').forEach((pick) => { pick.checked = list.selected.has(id); });
}

const look = (/** @type {Plant} */ { id, name, tag, updated }) => JSON.stringify([format({ ...state(), id }), name, tag, updated]);

function row(/** @type {Plant} */ { id, name, tag, updated }, /** @type {boolean} */ writes) {
  const title = name.length > 40 && shorten(name, 1000);
  const text = name === '' ? h('span', { class: 'blank' }, 'empty') : visible(shorten(name, 300));
  const link = h('a', { class: 'name', dir: 'auto', href: format({ ...state(), id }), title }, text);
  const pick = h('input', { type: 'checkbox', tabindex: '-1', 'aria-label': `Select plant ${id}` });
  pick.hidden = !writes;
  return h('tr', { role: 'row', 'data-id': id },
    h('td', { role: 'cell', class: 'pick' }, h('label', {}, pick)),
    h('td', { role: 'cell', class: 'id' }, id),
    h('td', { role: 'cell', class: 'name-cell' }, link),
    h('td', { role: 'cell', class: 'tag-cell' }, tagCell(tag)),
    h('td', { role: 'cell', class: 'updated' }, updated ? when(updated) : h('span', { class: 'blank', 'aria-label': 'unknown' }, '–')),
  );
}

function tagCell(/** @type {string | undefined} */ tag) {
  if (!tag) {
    return h('span', { 'class': 'blank', 'aria-label': tag === undefined && 'no tag' }, tag === undefined ? '–' : 'empty');
  }
  const only = `Only plants tagged ${shorten(tag, 60)}`;
  const onclick = () => go({ ...state(), tags: [tag], untagged: '', after: '' });
  const text = h('span', { dir: 'auto' }, ...visible(shorten(tag, 80)));
  return h('button', { 'class': 'tag', 'data-hue': hue(tag), 'tabindex': '-1', 'title': only, 'aria-label': only, onclick }, text);
}

function clickRow(/** @type {any} */ event) {
  const id = event.target.closest('tr')?.dataset.id;
  if (event.target.closest('.pick')) {
    if (!event.target.matches('input')) {
      event.preventDefault(); // browsers differ in what a label does with Shift
    }
    if (allows('plants:write')) {
      toggle(id, event.shiftKey);
    }
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
    const from = list.current;
    move(step);
    if (event.shiftKey && list.current !== from && allows('plants:write')) {
      extend(from, list.current);
    }
  }
  if (event.key === ' ' && event.target.matches('a.name') && allows('plants:write')) {
    event.preventDefault();
    toggle(list.current, event.shiftKey);
  }
}

// move goes to the next or the previous row. If a plant is open beside the list, it opens
// that of the row instead.
export function move(/** @type {number} */ step) {
  const focused = $('rows').contains(document.activeElement) || state().id !== '';
  const at = list.plants.findIndex(({ id }) => id === (state().id || list.current));
  const plant = list.plants[focused ? at + step : Math.max(at, 0)];
  if (plant && (!state().id || go({ ...state(), id: plant.id }, { replace: true, memory: memory() }))) {
    focusRow(plant.id);
  }
  return true;
}

/** revealRow scrolls to a plant's row. @param {string} id */
export const revealRow = (id) => linkOf(id)?.closest('tr')?.scrollIntoView({ block: 'nearest' });

/** focusRow moves the focus to a plant's row, or to the title if there is none. @param {string | undefined} id */
export function focusRow(id) {
  const link = linkOf(id);
  if (link && id) {
    setCurrent(id);
  }
  (link ?? document.getElementById('plants-title'))?.focus();
}
