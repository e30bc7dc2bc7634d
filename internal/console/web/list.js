// The list of plants without its looks: what is wanted, loaded, selected and live. Who draws
// it subscribes to it. It touches no DOM.

import { about, aborted, allows, listPlants, listTags } from './api.js';
import { follow } from './feed.js';
import { hasWords } from './format.js';
import { wholeNumber } from './state.js';

const PAGE = 50;
const OVERLAP = 5000; // in which a change may arrive before or after the table that has it
const FADE = 10_000; // after which a changed plant is no longer marked
const COUNTED = 1000; // matches of a search
const REQUESTS = 10; // to count them: a search in a large store takes its time
const LARGE_PAGE = 1000;
export const MOST = 10_000; // plants that can be selected at once

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {import('./feed.js').LogEvent} LogEvent
 *
 * @typedef {object} List what others read and only this module changes
 * @property {string} q the plants that are wanted: words in their name
 * @property {string} tag
 * @property {string} after an id before all of them
 * @property {number | null} before how many plants are on the pages before, if that is known
 * @property {string} query of the page that is wanted, or empty if there is none
 * @property {string} loaded the query of plants
 * @property {Plant[]} plants
 * @property {string | null} next the query of the next page
 * @property {'' | 'loading' | 'slow' | 'searching'} status
 * @property {any} failure why plants is empty
 * @property {bigint | null} total of all plants, if the server says so
 * @property {string} current the id of the row that has the focus, or will get it
 * @property {{n: number, more: boolean} | null} matches how many plants match the filters, as far as they are counted
 * @property {Map<string, Plant>} selected by id
 * @property {number | null} selecting how many plants have been found so far to select them all
 * @property {Set<string>} created ids of plants that belong to this page, but are not on it yet
 * @property {Set<string>} changed ids of plants that have changed a moment ago
 * @property {Set<string>} deleted ids of plants that are on this page, but no longer in the store
 */

/** @returns {List} */
const nothing = () => ({
  q: '',
  tag: '',
  after: '',
  before: 0,
  query: '',
  loaded: '',
  plants: [],
  next: null,
  status: '',
  failure: null,
  total: null,
  current: '',
  matches: null,
  selected: new Map(),
  selecting: null,
  created: new Set(),
  changed: new Set(),
  deleted: new Set(),
});

export const list = nothing();

/** @type {Set<(events: LogEvent[]) => void>} */
const subscribers = new Set();

/**
 * subscribe calls draw whenever the list changes, with the events of others that changed it,
 * if it was they.
 * @param {(events: LogEvent[]) => void} draw
 */
export const subscribe = (draw) => subscribers.add(draw);

const notify = (/** @type {LogEvent[]} */ events = []) => subscribers.forEach((draw) => draw(events));

const work = { // what runs
  load: new AbortController(),
  select: new AbortController(),
  feed: new AbortController(),
  following: false,
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  counting: undefined,
  /** @type {Map<string, ReturnType<typeof setTimeout>>} */
  fading: new Map(), // by the ids of list.changed
  /** @type {{at: number, events: LogEvent[]}[]} */
  recent: [], // the last changes
  done: Promise.resolve(),
  anchor: '', // the id of the plant where a range of the selection begins
};

/**
 * show loads the page of plants, unless it is the one that is wanted already. Another search
 * forgets the selection. White space alone is no search. It reports whether it loads.
 * @param {{q: string, tag: string, after: string, before: number | null}} wanted
 */
export function show({ q: text, tag, after, before }) {
  const q = text.trim() && text;
  const search = new URLSearchParams({ limit: String(PAGE), ...(after && { after }), ...(q && { q }), ...(tag && { tag }) });
  const query = `?${search}`;
  list.before = before;
  if (query === list.query) {
    return false;
  }
  if (q !== list.q || tag !== list.tag) {
    work.select.abort();
    Object.assign(list, { matches: null, selected: new Map() });
  }
  Object.assign(list, { q, tag, after, query, current: '' });
  reload();
  return true;
}

/** close forgets the list and stops what runs. */
export function close() {
  work.load.abort();
  work.select.abort();
  work.feed.abort();
  clearTimeout(work.counting);
  work.fading.forEach((timer) => clearTimeout(timer));
  Object.assign(work, { following: false, counting: undefined, fading: new Map(), recent: [], anchor: '' });
  Object.assign(list, nothing());
}

/** filters returns the query parameters of the search. @returns {{q?: string, tag?: string}} */
export const filters = () => ({ ...(list.q && { q: list.q }), ...(list.tag && { tag: list.tag }) });

export const filtered = () => list.q !== '' || list.tag !== '';

/** loaded returns when the page that is wanted has been loaded. */
export const loaded = () => work.done;

/**
 * reload loads the page again, and aborts a reload in progress. It marks the plant that the
 * user has changed. It does nothing if no page is wanted.
 * @param {{changed?: string}} [options]
 */
export function reload({ changed } = {}) {
  if (list.query) {
    work.done = load(changed);
  }
  return work.done;
}

async function load(/** @type {string | undefined} */ changed) {
  work.load.abort();
  if (!allows('plants:read')) {
    notify();
    return;
  }
  work.load = new AbortController();
  const { signal } = work.load;
  const began = performance.now();
  list.status = 'loading';
  const reading = readPage(signal);
  notify();
  let date = null;
  try {
    date = await reading;
    list.created = new Set();
    list.deleted = new Set();
    if (changed) {
      mark(changed);
    }
    merge(work.recent.filter(({ at }) => at >= began).flatMap(({ events }) => events)); // the page has the older ones
  } catch (err) {
    if (aborted(err)) {
      return;
    }
    if (list.loaded !== list.query) { // otherwise the plants stay: the server may be back soon
      take([], null);
      list.failure = err;
    }
  }
  list.status = '';
  notify();
  if (date !== null) { // what the rows do not need comes after them
    countAll(signal);
    countMatches(signal);
    watch(date);
  }
}

// readPage reads plants until the page is full or there are no more: the server limits
// the work of one search and may return a partial page. It returns the time of the server.
async function readPage(/** @type {AbortSignal} */ signal) {
  const slow = () => {
    list.status = 'slow';
    notify();
  };
  let next = list.query;
  /** @type {Plant[]} */
  const plants = [];
  for (;;) {
    const response = await listPlants(next, { signal, slow });
    signal.throwIfAborted(); // the response may have been there already
    plants.push(...response.items);
    if (!response.next || plants.length >= PAGE) {
      take(plants, response.next && withLimit(response.next, PAGE));
      return response.date;
    }
    next = withLimit(response.next, PAGE - plants.length);
    take([...plants], next);
    list.status = 'searching';
    notify();
  }
}

// take makes these the plants of the page. Those that have left it are no longer selected.
function take(/** @type {Plant[]} */ plants, /** @type {string | null} */ next) {
  if (list.loaded === list.query) {
    const selected = new Map(list.selected);
    list.plants.forEach(({ id }) => selected.delete(id));
    plants.filter(({ id }) => list.selected.has(id)).forEach((plant) => selected.set(plant.id, plant));
    list.selected = selected;
  }
  Object.assign(list, { plants, next, loaded: list.query, failure: null });
  if (!plants.some(({ id }) => id === list.current)) {
    list.current = plants[0]?.id ?? '';
  }
}

function withLimit(/** @type {string} */ query, /** @type {number} */ limit) {
  const parameters = new URLSearchParams(query);
  parameters.set('limit', String(limit));
  return `?${parameters}`;
}

// countAll asks how many plants there are.
async function countAll(/** @type {AbortSignal} */ signal) {
  try {
    const { plants } = await about({ signal });
    signal.throwIfAborted();
    list.total = plants === undefined ? null : BigInt(plants);
    notify();
  } catch {
    // The number shown stays.
  }
}

// countMatches counts the plants that match the filters: up to COUNTED, and with a bounded
// number of requests.
async function countMatches(/** @type {AbortSignal} */ signal) {
  const last = list.before === null ? null : list.before + list.plants.length;
  if (!filtered() || last === null) {
    return;
  }
  let n = last;
  let { next } = list;
  try {
    if (next && !list.q && last < COUNTED) { // the server counts tags
      const found = (await listTags(list.tag, { signal })).find(({ tag }) => tag === list.tag);
      n = Math.max(n, Number(found?.plants ?? 0));
      next = found?.more ? next : null;
    }
    for (let i = 0; next && list.q && n <= COUNTED && i < REQUESTS; i++) {
      const page = await listPlants(withLimit(next, COUNTED + 1 - n), { signal });
      n += page.items.length;
      next = page.next;
    }
    signal.throwIfAborted();
    list.matches = { n: Math.max(last, Math.min(n, COUNTED)), more: next !== null || n > Math.max(last, COUNTED) };
    notify();
  } catch {
    // The number shown stays.
  }
}

// watch keeps the page up to date. It starts a little before the page was read, by the
// server's clock: to merge a change twice does no harm.
function watch(/** @type {string} */ date) {
  if (work.following || !allows('events:read')) {
    return;
  }
  work.following = true;
  work.feed = new AbortController();
  const from = date ? { since: new Date(Date.parse(date) - OVERLAP).toISOString() } : { after: 'latest' };
  follow(from, work.feed.signal, arrive, () => {
    work.following = false;
    reload();
  });
}

// arrive merges new changes. load repeats those that arrive while it reads the page.
function arrive(/** @type {LogEvent[]} */ events) {
  const now = performance.now();
  work.recent = [...work.recent.filter(({ at }) => now - at < OVERLAP), { at: now, events }];
  merge(events);
  notify(events);
  if (list.plants.length === 0 && list.created.size > 0) {
    reload();
    return;
  }
  work.counting ??= setTimeout(() => {
    work.counting = undefined;
    countAll(work.feed.signal);
    if (!list.q) {
      countMatches(work.feed.signal);
    }
  }, 1000);
}

// merge applies changes to the page. Nothing jumps: no plant comes or goes.
function merge(/** @type {LogEvent[]} */ events) {
  for (const { type, plant } of events.filter((event) => event.plant)) {
    const at = list.plants.findIndex(({ id }) => id === plant.id);
    if (type === 'plant.deleted') {
      list.created.delete(plant.id);
      if (at >= 0) {
        list.deleted.add(plant.id);
      }
    } else if (at >= 0) {
      replace(at, plant);
    } else if (belongs(plant)) {
      list.created.add(plant.id);
    }
  }
}

function replace(/** @type {number} */ at, /** @type {Plant} */ plant) {
  const { name, tag } = list.plants[at];
  list.plants[at] = plant;
  if (list.selected.has(plant.id)) {
    list.selected.set(plant.id, plant);
  }
  if (!list.deleted.delete(plant.id) && name === plant.name && tag === plant.tag) {
    return;
  }
  mark(plant.id);
}

function mark(/** @type {string} */ id) {
  clearTimeout(work.fading.get(id));
  list.changed.add(id);
  work.fading.set(id, setTimeout(() => {
    work.fading.delete(id);
    list.changed.delete(id);
    notify();
  }, FADE));
}

// belongs reports whether a plant would be on this page.
function belongs(/** @type {Plant} */ { id, name, tag }) {
  const last = list.plants.at(-1)?.id;
  return hasWords(name, list.q) && (!list.tag || tag === list.tag)
    && (!list.after || BigInt(id) > BigInt(list.after)) && (!list.next || last === undefined || BigInt(id) < BigInt(last));
}

/** setCurrent makes this the row that has the focus, or will get it. @param {string} id */
export function setCurrent(id) {
  if (id !== list.current) {
    list.current = id;
    notify();
  }
}

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

/**
 * toggle selects a plant of this page, or no longer; with range also those between it and
 * the last one that was toggled.
 * @param {string} id
 * @param {boolean} [range]
 */
export function toggle(id, range = false) {
  const to = position(id);
  const from = range && position(work.anchor) >= 0 ? position(work.anchor) : to;
  work.anchor = id;
  put(list.plants.slice(Math.min(from, to), Math.max(from, to) + 1), !list.selected.has(id));
}

/**
 * extend moves the end of a range of selected plants from one row to the next, and begins a
 * range if there is none.
 * @param {string} from
 * @param {string} to
 */
export function extend(from, to) {
  if (!list.selected.has(from) || position(work.anchor) < 0) {
    work.anchor = from;
  }
  const distance = (/** @type {string} */ id) => Math.abs(position(id) - position(work.anchor));
  const shrinks = distance(to) < distance(from);
  put(list.plants.filter(({ id }) => (shrinks ? id === from : id === from || id === to)), !shrinks);
}

/**
 * selectMatches selects all plants that match the filters, on all pages, up to MOST. The
 * selection stays as it is if that fails or is stopped.
 */
export async function selectMatches() {
  work.select.abort();
  work.select = new AbortController();
  const { signal } = work.select;
  const found = new Map();
  /** @type {string | null} */
  let next = `?${new URLSearchParams({ limit: String(LARGE_PAGE), ...filters() })}`;
  list.selecting = 0;
  notify();
  try {
    while (next && found.size < MOST) {
      const page = await listPlants(next, { signal });
      signal.throwIfAborted();
      page.items.slice(0, MOST - found.size).forEach((plant) => found.set(plant.id, plant));
      next = page.next;
      list.selecting = found.size;
      notify();
    }
    list.selected = found;
  } finally {
    if (work.select.signal === signal) {
      list.selecting = null;
      notify();
    }
  }
}

export const stopSelecting = () => work.select.abort();

/**
 * freeID suggests an id for a new plant: the one after the last plant, if that is on this
 * page.
 */
export function freeID() {
  if (list.loaded !== list.query || filtered() || list.next) {
    return '';
  }
  const last = list.plants.at(-1);
  if (!last) {
    return list.after ? '' : '1';
  }
  return wholeNumber(String(BigInt(last.id) + 1n));
}

/** neighbour returns the id of the plant after this one, or before it if it is the last. @param {string} id */
export function neighbour(id) {
  const at = position(id);
  return (list.plants[at + 1] ?? list.plants[at - 1])?.id ?? '';
}
