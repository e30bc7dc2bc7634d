// The page about the server as a whole: what needs attention, what it has, how it does, your token
// and the limits.

import { changes } from './activity.js';
import { WEBHOOKS, about, allows, get, handled, session } from './api.js';
import { h, when } from './dom.js';
import { count, plural, sentence, size, span } from './format.js';
import { meaning } from './grants.js';
import { measure } from './live.js';
import { fact, facts, problem, redraw, toolbar } from './parts.js';
import { format } from './state.js';
import { poll, renew } from './wait.js';
import { badge, trouble } from './webhooks.js';

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
  running = renew(running);
  const figures = h('dl', { id: 'figures', class: 'figures' });
  const details = h('div', { id: 'about', class: 'about' });
  root.replaceChildren(toolbar('Overview'));
  if (allows('webhooks:read')) {
    const place = h('section', { class: 'card', id: 'failing' });
    root.append(place);
    keep(place, async (signal) => {
      const { title, bad, body } = attention(await get(WEBHOOKS, { signal }));
      place.classList.toggle('bad', bad);
      redraw(place, h('h2', {}, title), body);
    });
  }
  root.append(figures);
  if (allows('events:read')) {
    const place = h('section', { class: 'card', id: 'changes', 'aria-labelledby': 'changes-title' });
    const drawing = h('div');
    const text = h('span');
    const note = h('p', { class: 'hint' }, text, ' ', h('a', { href: format({ page: 'activity', range: '24h' }) }, 'Show them'));
    root.append(place);
    keep(place, async (signal) => {
      const { element, total } = await changes(HALF_HOUR, BARS, HEIGHT, signal);
      drawing.replaceChildren(element);
      text.textContent = total;
      if (!place.contains(note)) { // so that the link keeps the focus
        place.replaceChildren(h('h2', { id: 'changes-title' }, 'Changes over 24 hours'), drawing, note);
      }
    });
  }
  if (allows('ops:read')) {
    const meters = h('section', { id: 'gauges', class: 'gauges', 'aria-label': 'Live metrics of this server' });
    root.append(meters);
    measure(meters, ['rate', 'commit', 'errors', 'slowest'], running.signal);
  }
  root.append(details);
  keep(details, async (signal) => {
    const server = await about({ signal });
    redraw(figures, ...numbers(server));
    redraw(details, ...cards(server));
  }, () => figures.replaceChildren());
}

// keep reads a part of the page again and again. While that fails, the part says why.
/** @type {(place: HTMLElement, read: (signal: AbortSignal) => Promise<void>, clear?: () => void) => void} */
function keep(place, read, clear = () => {}) {
  const { signal } = running;
  poll(signal, EVERY, () => read(signal), (err) => {
    if (err && !handled(err)) {
      place.replaceChildren(problem(sentence(err.message)));
      clear();
    }
  });
}

/** attention shows the webhooks whose events do not all arrive. @param {import('./deliveries.js').Webhook[]} all */
function attention(all) {
  const isBad = (/** @type {import('./deliveries.js').Webhook} */ { health }) => health === 'failing' || health === 'disabled';
  const behind = all.filter(({ health }) => health !== 'healthy').sort((a, b) => Number(isBad(b)) - Number(isBad(a)));
  const none = all.length > 0 ? `${plural(all.length, 'webhook')}: every event arrives.` : 'There are no webhooks.';
  const items = behind.map((webhook) => (
    h('li', {}, h('a', { href: format({ page: 'webhooks', id: webhook.id }) }, webhook.url), ' ', badge(webhook), trouble(webhook))));
  const bad = behind.some(isBad);
  const body = items.length > 0 ? h('ul', {}, ...items) : h('p', { class: 'hint' }, none);
  return { title: bad ? 'Needs attention' : 'Webhooks', bad, body };
}

const bytes = (/** @type {string} */ n) => size(Number(n));
const number = (/** @type {string} */ n) => count(BigInt(n));

// numbers returns what a server says about its data. Not every token may know it all.
/** @param {any} server what GET /about says */
const numbers = ({ plants, bytes: disk, started, log }) => [
  plants !== undefined && fact('Plants', number(plants)),
  disk !== undefined && fact('Size on disk', bytes(disk)),
  started !== undefined && fact('Uptime', span((Date.now() - Date.parse(started)) / 1000)),
  log && [
    fact('Events kept', number(log.events)),
    fact('Size of the log', bytes(log.bytes)),
    fact('Oldest event', log.oldest ? when(log.oldest) : 'none'),
  ],
];

// card shows what is known under a title.
const card = (/** @type {string} */ title, /** @type {Parameters<typeof facts>} */ ...pairs) => (
  h('section', { class: 'card' }, h('h2', {}, title), h('dl', { class: 'facts' }, ...facts(...pairs))));

/** @param {any} server what GET /about says */
function cards({ version, interface: release, store, limits }) {
  const own = session.token();
  const unlimited = (/** @type {string | null} */ n, /** @type {(n: string) => string} */ show) => (n === null ? 'no limit' : show(n));
  const link = (/** @type {string} */ href, text = href) => h('li', {}, h('a', { href }, text));
  return [
    card('Server', ['Version', version], ['Interface', release], ['Store', store === 'sqlite' ? 'SQLite, embedded' : 'PostgreSQL']),
    card(
      'Your token',
      (own.name ?? own.subject) !== undefined && ['Name', own.name ?? own.subject],
      own.id && ['ID', h('code', {}, own.id)],
      own.issuer && ['Issuer', own.issuer],
      ['Scopes', h('ul', {}, ...own.scopes.map((scope) => h('li', {}, h('code', {}, scope), ` ${meaning(scope)}`)))],
      own.created && ['Created', when(own.created)],
      ['Expires', own.expires ? when(own.expires) : 'never'],
    ),
    card(
      'Limits',
      ['Largest request', bytes(limits.max_body)],
      ['Largest header', bytes(limits.max_header)],
      ['Plants on a page', number(limits.max_page_size)],
      ['Tokens', number(limits.max_tokens)],
      ['Name of a token', bytes(limits.max_token_name)],
      ['Webhooks', number(limits.max_webhooks)],
      ['Requests with your token', unlimited(limits.rate_limit, (text) => text)],
      ['Events are kept for', unlimited(limits.log_keep_seconds, (seconds) => span(Number(seconds)))],
      ['Size of the log of changes', unlimited(limits.log_max_bytes, bytes)],
    ),
    h('section', { class: 'card' }, h('h2', {}, 'Links'), h('ul', {},
      link('docs', 'API reference'), link('openapi.yaml'), link('openapi.json'))),
  ];
}
