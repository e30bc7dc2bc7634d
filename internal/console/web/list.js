// The list of plants without its looks: what is wanted, loaded and live. Who draws it subscribes
// to it. It touches no DOM. Which plants are selected is in selection.js.

import { about, aborted, allows, listPlants } from './api.js';
import { follow } from './feed.js';
import { merge } from './merge.js';
import { wholeNumber } from './state.js';
import { renew } from './wait.js';

const PAGE = 50;
const OVERLAP = 5000; // in which a change may arrive before or after the table that has it
const FADE = 10_000; // after which a changed plant is no longer marked

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {import('./feed.js').LogEvent} LogEvent
 * @typedef {ReturnType<typeof nothing>} List what others read and only this module changes
 */

const nothing = () => ({
  q: '', // the plants that are wanted: words in their name
  tags: /** @type {string[]} */ ([]),
  untagged: '',
  order: '',
  after: '', // a position before all of them
  before: /** @type {number | null} */ (0), // how many plants are on the pages before, if that is known
  query: '', // of the page that is wanted, or empty if there is none
  loaded: '', // the query of plants
  plants: /** @type {Plant[]} */ ([]),
  next: /** @type {string | null} */ (null), // the query of the next page
  status: /** @type {'' | 'loading' | 'slow' | 'searching'} */ (''),
  failure: /** @type {any} */ (null), // why plants is empty
  total: /** @type {bigint | null} */ (null), // of all plants, if the server says so
  current: '', // the id of the row that has the focus, or will get it
  /** @type {{n: number, more: boolean} | null} */
  matches: null, // how many plants match the filters, as far as they are counted
  searched: /** @type {number | null} */ (null), // percentage of the ids in the store, if it is known
  selected: /** @type {Map<string, Plant>} */ (new Map()), // by id
  anchor: '', // the id of the plant where a range of the selection begins
  created: /** @type {Set<string>} */ (new Set()), // ids of plants that belong to this page, but are not on it yet
  changed: /** @type {Set<string>} */ (new Set()), // ids of plants that have changed a moment ago
  deleted: /** @type {Set<string>} */ (new Set()), // ids of plants that are on this page, but no longer in the store
});

export const list = nothing();

const subscribers = /** @type {Set<(events: LogEvent[]) => void>} */ (new Set());

// subscribe calls draw whenever the list changes, with the events of others that changed it, if it was they.
export const subscribe = (/** @type {(events: LogEvent[]) => void} */ draw) => subscribers.add(draw);

export const notify = (/** @type {LogEvent[]} */ events = []) => subscribers.forEach((draw) => draw(events));

/** @typedef {ReturnType<typeof setTimeout>} Timer */

const work = { // what runs
  load: new AbortController(),
  feed: new AbortController(),
  following: false,
  counting: /** @type {Timer | undefined} */ (undefined),
  fading: /** @type {Map<string, Timer>} */ (new Map()), // by the ids of list.changed
  recent: /** @type {{at: number, events: LogEvent[]}[]} */ ([]), // the last changes
  done: Promise.resolve(),
};

// show loads the page of plants, unless it is the one that is wanted already. Another search
// forgets the selection. White space alone is no search. It reports whether it loads.
/** @type {(wanted: Pick<List, 'q' | 'tags' | 'untagged' | 'order' | 'after' | 'before'>) => boolean} */
export function show({ q, tags, untagged, order, after, before }) {
  const last = `${filters()}`;
  Object.assign(list, { q: q.trim() && q, tags, untagged, order, after, before });
  const query = queryOf({ limit: `${PAGE}`, ...(order && { order }), ...(after && { after }) });
  if (query === list.query) {
    return false;
  }
  if (`${filters()}` !== last) {
    Object.assign(list, { matches: null, selected: new Map() });
  }
  Object.assign(list, { query, current: '' });
  reload();
  return true;
}

/** close forgets the list and stops what runs. */
export function close() {
  work.load.abort();
  work.feed.abort();
  clearTimeout(work.counting);
  work.fading.forEach((timer) => clearTimeout(timer));
  Object.assign(work, { following: false, counting: undefined, fading: new Map(), recent: [] });
  Object.assign(list, nothing());
}

/** filters returns the query parameters of the search. */
export function filters() {
  const { q, tags, untagged } = list;
  const all = [...(q ? [['q', q]] : []), ...tags.map((tag) => ['tag', tag]), ...(untagged ? [['untagged', 'true']] : [])];
  return new URLSearchParams(all);
}

export const filtered = () => filters().size > 0;

/** queryOf returns a query for plants that match the filters. @param {Record<string, string>} more parameters */
export const queryOf = (more) => `?${new URLSearchParams([...filters(), ...Object.entries(more)])}`;

/** loaded returns when the page that is wanted has been loaded. */
export const loaded = () => work.done;

// reload loads the page again, and aborts a reload in progress. It marks the plant that the
// user has changed. It does nothing if no page is wanted.
export function reload(/** @type {{changed?: string}} */ { changed } = {}) {
  if (list.query) {
    work.done = load(changed);
  }
  return work.done;
}

async function load(/** @type {string | undefined} */ changed) {
  work.load = renew(work.load);
  if (!allows('plants:read')) {
    notify();
    return;
  }
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
    merge(list, work.recent.filter(({ at }) => at >= began).flatMap(({ events }) => events)).forEach(mark); // the page has the older ones
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
    recount(signal);
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
  list.searched = null;
  const plants = /** @type {Plant[]} */ ([]);
  let ends = /** @type {Promise<bigint[]> | null} */ (null);
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
    ends ??= readEnds(signal);
    list.searched = share(await ends, next);
    notify();
  }
}

// readEnds returns the first and the last id of the store, in the order of the list.
async function readEnds(/** @type {AbortSignal} */ signal) {
  const orders = list.order === '-id' ? ['-id', 'id'] : ['id', '-id'];
  const pages = await Promise.all(orders.map((order) => listPlants(`?limit=1&order=${order}`, { signal })));
  return pages.flatMap(({ items }) => items.map(({ id }) => BigInt(id)));
}

/** share returns which percentage of the ids is before a position. @param {bigint[]} ends @param {string} query */
function share([first, last], query) {
  const at = wholeNumber(new URLSearchParams(query).get('after') ?? '');
  return at && first !== last ? Math.min(Math.max(Number((BigInt(at) - first) * 100n / (last - first)), 0), 100) : null;
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

// recount counts the plants, and those that match. If that fails, the numbers that are shown stay.
function recount(/** @type {AbortSignal} */ signal, matches = true) {
  countAll(signal).catch(() => {});
  if (matches && filtered()) {
    countMatches(signal).catch(() => {});
  }
}

// countAll asks how many plants there are.
async function countAll(/** @type {AbortSignal} */ signal) {
  const { plants } = await about({ signal });
  signal.throwIfAborted();
  list.total = plants === undefined ? null : BigInt(plants);
  notify();
}

// countMatches counts the plants that match the filters: all of them are here, or the server counts.
async function countMatches(/** @type {AbortSignal} */ signal) {
  if (!list.next && list.before !== null) {
    list.matches = { n: list.before + list.plants.length, more: false };
  } else {
    const { total } = await listPlants(queryOf({ limit: '1', count: 'true' }), { signal });
    signal.throwIfAborted();
    list.matches = total === '?' ? null : { n: Number.parseInt(total, 10), more: total.endsWith('+') };
  }
  notify();
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
  merge(list, events).forEach(mark);
  notify(events);
  if (list.plants.length === 0 && list.created.size > 0) {
    reload();
    return;
  }
  work.counting ??= setTimeout(() => {
    work.counting = undefined;
    recount(work.feed.signal, !list.q);
  }, 1000);
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

/** setCurrent makes this the row that has the focus, or will get it. @param {string} id */
export function setCurrent(id) {
  if (id !== list.current) {
    list.current = id;
    notify();
  }
}

/**
 * freeID suggests an id for a new plant: the one after the last plant, if that is on this
 * page.
 */
export function freeID() {
  if (list.loaded !== list.query || filtered() || list.order || list.next) {
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
  const at = list.plants.findIndex((plant) => plant.id === id);
  return (list.plants[at + 1] ?? list.plants[at - 1])?.id ?? '';
}
