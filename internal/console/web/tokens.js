// The page of tokens.

import { API, Failure, allows, call, listEvents, names, session } from './api.js';
import { h, toast, visible, when } from './dom.js';
import { plural } from './format.js';
import { isOver, lifetimes, meaning, ordered, presets } from './grants.js';
import { checked, checks, field, listPage, openForm, showSecret, words } from './parts.js';

const TOKENS = `${API}/tokens`;

export const { page, load } = listPage({ title: 'Tokens', noun: 'token', url: TOKENS, draw, create });

/** @typedef {import('./session.js').Token & {id: string, name: string, revoked?: string, last_used?: string}} Listed */

let makers = /** @type {Map<string, string>} */ (new Map()); // who created which token

// learn finds out who created which token, as far as the log of changes says it.
async function learn() {
  const { items } = allows('events:read') ? await listEvents('?type=token.created&order=newest&limit=1000', {}) : { items: [] };
  const known = await names();
  makers = new Map(items.map((event) => [event.token.id, known.get(event.by) ?? event.by]));
}

const COLUMNS = ['Token', 'Scopes', 'Created', 'Created by', 'Last used', 'Expires', 'Revoke'];
let drawn = /** @type {Listed[]} */ ([]);

function draw(/** @type {HTMLElement} */ place, /** @type {Listed[]} */ tokens) {
  const newest = [...tokens].reverse();
  const over = newest.filter((token) => isOver(token, Date.now()));
  const summary = `Revoked and expired (${over.length})`;
  const open = place.querySelector('details')?.open;
  place.replaceChildren(table('Active tokens', newest.filter((token) => !over.includes(token))));
  if (over.length > 0) {
    place.append(h('details', { open }, h('summary', {}, summary), table(summary, over)));
  }
  if (drawn !== tokens) {
    drawn = tokens;
    learn().then(() => draw(place, drawn), () => {}); // the rest of the page is right without it
  }
}

// The roles are for screen readers, where the table is laid out in another way.
const table = (/** @type {string} */ label, /** @type {Listed[]} */ some) => h('table', { 'role': 'table', 'aria-label': label },
  h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, ...COLUMNS.map((name, i) => (
    h('th', { role: 'columnheader', scope: 'col' }, i < COLUMNS.length - 1 ? name : h('span', { class: 'hidden-text' }, name)))))),
  h('tbody', { role: 'rowgroup' }, ...some.map(row)),
);

function row(/** @type {Listed} */ token) {
  const { id, name, scopes, created, expires, revoked, last_used: used } = token;
  const own = id === session.token().id;
  const active = !isOver(token, Date.now());
  const properties = { class: 'risky', 'data-testid': `revoke-${name}`, 'aria-label': `Revoke ${name}`, onclick: () => ask(token, own) };
  const revoke = h('button', properties, 'Revoke');
  const cell = (/** @type {string | undefined} */ label, /** @type {import('./dom.js').Child[]} */ ...children) => (
    h('td', { 'role': 'cell', 'data-label': label }, ...children));
  return h('tr', { 'role': 'row', 'data-id': id },
    cell(undefined, h('strong', { dir: 'auto' }, ...visible(name)), own && [' ', h('span', { class: 'badge' }, 'You')], h('code', {}, id)),
    cell(undefined, words('Scopes', ordered(scopes))),
    cell('Created', when(created)),
    cell('Created by', makers.get(id) ?? '–'),
    cell('Last used', own ? 'now' : used ? when(used) : 'never'),
    cell('Expires', revoked && 'revoked ', revoked || expires ? when(revoked ?? expires ?? '') : 'never'),
    cell(undefined, active && allows('tokens:write') && revoke),
  );
}

function create() {
  const own = session.token();
  const name = h('input', { id: 'token-name', autocomplete: 'off', spellcheck: 'false', autofocus: '' });
  const usual = presets(own.scopes);
  const first = usual[0]?.[1] ?? [];
  const scopes = checks('Scopes', ordered(own.scopes).map((value) => ({ value, text: meaning(value), checked: first.includes(value) })));
  const boxes = [...scopes.querySelectorAll('input')];
  const preset = h('select', {
    id: 'token-preset',
    onchange: () => boxes.forEach((box) => {
      box.checked = usual[preset.selectedIndex]?.[1].includes(box.value) ?? box.checked;
    }),
  }, ...[...usual.map(([label]) => label), 'Custom'].map((label) => h('option', {}, label)));
  scopes.addEventListener('change', () => {
    const now = checked(scopes).join();
    const same = usual.findIndex(([, some]) => ordered(some).join() === now);
    preset.selectedIndex = same < 0 ? usual.length : same;
  });
  const choices = lifetimes(own.expires, Date.now());
  const lifetime = h('select', {}, ...choices.map(({ label, usual }) => h('option', { selected: usual }, label)));
  openForm({
    title: 'New token',
    body: [
      field('Name', name, 'Its purpose, for example: backup.'),
      ...(usual.length > 0 ? [field('For', preset)] : []),
      scopes,
      field('Expires', lifetime),
    ],
    action: 'Create',
    async run(options) {
      const body = JSON.stringify({ name: name.value.trim(), scopes: checked(scopes), expires: choices[lifetime.selectedIndex].expires });
      const made = await send(body, options);
      load();
      const text = 'The token was created. This is its secret:';
      return () => showSecret({ title: `Token ${made.name}`, text, label: 'Token', secret: made.token });
    },
  });
}

// send creates a token. Sending it twice would create two.
async function send(/** @type {string} */ body, /** @type {import('./api.js').Options} */ options) {
  try {
    return (await call('POST', TOKENS, { ...options, body })).json();
  } catch (err) {
    if (err.status !== 0) {
      throw err;
    }
    load();
    throw new Failure(0, 'The server did not respond. The token may have been created: if it is in the list, revoke it, '
      + 'because its secret is lost, and try again.');
  }
}

function ask(/** @type {Listed} */ { id, name, scopes }, /** @type {boolean} */ own) {
  openForm({
    title: `Revoke ${name}?`,
    body: [
      h('p', {}, `It has ${plural(scopes.length, 'scope')}: ${scopes.join(', ')}. It is refused within 2 seconds. This cannot be undone.`),
      ...(own ? [h('p', {}, h('strong', {}, 'You are signed in with this token.'), ' You will be signed out.')] : []),
    ],
    action: 'Revoke',
    risky: true,
    async run(options) {
      await call('DELETE', `${TOKENS}/${encodeURIComponent(id)}`, options);
      toast(`Token ${name} was revoked.`);
      await load();
    },
  });
}
