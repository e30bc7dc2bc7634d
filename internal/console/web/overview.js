// The page about the server as a whole: what it has, how it does, which webhooks fail, your token
// and the limits.

import { changes } from './activity.js';
import { WEBHOOKS, about, allows, call, handled, session } from './api.js';
import { h, svg, when } from './dom.js';
import { count, figure, plural, sentence, size, span } from './format.js';
import { meaning } from './grants.js';
import { gauge, latest, measure, milliseconds, poll } from './live.js';
import { percentile } from './metrics.js';
import { fact, facts, toolbar } from './parts.js';
import { format } from './state.js';

const EVERY = 5000;
const HALF_HOUR = 1800; // seconds
const BARS = 48;
const HEIGHT = 124;

let running = new AbortController();
/** @type {HTMLElement} */
let root;

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Overview',
  show(place) {
    if (!place.firstChild) {
      root = place;
      load();
    }
  },
  refresh: load,
  hide: () => running.abort(),
};

// load shows what the token may see, and keeps it up to date.
function load() {
  running.abort();
  running = new AbortController();
  const figures = h('dl', { class: 'figures' });
  const details = h('div', { class: 'about' });
  root.replaceChildren(toolbar('Overview'), figures);
  if (allows('ops:read')) {
    root.append(meters());
  }
  if (allows('events:read')) {
    const place = h('section', { class: 'card', id: 'changes', 'aria-label': 'Changes over 24 hours' });
    const drawing = h('div');
    const text = h('span');
    const note = h('p', { class: 'hint' }, text, ' ', h('a', { href: format({ page: 'activity', range: '24h' }) }, 'Show them'));
    root.append(place);
    keep(place, async (signal) => {
      const { element, total } = await changes(HALF_HOUR, BARS, HEIGHT, signal);
      drawing.replaceChildren(element);
      text.textContent = total;
      if (!place.contains(note)) { // so that the link keeps the focus
        place.replaceChildren(drawing, note);
      }
    });
  }
  if (allows('webhooks:read')) {
    const place = h('section', { class: 'card', id: 'failing' });
    root.append(place);
    keep(place, async (signal) => {
      const next = webhooks((await call('GET', WEBHOOKS, { signal })).json());
      if (next.map((part) => part.outerHTML).join('') !== place.innerHTML) { // so that links keep the focus
        place.replaceChildren(...next);
      }
    });
  }
  root.append(details);
  keep(details, async (signal) => {
    const server = await about({ signal });
    figures.replaceChildren(...numbers(server));
    if (!details.querySelector('.card')) {
      details.replaceChildren(...cards(server));
    }
  }, () => figures.replaceChildren());
}

/**
 * keep reads a part of the page again and again. While that fails, the part says why.
 * @param {HTMLElement} place
 * @param {(signal: AbortSignal) => Promise<void>} read
 * @param {() => void} [clear] what else read has drawn
 */
function keep(place, read, clear = () => {}) {
  const { signal } = running;
  poll(signal, () => read(signal), (err) => {
    if (err && !handled(err)) {
      place.replaceChildren(h('p', { class: 'problem' }, sentence(err.message)));
      clear();
    }
  }, EVERY);
}

// meters returns the live metrics.
function meters() {
  const meter = (/** @type {string} */ title, /** @type {string} */ caption) => h(
    'figure',
    { class: 'card', 'data-title': title, title },
    h('figcaption', {}, caption),
    h('strong', {}, '–'),
    svg('svg', { class: 'chart', height: 24 }),
    h('span', { class: 'peak' }),
  );
  const elements = [
    meter('Creates per second', 'Creates/s'),
    meter('Responses per second with a status of 500 or more', 'Errors/s'),
    meter('The 99th percentile of the durations of requests in the last minute, except for streams of events', 'Slowest 1%'),
  ];
  const [creates, errors, slowest] = elements.map((element, i) => gauge(element, i < 2 ? figure : milliseconds));
  measure(running.signal, (samples) => {
    const now = latest(samples);
    creates(now?.creates ?? null);
    errors(now?.errors ?? null);
    slowest(now && percentile(samples[0], samples[samples.length - 1], 0.99));
  });
  return h('section', { class: 'gauges', 'aria-label': 'Live metrics of this server' }, ...elements);
}

/**
 * webhooks returns the webhooks that fail.
 * @param {{id: string, url: string, state: string, reason?: string, failing?: {since: string, attempts: string, error: string}}[]} all
 */
function webhooks(all) {
  const failing = all.filter(({ state, failing: failed }) => state !== 'active' || failed);
  const none = all.length > 0 ? `${plural(all.length, 'webhook')}, and none fails.` : 'There are no webhooks.';
  const item = (/** @type {typeof all[number]} */ { id, url, state, reason, failing: failed }) => h(
    'li',
    {},
    h('a', { href: format({ page: 'webhooks', id }) }, url),
    ' ',
    h('span', { class: 'badge bad' }, state === 'active' ? 'failing' : state),
    ...(failed ? [' since ', when(failed.since), `, ${plural(BigInt(failed.attempts), 'attempt')}: ${sentence(failed.error)}`] : []),
    ...(!failed && reason ? [` ${sentence(reason)}`] : []),
  );
  return [h('h2', {}, 'Webhooks that fail'), failing.length > 0 ? h('ul', {}, ...failing.map(item)) : h('p', { class: 'hint' }, none)];
}

const bytes = (/** @type {string} */ n) => size(Number(n));
const number = (/** @type {string} */ n) => count(BigInt(n));

// numbers returns what a server says about its data. Not every token may know it all.
/** @param {any} server what GET /about says */
function numbers({ plants, bytes: disk, started, log }) {
  return [
    ...(plants === undefined ? [] : [fact('Plants', number(plants))]),
    ...(disk === undefined ? [] : [fact('Size on disk', bytes(disk))]),
    ...(started === undefined ? [] : [fact('Uptime', span((Date.now() - Date.parse(started)) / 1000))]),
    ...(log === undefined ? [] : [
      fact('Events kept', number(log.events)),
      fact('Size of the log', bytes(log.bytes)),
      fact('Oldest event', log.oldest ? when(log.oldest) : 'none'),
    ]),
  ];
}

// card shows what is known under a title.
function card(/** @type {string} */ title, /** @type {[string, Node | string | null][]} */ pairs) {
  const known = /** @type {[string, Node | string][]} */ (pairs.filter(([, value]) => value !== null));
  return h('section', { class: 'card' }, h('h2', {}, title), h('dl', { class: 'facts' }, ...facts(...known)));
}

/** @param {any} server what GET /about says */
function cards({ version, interface: release, store, limits }) {
  const own = session.token();
  const unlimited = (/** @type {string | null} */ n, /** @type {(n: string) => string} */ show) => (n === null ? 'no limit' : show(n));
  const link = (/** @type {string} */ href, text = href) => h('li', {}, h('a', { href }, text));
  return [
    card('Server', [
      ['Version', version],
      ['Interface', release],
      ['Store', store === 'sqlite' ? 'SQLite, embedded' : 'PostgreSQL'],
    ]),
    card('Your token', [
      ['Name', own.name ?? own.subject ?? null],
      ['ID', own.id ? h('code', {}, own.id) : null],
      ['Issuer', own.issuer ?? null],
      ['Scopes', h('ul', {}, ...own.scopes.map((scope) => h('li', {}, h('code', {}, scope), ` ${meaning(scope)}`)))],
      ['Created', own.created ? when(own.created) : null],
      ['Expires', own.expires ? when(own.expires) : 'never'],
    ]),
    card('Limits', [
      ['Largest request', bytes(limits.max_body)],
      ['Largest header', bytes(limits.max_header)],
      ['Plants on a page', number(limits.max_page_size)],
      ['Tokens', number(limits.max_tokens)],
      ['Name of a token', bytes(limits.max_token_name)],
      ['Webhooks', number(limits.max_webhooks)],
      ['Requests with your token', unlimited(limits.rate_limit, (text) => text)],
      ['Events are kept for', unlimited(limits.log_keep_seconds, duration)],
      ['Size of the log of changes', unlimited(limits.log_max_bytes, bytes)],
    ]),
    h('section', { class: 'card' }, h('h2', {}, 'Links'), h(
      'ul',
      {},
      link('docs', 'API reference'),
      link('openapi.yaml'),
      link('openapi.json'),
    )),
  ];
}

/** duration shows seconds in days or hours. @param {string} seconds */
function duration(seconds) {
  const hours = Number(seconds) / 3600;
  return hours >= 48 ? `${count(Math.round(hours / 24))} days` : `${count(Math.round(hours * 10) / 10)} hours`;
}
