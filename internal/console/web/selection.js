// Which plants are selected: some of a page, or all that match the filters. It touches no DOM.

import { listPlants } from './api.js';
import { filters, list, notify, queryOf } from './list.js';
import { renew } from './wait.js';

const LARGE_PAGE = 1000;
export const MOST = 100_000; // plants that can be selected at once

/** @typedef {import('./api.js').Plant} Plant */

let running = new AbortController();
let found = /** @type {number | null} */ (null);

/** selecting returns how many plants have been found so far to select all of them, or null. */
export const selecting = () => found;

/** select selects these plants, and no others. @param {Plant[]} plants */
export function select(plants) {
  list.selected = new Map(plants.map((plant) => [plant.id, plant]));
  notify();
}

// put selects plants of this page, or no longer.
function put(/** @type {Plant[]} */ plants, /** @type {boolean} */ on) {
  for (const plant of plants) {
    if (on) {
      list.selected.set(plant.id, plant);
    } else {
      list.selected.delete(plant.id);
    }
  }
  notify();
}

/** selectPage selects all plants of this page, or none of them. @param {boolean} on */
export const selectPage = (on) => put(list.plants, on);

const position = (/** @type {string} */ id) => list.plants.findIndex((plant) => plant.id === id);

// toggle selects a plant of this page, or no longer; with range also those between it and
// the last one that was toggled.
export function toggle(/** @type {string} */ id, range = false) {
  const to = position(id);
  const from = range && position(list.anchor) >= 0 ? position(list.anchor) : to;
  list.anchor = id;
  put(list.plants.slice(Math.min(from, to), Math.max(from, to) + 1), !list.selected.has(id));
}

// extend moves the end of a range of selected plants from one row to the next, and begins a
// range if there is none.
export function extend(/** @type {string} */ from, /** @type {string} */ to) {
  if (!list.selected.has(from) || position(list.anchor) < 0) {
    list.anchor = from;
  }
  const distance = (/** @type {string} */ id) => Math.abs(position(id) - position(list.anchor));
  const shrinks = distance(to) < distance(from);
  put(list.plants.filter(({ id }) => (shrinks ? id === from : id === from || id === to)), !shrinks);
}

/**
 * selectMatches selects all plants that match the filters, on all pages, up to MOST. The
 * selection stays as it is if that fails or is stopped, or if the filters change meanwhile.
 */
export async function selectMatches() {
  running = renew(running);
  const { signal } = running;
  const wanted = `${filters()}`;
  const all = new Map();
  /** @type {string | null} */
  let next = queryOf({ limit: `${LARGE_PAGE}` });
  found = 0;
  notify();
  try {
    while (next && all.size < MOST) {
      const page = await listPlants(next, { signal });
      signal.throwIfAborted();
      if (`${filters()}` !== wanted) {
        return;
      }
      page.items.slice(0, MOST - all.size).forEach((plant) => all.set(plant.id, plant));
      next = page.next;
      found = all.size;
      notify();
    }
    list.selected = all;
  } finally {
    if (running.signal === signal) {
      found = null;
      notify();
    }
  }
}

export const stopSelecting = () => running.abort();
