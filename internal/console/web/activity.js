// The page of activity: how many changes there were over time, and who did what, newest first.

import { allows, handled, names } from './api.js';
import { brush, chart } from './chart.js';
import { $, busily, h, toast, value, when } from './dom.js';
import { cursorAt, follow, readBack } from './feed.js';
import { EVENT_TYPES, happened, hue, plural, sentence, shorten, time } from './format.js';
import { tell } from './parts.js';
import { go, state } from './route.js';
import { format, wholeNumber } from './state.js';
import { RANGES, chosen, countAll, countMatches, criteria, latest, part } from './timeline.js';
import { restore, who } from './view.js';
import { poll, renew, retry } from './wait.js';

const USUAL = '1h';
const range = (name = state().range) => (Object.hasOwn(RANGES, name) ? name : USUAL);
const HEIGHT = 124;
const REDRAW = 2000;
const ROWS = 200;
const RELOAD = 500; // milliseconds until the rows are read again if there are too many to follow
const RETRY = 5000; // and after a failure

/** @typedef {import('./feed.js').LogEvent} LogEvent */

const log = {
  key: '', // what of the state is shown
  events: /** @type {LogEvent[]} */ ([]), // in the rows, newest first
  older: '', // the cursor before which there are more, or empty
  missed: 0, // how many newer events are not in the rows
  known: /** @type {Map<string, string>} */ (new Map()),
  running: new AbortController(), // the rows
  again: /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined), // reads the rows again
  drawing: new AbortController(), // the chart
  counted: '', // what of the state the chart shows
  counts: /** @type {import('./timeline.js').Counts | null} */ (null), // in the chart
};

let showChart = /** @type {ReturnType<typeof brush>} */ (() => {});

// newestOnly leaves the period and the page that are in the URL.
const newestOnly = { after: '', since: '', until: '' };

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Activity',
  show(root) {
    if (!root.firstChild) {
      mount(root);
    }
    const { type, plant, q, by, after, since, until } = state();
    const key = JSON.stringify([type, plant, q, by, after, since, until]);
    const counted = JSON.stringify([type, plant, q, by, since, until, range()]);
    mark();
    if (log.key !== key) {
      log.key = key;
      load();
    }
    if (log.counted !== counted) {
      log.counted = counted;
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
    Object.assign(log, { key: '', counted: '', events: [] });
  },
};

function mount(/** @type {HTMLElement} */ root) {
  const types = ['', ...EVENT_TYPES.filter((name) => name.startsWith('plant.') || allows('tokens:read'))];
  const choice = (/** @type {string} */ key, /** @type {string} */ name, /** @type {(Node | string)[]} */ ...words) => (
    h('a', { [`data-${key}`]: name }, ...words));
  const columns = ['When', 'Who', 'What', 'Plant or token', h('span', { class: 'hidden-text' }, 'Restore')];
  const onsubmit = (/** @type {Event} */ event) => event.preventDefault();
  root.append(
    h('div', { class: 'toolbar' },
      h('h1', { id: 'activity-title', tabindex: '-1' }, 'Activity'),
      h('nav', { class: 'choices', 'aria-label': 'Period' }, ...Object.keys(RANGES).map((name) => choice('range', name, name))),
    ),
    h('figure', { class: 'history-chart' },
      h('h2', { id: 'chart-title' }),
      h('div', { id: 'activity-chart', role: 'slider', tabindex: '0', 'aria-valuemin': '1', 'aria-labelledby': 'chart-title' }),
      h('figcaption', { class: 'hint' }, h('span', { id: 'activity-total' }), ' Click a bar, or drag over some, to see only these.'),
    ),
    h('form', { class: 'finder', role: 'search', 'aria-label': 'Find changes', onsubmit },
      h('nav', { class: 'choices', 'aria-label': 'Type of change' }, ...types.map((name) => (
        choice('type', name, h('span', { class: `dot ${name.replace('.', '-')}` }), name ? happened({ type: name }) : 'All')))),
      h('input', {
        'id': 'activity-plant', 'type': 'search', 'aria-label': 'Plant name or ID', 'placeholder': 'Plant name or ID',
        'autocomplete': 'off', 'spellcheck': 'false', 'onchange': findPlant, 'onsearch': findPlant,
      }),
      h('select', { 'id': 'activity-by', 'aria-label': 'Who', 'onchange': findPerson }),
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
  showChart = brush($('activity-chart'), (first, last) => {
    if (log.counts && log.counts.bars > 1) {
      go({ ...state(), after: '', ...part(log.counts, first, last) });
    }
  });
}

// mark shows the state in the choices.
function mark() {
  const { type, plant, q } = state();
  const current = { type, range: chosen(state()) ? '' : range() };
  for (const key of /** @type {const} */ (['type', 'range'])) {
    for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll(`.choices [data-${key}]`))) {
      const name = link.dataset[key] ?? '';
      link.href = format({ ...state(), ...(key === 'type' ? { after: '' } : newestOnly), [key]: name });
      link.ariaCurrent = name === current[key] ? 'true' : null;
    }
  }
  $('activity-plant', HTMLInputElement).value = plant || q;
}

// people fills the choice of who: those who are known, and those in the rows.
function people() {
  const { by } = state();
  const ids = new Set([...log.known.keys(), ...log.events.map((event) => event.by), by].filter(Boolean));
  const name = (/** @type {string} */ id) => shorten(log.known.get(id) ?? id, 60);
  const { compare } = new Intl.Collator();
  const sorted = [...ids].sort((a, b) => compare(name(a), name(b)));
  const choice = $('activity-by', HTMLSelectElement);
  choice.replaceChildren(h('option', { value: '' }, 'Everyone'), ...sorted.map((id) => h('option', { value: id }, name(id))));
  choice.value = by;
}

function findPlant(/** @type {any} */ { target }) {
  const plant = wholeNumber(target.value);
  const q = plant ? '' : target.value.trim();
  if (plant !== state().plant || q !== state().q) { // a search ends with two events
    go({ ...state(), after: '', plant, q });
  }
}

const findPerson = (/** @type {any} */ { target }) => go({ ...state(), after: '', by: target.value });

// newest shows the newest events, from the top.
function newest() {
  scrollTo(0, 0);
  if (state().after || chosen(state())) {
    go({ ...state(), ...newestOnly });
  } else {
    load();
  }
}

function older() {
  scrollTo(0, 0);
  go({ ...state(), after: log.older });
}

// stop ends reading and following.
function stop() {
  clearTimeout(log.again);
  log.running = renew(log.running);
}

// load reads the rows, and then follows the log if they are the newest.
async function load() {
  stop();
  const { signal } = log.running;
  const { after } = state();
  const filter = criteria(state());
  const period = chosen(state());
  $('activity').ariaBusy = 'true';
  try {
    log.known = await names();
    const before = after || (period ? await cursorAt(period.until, signal) : '');
    const found = await readBack(filter, before, ROWS, signal, period?.since);
    fill(found.events, found.older);
    people();
    if (!after && !period) {
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

// arrive shows new events at the top, or says how many there are while the user reads. If there are
// more than it can show, it reads the newest ones instead of following.
function arrive(/** @type {LogEvent[]} */ events) {
  if (log.missed > 0 || reading()) {
    log.missed += events.length;
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
  [...$('events').children].slice(ROWS).forEach((old) => old.remove());
  show();
}

// show shows what there is besides the rows.
function show() {
  const { after } = state();
  const { events, older, missed } = log;
  const period = chosen(state());
  const none = Object.keys(criteria(state())).length > 0 ? 'No change matches' : 'There are no changes';
  const where = older ? ' among those searched so far: go on with Older' : after ? ' that are older' : '';
  $('activity').hidden = events.length === 0;
  const some = `${plural(events.length, 'change')}${older ? ' and older ones' : ''}`;
  $('activity-status').textContent = events.length === 0 ? `${none}${where}.` : some;
  $('activity-news').hidden = missed === 0;
  $('activity-news').textContent = `${plural(missed, 'new change')}. Show`;
  $('activity-newest').hidden = !after && !period;
  $('activity-older', HTMLButtonElement).disabled = !older;
  $('activity-older').hidden = !older && !after;
}

function row(/** @type {LogEvent} */ event) {
  const { plant, token } = event;
  return h('tr', { 'data-cursor': event.cursor },
    h('td', {}, when(event.time)),
    h('td', {}, who(event, log)),
    h('td', {}, h('span', { class: `dot ${event.type.replace('.', '-')}` }), happened(event)),
    h('td', {},
      plant && [h('a', { href: format({ page: 'plants', id: plant.id }) }, plant.id), ' ', value(shorten(plant.name, 120))],
      plant?.tag && [' ', h('span', { 'class': 'tag', 'data-hue': hue(plant.tag) }, shorten(plant.tag, 60))],
      token && shorten(token.name ?? token.subject ?? token.id, 120),
    ),
    h('td', { class: 'do' }, event.type === 'plant.deleted' && allows('plants:write') && restoreButton(plant)),
  );
}

// restoreButton creates a deleted plant again, if nobody else has.
function restoreButton(/** @type {import('./api.js').Plant} */ plant) {
  const address = { page: 'plants', id: plant.id };
  const run = () => tell(async () => {
    try {
      await restore(plant, null);
    } catch (err) {
      if (err.status !== 412) {
        throw err;
      }
      toast(`Plant ${plant.id} was not restored: someone has created it again.`, { bad: true, actions: [['View', () => go(address)]] });
      return;
    }
    const link = h('a', { href: format(address) }, 'Restored');
    button.replaceWith(link);
    link.focus();
  });
  const label = `Restore plant ${plant.id}`;
  const button = h('button', { 'data-testid': 'restore', 'aria-label': label, onclick: busily(run) }, 'Restore');
  return button;
}

// watch draws the chart again and again, so that it ends now.
function watch() {
  log.drawing = renew(log.drawing);
  const { signal } = log.drawing;
  const [seconds, bars, words] = RANGES[range()];
  const period = () => chosen(state()) ?? latest(seconds, bars);
  const { since, until, over } = period();
  const filter = criteria(state());
  const matching = Object.keys(filter).length > 0;
  const count = matching ? countMatches(period, filter, signal) : () => countAll(period, signal);
  const what = matching ? 'Changes that match' : 'Changes';
  $('chart-title').textContent = over ? `${what}, from ${time(since)} to ${time(until)}` : `${what} in the last ${words}`;
  $('activity-total').textContent = 'Loading…';
  poll(signal, over ? 10 * REDRAW : REDRAW, async () => {
    log.counts = await count();
    signal.throwIfAborted();
    const { element, total, titles } = picture(log.counts, HEIGHT, matching ? ' Older ones were not counted.' : KEPT);
    showChart(element, log.counts.bars, titles);
    $('activity-total').textContent = total;
  }, (err) => {
    if (err && !handled(err)) {
      $('activity-chart').replaceChildren(); // it would no longer end now
      $('activity-total').textContent = sentence(err.message);
    }
  });
}

const KEPT = ' Older ones are no longer kept.';

// changes returns a chart of all changes up to now, and how many they are.
/** @type {(seconds: number, bars: number, height: number, signal: AbortSignal) => Promise<Picture>} */
export const changes = async (seconds, bars, height, signal) => picture(await countAll(() => latest(seconds, bars), signal), height);

/** @typedef {{element: Element, total: string, titles: (bar: number) => string}} Picture */

// picture returns the chart of some counts, how many changes it has, and what it says of each bar, and of
// a partial one.
/** @type {(counts: import('./timeline.js').Counts, height: number, missing?: string) => Picture} */
function picture({ since, until, bars, over, values, partial }, height, missing = KEPT) {
  const some = (/** @type {number} */ n, /** @type {boolean} */ more) => `${more ? 'at least ' : ''}${plural(n, 'change')}`;
  const sum = values.reduce((a, b) => a + b, 0);
  const notes = [partial[0] ? missing : '', missing === KEPT && !allows('tokens:read') ? ' Changes of tokens count, too.' : ''];
  const total = `${sentence(`${some(sum, false)}${over ? '' : ` since ${time(since)}`}`)}${notes.join('')}`;
  const titles = (/** @type {number} */ i) => (
    `${time(since + (i * (until - since)) / bars)}: ${some(values[i], partial[i])}${!over && i === bars - 1 ? ' so far' : ''}`);
  const axis = /** @type {[string, string]} */ ([time(since), over ? time(until) : 'now']);
  const element = chart({ label: total, series: [{ class: '', values }], titles, partial, scale: 'log', height, axis });
  return { element, total, titles };
}
