// The page about the server and your token.

import { about, handled, session } from './api.js';
import { h, when } from './dom.js';
import { count, sentence, size } from './format.js';
import { meaning } from './grants.js';
import { facts, message, toolbar } from './parts.js';

let running = new AbortController();
/** @type {HTMLElement} */
let place;

/** @type {import('./console.js').Page} */
export const page = {
  title: 'About',
  show(root) {
    if (!root.firstChild) {
      place = h('div', { class: 'about' });
      root.append(toolbar('About'), place);
      load();
    }
  },
  refresh: load,
  hide: () => running.abort(),
};

async function load() {
  running.abort();
  running = new AbortController();
  try {
    draw(await about({ signal: running.signal }));
  } catch (err) {
    if (!handled(err)) {
      place.replaceChildren(message('The server says nothing about itself', sentence(err.message), ['Try again', load]));
    }
  }
}

// card shows what is known under a title.
function card(/** @type {string} */ title, /** @type {[string, Node | string | null][]} */ pairs) {
  const known = /** @type {[string, Node | string][]} */ (pairs.filter(([, value]) => value !== null));
  return h('section', { class: 'card' }, h('h2', {}, title), h('dl', { class: 'facts' }, ...facts(...known)));
}

const bytes = (/** @type {string} */ n) => size(Number(n));
const number = (/** @type {string} */ n) => count(BigInt(n));

/** @param {any} server what GET /about says */
function draw({ version, interface: release, store, plants, limits }) {
  const own = session.token();
  const unlimited = (/** @type {string | null} */ n, /** @type {(n: string) => string} */ show) => (n === null ? 'no limit' : show(n));
  place.replaceChildren(
    card('Server', [
      ['Version', version],
      ['Interface', release],
      ['Store', store === 'sqlite' ? 'SQLite, embedded' : 'PostgreSQL'],
      ['Plants', plants === undefined ? null : number(plants)],
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
      h('li', {}, h('a', { href: 'docs' }, 'API reference')),
      h('li', {}, h('a', { href: 'openapi.yaml' }, 'openapi.yaml')),
      h('li', {}, h('a', { href: 'openapi.json' }, 'openapi.json')),
    )),
  );
}

/** duration shows seconds in days or hours. @param {string} seconds */
function duration(seconds) {
  const hours = Number(seconds) / 3600;
  return hours >= 48 ? `${count(Math.round(hours / 24))} days` : `${count(Math.round(hours * 10) / 10)} hours`;
}
