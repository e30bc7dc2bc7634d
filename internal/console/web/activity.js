// The page of activity: who did what, and how much of it when. It follows the log of changes.

import { handled, listEvents, names } from './api.js';
import { chart } from './chart.js';
import { $, h, value, when } from './dom.js';
import { follow } from './feed.js';
import { PLANT_EVENTS, count, happened, plural, sentence, shorten, time } from './format.js';
import { state } from './route.js';
import { format } from './state.js';

/** @type {Record<string, [string, number]>} */
const RANGES = { '15m': ['15 minutes', 900], '1h': ['hour', 3600], '24h': ['24 hours', 86_400], '7d': ['7 days', 604_800] };
const BARS = 60;
const HEIGHT = 112;
const PAGES = 20; // of 1000 events
const ROWS = 200;

/** @typedef {import('./feed.js').LogEvent} LogEvent */

const log = {
  query: '', // what is shown
  range: '1h',
  start: 0, // of the chart, in milliseconds
  length: 0,
  /** @type {Map<string, number[]>} */
  counts: new Map(), // by type, an array of the number of events in each bar
  /** @type {LogEvent[]} */
  waiting: [], // events that arrived while the user reads further down
  /** @type {Map<string, string>} */
  known: new Map(),
  running: new AbortController(),
};

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Activity',
  show(root, { type, range }) {
    const query = `${type} ${range}`;
    if (root.firstChild && log.query === query) {
      return;
    }
    log.query = query;
    mount(root, RANGES[range] ? range : '1h', type);
    load();
  },
  refresh: () => load(),
  hide() {
    log.running.abort();
    log.query = '';
    log.counts = new Map();
    log.waiting = [];
  },
};

function mount(/** @type {HTMLElement} */ root, /** @type {string} */ range, /** @type {string} */ type) {
  log.range = range;
  log.length = RANGES[range][1] * 1000;
  const choice = (/** @type {string} */ name) => h('a', { href: format({ page: 'activity', type, range: name }), 'aria-current': name === range ? 'true' : undefined }, name);
  root.replaceChildren(
    h(
      'div',
      { class: 'toolbar' },
      h('h1', { id: 'activity-title', tabindex: '-1' }, 'Activity'),
      h('nav', { class: 'choices', 'aria-label': 'Period' }, ...Object.keys(RANGES).map(choice)),
    ),
    h('figure', { class: 'history-chart' }, h('figcaption', { id: 'activity-types', class: 'choices' }), h('div', { id: 'activity-chart' })),
    h('p', { id: 'activity-status', class: 'hint', role: 'status' }),
    h('button', { id: 'activity-news', class: 'news', hidden: '', onclick: showWaiting }),
    h('table', { id: 'activity', 'aria-labelledby': 'activity-title' }, h('thead', {}, h('tr', {}, ...['When', 'Who', 'What', 'Plant or token'].map((name) => h('th', { scope: 'col' }, name)))), h('tbody', { id: 'events' })),
  );
}

// load reads the events of the period, and then follows the log.
async function load() {
  log.running.abort();
  log.running = new AbortController();
  const { signal } = log.running;
  const { type } = state();
  log.start = Date.now() - log.length;
  log.counts = new Map();
  log.waiting = [];
  $('activity-status').textContent = 'Loading…';
  draw();
  try {
    log.known = await names();
    /** @type {LogEvent[]} */
    let latest = [];
    let cursor = '';
    /** @type {string | null} */
    let query = `?${new URLSearchParams({ since: new Date(log.start).toISOString(), limit: '1000', ...(type && { type }) })}`;
    for (let i = 0; query && i < PAGES; i++) {
      const response = await listEvents(query, { signal });
      response.events.forEach(tally);
      latest = [...latest, ...response.events].slice(-ROWS);
      ({ cursor, next: query } = response);
      draw();
    }
    $('events').replaceChildren(...latest.reverse().map(row));
    $('activity').hidden = latest.length === 0;
    $('activity-status').textContent = status(latest, query);
    if (!query) {
      follow({ after: cursor }, signal, (events) => arrive(events.filter((event) => !type || event.type === type)), load);
    }
  } catch (err) {
    if (!handled(err)) {
      $('activity-status').textContent = sentence(err.message);
    }
  }
}

function status(/** @type {LogEvent[]} */ latest, /** @type {string | null} */ more) {
  if (latest.length === 0) {
    return `No changes in the last ${RANGES[log.range][0]}.`;
  }
  return more ? `There are more changes than fit here. These go up to ${time(latest[0].time)}: choose a shorter period for the latest.` : '';
}

function tally(/** @type {LogEvent} */ { type, time: at }) {
  const bar = Math.floor(((Date.parse(at) - log.start) / log.length) * BARS);
  const bars = log.counts.get(type) ?? new Array(BARS).fill(0);
  bars[Math.max(0, Math.min(BARS - 1, bar))]++;
  log.counts.set(type, bars);
}

// arrive shows new events at the top, or announces them if the user reads further down.
function arrive(/** @type {LogEvent[]} */ events) {
  events.forEach(tally);
  draw();
  log.waiting = [...log.waiting, ...events].slice(-ROWS);
  if (scrollY < 100) {
    showWaiting();
    return;
  }
  $('activity-news').hidden = log.waiting.length === 0;
  $('activity-news').textContent = `${log.waiting.length === ROWS ? 'More than ' : ''}${plural(log.waiting.length, 'new change')}. Show`;
}

function showWaiting() {
  const rows = log.waiting.reverse().map(row);
  log.waiting = [];
  $('activity-news').hidden = true;
  $('activity').hidden = false;
  $('activity-status').textContent = '';
  $('events').prepend(...rows);
  for (const old of [...$('events').children].slice(ROWS)) {
    old.remove();
  }
}

function row(/** @type {LogEvent} */ event) {
  const { plant, token } = event;
  const subject = plant
    ? [h('a', { href: format({ page: 'plants', id: plant.id }) }, plant.id), ' ', value(shorten(plant.name, 120)), ...(plant.tag ? [' ', h('span', { class: 'tag' }, shorten(plant.tag, 60))] : [])]
    : [token ? shorten(token.name ?? token.subject ?? token.id, 120) : ''];
  return h('tr', {}, h('td', {}, when(event.time)), h('td', {}, log.known.get(event.by) ?? event.by), h('td', {}, happened(event)), h('td', {}, ...subject));
}

// draw draws the number of changes over time, each type in its colour, and the choice of
// types.
function draw() {
  const { type, range } = state();
  const types = [...log.counts.keys()].sort();
  const bars = (/** @type {string} */ name) => log.counts.get(name) ?? [];
  const sum = types.reduce((n, name) => n + bars(name).reduce((x, y) => x + y, 0), 0);
  const title = (/** @type {number} */ i) => `${time(log.start + (i * log.length) / BARS)}: ${types.map((name) => `${count(bars(name)[i])} ${happened({ type: name }).toLowerCase()}`).join(', ') || 'no changes'}`;
  $('activity-chart').replaceChildren(chart({
    label: `${count(sum)} changes`,
    series: types.length > 0 ? types.map((name) => ({ class: name.replace('.', '-'), values: bars(name) })) : [{ class: '', values: Array(BARS).fill(0) }],
    titles: title,
    scale: 'log',
    height: HEIGHT,
    axis: [time(log.start), time(log.start + log.length)],
  }));
  const all = [...new Set([...PLANT_EVENTS, ...types, ...(type ? [type] : [])])];
  const choice = (/** @type {string} */ name, /** @type {string} */ label, /** @type {number} */ n) => h('a', { href: format({ page: 'activity', type: name, range }), 'aria-current': name === type ? 'true' : undefined }, h('span', { class: `dot ${name.replace('.', '-')}` }), label, ...(n ? [` ${count(n)}`] : []));
  $('activity-types').replaceChildren(choice('', 'All', 0), ...all.map((name) => choice(name, happened({ type: name }), bars(name).reduce((a, b) => a + b, 0))));
}
