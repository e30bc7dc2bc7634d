// The page of activity: how many changes there were over time, and who did what, newest first.

import { allows, handled, histogram, names } from './api.js';
import { chart } from './chart.js';
import { $, h, value, when } from './dom.js';
import { follow, readBack } from './feed.js';
import { EVENT_TYPES, count, happened, plural, sentence, shorten, time } from './format.js';
import { go, state } from './route.js';
import { format, wholeNumber } from './state.js';
import { poll, retry } from './wait.js';

// The periods of the chart: the seconds of a bar, and how many bars.
/** @type {Record<string, [number, number]>} */
const RANGES = { '15m': [15, 60], '1h': [60, 60], '24h': [1800, 48], '7d': [10_800, 56] };
const USUAL = '1h';
const period = (/** @type {string} */ name) => (Object.hasOwn(RANGES, name) ? name : USUAL);
const HEIGHT = 124;
const REDRAW = 2000;
const ROWS = 200;
const RELOAD = 500; // milliseconds until the rows are read again if there are too many to follow
const RETRY = 5000; // and after a failure
const SKEW = 3000; // of clocks, which is ignored

/** @typedef {import('./feed.js').LogEvent} LogEvent */

const log = {
  key: '', // what of the state is shown
  /** @type {LogEvent[]} */
  events: [], // in the rows, newest first
  older: '', // the cursor before which there are more, or empty
  missed: 0, // how many newer events are not in the rows
  /** @type {Map<string, string>} */
  known: new Map(),
  running: new AbortController(), // the rows
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  again: undefined, // reads the rows again
  drawing: new AbortController(), // the chart
};

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Activity',
  show(root) {
    if (!root.firstChild) {
      mount(root);
    }
    const { type, plant, by, after, range } = state();
    const key = JSON.stringify([type, plant, by, after]);
    mark();
    if (log.key !== key) {
      log.key = key;
      load();
    }
    if ($('activity-chart').dataset.range !== range) {
      $('activity-chart').dataset.range = range;
      watch();
    }
  },
  refresh() {
    load();
    watch();
  },
  hide() {
    stop();
    log.drawing.abort();
    log.key = '';
    log.events = [];
  },
};

function mount(/** @type {HTMLElement} */ root) {
  const types = ['', ...EVENT_TYPES.filter((name) => name.startsWith('plant.') || allows('tokens:read'))];
  const choice = (/** @type {string} */ key, /** @type {string} */ name, /** @type {(Node | string)[]} */ ...words) => (
    h('a', { [`data-${key}`]: name }, ...words));
  const columns = ['When', 'Who', 'What', 'Plant or token'];
  const onsubmit = (/** @type {Event} */ event) => event.preventDefault();
  root.append(
    h('div', { class: 'toolbar' },
      h('h1', { id: 'activity-title', tabindex: '-1' }, 'Activity'),
      h('nav', { class: 'choices', 'aria-label': 'Period' }, ...Object.keys(RANGES).map((name) => choice('range', name, name))),
    ),
    h('figure', { class: 'history-chart' },
      h('div', { id: 'activity-chart', 'data-range': 'none' }),
      h('figcaption', { id: 'activity-total', class: 'hint' }, 'Loading…'),
    ),
    h('form', { class: 'finder', role: 'search', 'aria-label': 'Find changes', onsubmit },
      h('nav', { class: 'choices', 'aria-label': 'Type of change' }, ...types.map((name) => (
        choice('type', name, h('span', { class: `dot ${name.replace('.', '-')}` }), name ? happened({ type: name }) : 'All')))),
      h('input', {
        id: 'activity-plant',
        type: 'search',
        inputmode: 'numeric',
        'aria-label': 'Plant ID',
        'aria-describedby': 'activity-status',
        placeholder: 'Plant ID',
        autocomplete: 'off',
        onchange: findPlant,
        onsearch: findPlant,
      }),
      h('select', {
        id: 'activity-by',
        'aria-label': 'Who',
        onchange: (/** @type {any} */ { target }) => go({ ...state(), after: '', by: target.value }),
      }),
    ),
    h('table', { id: 'activity', 'aria-labelledby': 'activity-title', onmouseleave: release, onfocusout: release }, h('thead', {},
      h('tr', {}, ...columns.map((name) => h('th', { scope: 'col' }, name))),
    ), h('tbody', { id: 'events' })),
    h('div', { class: 'pager' },
      h('p', { id: 'activity-status', role: 'status' }),
      h('div', { role: 'status' }, h('button', { id: 'activity-news', class: 'news', hidden: '', onclick: newest })),
      h('nav', { 'aria-label': 'Pages of changes' },
        h('button', { id: 'activity-newest', onclick: newest }, 'Newest'),
        h('button', { id: 'activity-older', onclick: older }, 'Older'),
      ),
    ),
  );
}

// mark shows the state in the choices.
function mark() {
  const { type, plant, range } = state();
  const current = { type, range: period(range) };
  for (const key of /** @type {const} */ (['type', 'range'])) {
    for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(`.choices [data-${key}]`))) {
      const name = link.dataset[key] ?? '';
      link.href = format({ ...state(), ...(key === 'type' && { after: '' }), [key]: name });
      link.ariaCurrent = name === current[key] ? 'true' : null;
    }
  }
  const field = $('activity-plant', HTMLInputElement);
  field.value = plant;
  field.ariaInvalid = null;
}

// people fills the choice of who: those who are known, and those in the rows.
function people() {
  const { by } = state();
  const ids = new Set([...log.known.keys(), ...log.events.map((event) => event.by), ...(by ? [by] : [])]);
  const name = (/** @type {string} */ id) => shorten(log.known.get(id) ?? id, 60);
  const { compare } = new Intl.Collator();
  const sorted = [...ids].sort((a, b) => compare(name(a), name(b)));
  const choice = $('activity-by', HTMLSelectElement);
  choice.replaceChildren(h('option', { value: '' }, 'Everyone'), ...sorted.map((id) => h('option', { value: id }, name(id))));
  choice.value = by;
}

function findPlant(/** @type {any} */ { target }) {
  const plant = wholeNumber(target.value);
  if (target.value.trim() && !plant) {
    target.ariaInvalid = 'true';
    $('activity-status').textContent = 'The ID of a plant is a whole number, such as 42.';
    return;
  }
  go({ ...state(), after: '', plant });
}

// newest shows the newest events, from the top.
function newest() {
  scrollTo(0, 0);
  if (state().after) {
    go({ ...state(), after: '' });
    return;
  }
  load();
}

function older() {
  scrollTo(0, 0);
  go({ ...state(), after: log.older });
}

// stop ends reading and following.
function stop() {
  clearTimeout(log.again);
  log.running.abort();
}

// load reads the rows, and then follows the log if they are the newest.
async function load() {
  stop();
  log.running = new AbortController();
  const { signal } = log.running;
  const { type, plant, by, after } = state();
  const filter = { ...(type && { type }), ...(plant && { id: plant }), ...(by && { by }) };
  $('activity').ariaBusy = 'true';
  try {
    log.known = await names();
    const found = await readBack(filter, after, ROWS, signal);
    fill(found.events, found.older);
    people();
    if (!after) {
      follow({ after: found.events[0]?.cursor ?? found.start }, signal, arrive, load, filter);
    }
  } catch (err) {
    if (handled(err)) {
      return;
    }
    fill([], '');
    $('activity-status').textContent = err.status === 410 ? 'These changes are no longer kept.' : sentence(err.message);
    retry(signal, RETRY, err, load);
  } finally {
    if (!signal.aborted) {
      $('activity').ariaBusy = null;
    }
  }
}

// fill shows these events, instead of those in the rows.
function fill(/** @type {LogEvent[]} */ events, /** @type {string} */ before) {
  Object.assign(log, { events, older: before, missed: 0 });
  $('events').replaceChildren(...events.map(row));
  show();
}

// reading reports whether the user reads, points at or works with the rows, which must not move then.
const reading = () => scrollY >= 100 || $('activity').matches(':hover, :focus-within');

// release goes on when the user has left the rows.
function release(/** @type {MouseEvent | FocusEvent} */ { relatedTarget: to }) {
  const stays = to instanceof Node && [$('activity'), $('activity-news')].some((part) => part.contains(to));
  if (log.missed > 0 && !stays && !reading()) {
    load();
  }
}

// arrive shows new events at the top, or announces them while the user reads. If there are more
// than it can show, it reads the newest ones instead of following.
function arrive(/** @type {LogEvent[]} */ events) {
  if (log.missed > 0 || reading()) {
    log.missed += events.length;
    if (log.missed > ROWS) {
      stop();
    }
    show();
    return;
  }
  if (events.length > ROWS) {
    stop();
    log.again = setTimeout(load, RELOAD);
    return;
  }
  const fresh = events.reverse();
  const all = [...fresh, ...log.events];
  log.events = all.slice(0, ROWS);
  log.older = all.length > ROWS ? log.events[ROWS - 1].cursor : log.older;
  $('events').prepend(...fresh.map(row));
  for (const old of [...$('events').children].slice(ROWS)) {
    old.remove();
  }
  show();
}

// show shows what there is besides the rows.
function show() {
  const { type, plant, by, after } = state();
  const { events, older, missed } = log;
  const filtered = type || plant || by;
  const none = filtered ? 'No change matches' : 'There are no changes';
  const where = older ? ' among those searched so far: go on with Older' : after ? ' that are older' : '';
  $('activity').hidden = events.length === 0;
  const some = `${plural(events.length, 'change')}${older ? ' and older ones' : ''}`;
  $('activity-status').textContent = events.length === 0 ? `${none}${where}.` : some;
  $('activity-news').hidden = missed === 0;
  $('activity-news').textContent = `${missed > ROWS ? `More than ${count(ROWS)} new changes` : plural(missed, 'new change')}. Show`;
  $('activity-newest').hidden = !after;
  $('activity-older', HTMLButtonElement).disabled = !older;
  $('activity-older').hidden = !older && !after;
}

function row(/** @type {LogEvent} */ event) {
  const { plant, token, by } = event;
  const subject = plant
    ? [
      h('a', { href: format({ page: 'plants', id: plant.id }) }, plant.id),
      ' ',
      value(shorten(plant.name, 120)),
      ...(plant.tag ? [' ', h('span', { class: 'tag' }, shorten(plant.tag, 60))] : []),
    ]
    : [token ? shorten(token.name ?? token.subject ?? token.id, 120) : ''];
  return h('tr', { 'data-cursor': event.cursor },
    h('td', {}, when(event.time)),
    h('td', {}, log.known.get(by) ?? by),
    h('td', {}, h('span', { class: `dot ${event.type.replace('.', '-')}` }), happened(event)),
    h('td', {}, ...subject),
  );
}

// watch draws the chart again and again, so that it ends now.
function watch() {
  log.drawing.abort();
  log.drawing = new AbortController();
  const { signal } = log.drawing;
  const { range } = state();
  const [seconds, bars] = RANGES[period(range)];
  poll(signal, REDRAW, async () => {
    const { element, total } = await changes(seconds, bars, HEIGHT, signal);
    const { type, plant, by } = state();
    $('activity-chart').replaceChildren(element);
    $('activity-total').textContent = total + (type || plant || by ? ' The chart counts all of them, whatever you look for below.' : '');
  }, (err) => {
    if (err && !handled(err)) {
      $('activity-chart').replaceChildren(); // it would no longer end now
      $('activity-total').textContent = sentence(err.message);
    }
  });
}

let ahead = 0; // milliseconds by which the clock of the server is ahead of that of the browser

/**
 * changes returns a chart of all changes up to now, and how many they are. Bars begin at
 * multiples of their length, so that they stay the same while time passes; the last one is not
 * over.
 * @param {number} seconds of a bar
 * @param {number} bars
 * @param {number} height
 * @param {AbortSignal} signal
 * @returns {Promise<{element: Element, total: string}>}
 */
export async function changes(seconds, bars, height, signal) {
  const length = seconds * 1000;
  const until = (Math.floor((Date.now() + ahead) / length) + 1) * length;
  const since = until - bars * length;
  const { buckets, date } = await histogram({ since, until, buckets: bars }, { signal });
  const drift = Date.parse(date) - Date.now() - ahead;
  if (Math.abs(drift) > SKEW) {
    ahead += drift;
    return changes(seconds, bars, height, signal);
  }
  const values = buckets.map(({ events }) => Number(events));
  const partial = buckets.map((bucket) => bucket.partial ?? false);
  const sum = values.reduce((a, b) => a + b, 0);
  const notes = [partial[0] ? ' Older ones are no longer kept.' : '', allows('tokens:read') ? '' : ' Changes of tokens count, too.'];
  const total = `${plural(sum, 'change')} since ${time(since)}.${notes.join('')}`;
  const title = (/** @type {number} */ i) => {
    const events = `${partial[i] ? 'at least ' : ''}${plural(values[i], 'change')}${i === bars - 1 ? ' so far' : ''}`;
    return `${time(since + i * length)}: ${events}`;
  };
  const series = [{ class: '', values }];
  const element = chart({ label: total, series, titles: title, partial, scale: 'log', height, axis: [time(since), 'now'] });
  return { element, total };
}
