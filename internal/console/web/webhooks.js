// The page of webhooks: the list, and one of them with its deliveries beside it; and the
// alerts on all pages.

import { EVENTS, Failure, WEBHOOKS, allows, call, get, names } from './api.js';
import { chart } from './chart.js';
import { alarm, alarming, condition, pace, succeeded, tally, waiting } from './deliveries.js';
import { $, busily, h, icon, toast, value, visible, when } from './dom.js';
import { plural, sentence, span, time } from './format.js';
import { indent } from './json.js';
import {
  checked, checks, fact, facts, field, guardFocus, listPage, message, openForm, problem, redraw, showSecret, tell, words,
} from './parts.js';
import { go, state } from './route.js';
import { format } from './state.js';
import { poll, renew } from './wait.js';

const TYPES = ['plant.created', 'plant.replaced', 'plant.deleted'];
const SOON = 2000; // between two looks at the deliveries
const SELDOM = 5; // looks, between two at the list
const BARS = 40;

/** @typedef {import('./deliveries.js').Webhook} Webhook */
/** @typedef {import('./deliveries.js').Delivery} Delivery */

const { page: list, load } = listPage({
  title: 'Webhooks', noun: 'webhook', url: WEBHOOKS, draw, create: () => edit(null), reads: 'events:read',
});

/** @type {import('./console.js').Page} */
export const page = {
  ...list,
  show(root, now) {
    const first = !root.firstChild;
    list.show(root, now);
    if (first) {
      names().then((known) => { people = known; });
      looking = new AbortController();
      poll(looking.signal, SOON, look);
    }
  },
  hide() {
    looking.abort();
    list.hide();
    drawer.remove();
    drawer.dataset.id = '';
    guardFocus();
  },
  key(key) {
    if (key !== 'Escape' || !state().id) {
      return false;
    }
    go({ page: 'webhooks' });
    return true;
  },
};

const drawer = h('aside', { id: 'webhook-drawer', class: 'drawer', 'aria-labelledby': 'webhook-title' });
let tests = /** @type {Delivery[]} */ ([]); // of the webhook in the drawer. The server keeps none.
let looking = new AbortController();
let looks = 0;
let people = /** @type {Map<string, string>} */ (new Map()); // the names of tokens

// look keeps the page current: deliveries at once, and the list now and then.
async function look() {
  if (!allows('webhooks:read') || document.querySelector('.page dialog')) {
    return;
  }
  looks++;
  const { id } = state();
  const changed = id !== '' && drawer.dataset.id === id && await loadDeliveries(id);
  if (changed || looks % SELDOM === 0) {
    await load();
  }
}

// draw shows the webhooks, and the one that the URL names beside them.
function draw(/** @type {HTMLElement} */ place, /** @type {Webhook[]} */ webhooks) {
  if (!place.isConnected) {
    return; // the page was left
  }
  const { id } = state();
  const { id: last } = drawer.dataset;
  const rows = webhooks.map((webhook) => row(webhook, webhook.id === id));
  redraw(place, rows.length > 0
    ? h('ul', { class: 'records' }, ...rows)
    : message('No webhooks', 'A webhook delivers every change to a URL, signed and retried.'));
  if (!drawer.isConnected) {
    place.after(drawer);
  }
  const closes = id === '' && drawer.contains(document.activeElement);
  drawer.hidden = id === '';
  drawer.dataset.id = id;
  guardFocus();
  const open = webhooks.find((webhook) => webhook.id === id);
  if (open) {
    show(open, last !== id || !drawer.querySelector('.deliveries'));
  } else {
    drawer.replaceChildren(heading('Webhook'), h('div', { class: 'drawer-body' }, problem('There is no such webhook.')));
  }
  if (closes) {
    place.querySelectorAll('a').forEach((link) => link.closest('li')?.dataset.id === last && link.focus());
  }
}

const KINDS = { healthy: 'badge good', catching_up: 'badge late', failing: 'badge bad', paused: 'badge idle', disabled: 'badge bad' };
const caughtUp = pace();

/** badge says whether events arrive. @param {Webhook} webhook */
export const badge = (webhook) => h('span', { class: KINDS[webhook.health], 'data-testid': 'condition' }, condition(webhook));

/** trouble says since when and why events do not arrive, or how far behind they are. @param {Webhook} webhook */
export function trouble(webhook) {
  const { health, reason, failing, last_error: error, next_attempt: next, pending, lag_ms: lag } = webhook;
  const end = caughtUp(webhook, Date.now());
  if (health === 'disabled' && reason) {
    return [problem(sentence(reason))];
  }
  if (health === 'catching_up') {
    const until = end === null ? '' : ` Caught up at about ${time(end)}.`;
    return [h('p', { class: 'hint' }, `${span(Number(lag) / 1000)} behind, ${waiting(pending)} waiting.${until}`)];
  }
  if (health !== 'failing' || !failing) {
    return [];
  }
  const number = plural(BigInt(failing.attempts), 'attempt');
  const latest = error && failing.attempts !== '1' && [', the last ', when(error.time)];
  const soon = !next || Date.parse(next) <= Date.now();
  return [
    h('p', { class: 'problem' }, 'Since ', when(failing.since, time), `, ${number}`, latest, `: ${sentence(failing.error)}`),
    h('p', { class: 'hint' }, 'Next attempt ', soon ? 'now' : ['at ', when(next, time)], '.'),
  ];
}

function row(/** @type {Webhook} */ webhook, /** @type {boolean} */ open) {
  const { id, url, description, types, created, delivered, pending } = webhook;
  return h('li', { 'data-id': id, class: open && 'open' },
    h('div', { class: 'who' },
      h('a', { href: format({ page: 'webhooks', id }), 'aria-current': open && 'true' }, url),
      badge(webhook),
      description && h('span', { dir: 'auto' }, ...visible(description)),
      trouble(webhook),
    ),
    words('Changes', types),
    h('dl', {},
      fact('Created', when(created)), fact('Last arrived', delivered ? when(delivered) : 'never'), fact('Waiting', waiting(pending))),
  );
}

const heading = (/** @type {string} */ title) => h('header', {},
  h('h2', { id: 'webhook-title', tabindex: '-1' }, title),
  h('button', { class: 'tool quiet', 'aria-label': 'Close', title: 'Close', onclick: () => go({ page: 'webhooks' }) }, icon('close')),
);

function show(/** @type {Webhook} */ webhook, /** @type {boolean} */ fresh) {
  const { id, url, description, types, created, by, delivered, health, last_error: error, pending, lag_ms: lag } = webhook;
  const past = health === 'failing' ? undefined : error;
  if (fresh) {
    tests = [];
    drawer.replaceChildren(heading(url), h('div', { class: 'drawer-body' },
      h('div', { id: 'webhook' }),
      h('h3', { id: 'deliveries-title' }, 'Deliveries'),
      h('div', { id: 'deliveries', class: 'deliveries', 'aria-labelledby': 'deliveries-title', role: 'region', tabindex: '0' }),
    ));
    $('webhook-title').focus();
    loadDeliveries(id);
  }
  $('webhook-title').textContent = url;
  redraw(
    $('webhook'),
    h('dl', { class: 'facts' }, ...facts(
      ['URL', h('span', { class: 'value' }, url)],
      description && ['For', value(description)],
      ['State', badge(webhook), trouble(webhook)],
      ['Last arrived', delivered ? when(delivered) : 'never'],
      ['Waiting', Number(pending) > 0 ? `${waiting(pending)}, the oldest for ${span(Number(lag) / 1000)}` : 'nothing'],
      past && ['Last error', when(past.time), past.url === url ? ': ' : `, at ${past.url}: `, sentence(past.error)],
      ['Changes', types.join(', ')],
      ['Created', when(created), by && ` by ${people.get(by) ?? by}`],
      ['ID', h('code', {}, id)],
    )),
    h('div', { class: 'buttons' }, buttons(webhook)),
  );
}

/** buttons returns what can be done with a webhook. @param {Webhook} webhook */
function buttons(webhook) {
  const writes = allows('webhooks:write');
  const sends = writes && allows('events:read');
  const on = sends && webhook.state !== 'disabled';
  const order = (/** @type {string} */ what, /** @type {string} */ said) => busily(() => command(webhook, what, said));
  const all = /** @type {[boolean, string, string, (event: Event) => void, string?][]} */ ([
    [sends && !on, 'resume', 'Resume', order('resume', 'The webhook was resumed.'), 'primary'],
    [on && Boolean(webhook.next_attempt), 'retry', 'Retry now', order('retry', 'Undelivered events are being sent.'), 'primary'],
    [on, 'pause', 'Pause', order('pause', 'The webhook is paused.')],
    [sends, 'test', 'Send a test', busily(() => test(webhook))],
    [sends, 'replay', 'Replay', () => replay(webhook)],
    [sends, 'edit', 'Edit', () => edit(webhook)],
    [writes, 'rotate', 'Rotate secret', () => rotate(webhook)],
    [writes, 'delete', 'Delete', () => remove(webhook), 'risky'],
  ]);
  return all.filter(([may]) => may).map(([, what, name, onclick, look]) => (
    h('button', { id: `${what}-webhook`, class: look, onclick }, name)));
}

// loadDeliveries shows the deliveries, and returns whether there are other ones than before.
async function loadDeliveries(/** @type {string} */ id) {
  const list = /** @type {HTMLElement} */ (drawer.querySelector('.deliveries'));
  let changed = false;
  await tell(async () => {
    /** @type {Delivery[]} */
    const sent = await get(`${WEBHOOKS}/${id}/deliveries`);
    const all = [...tests, ...sent].sort((a, b) => Date.parse(b.time) - Date.parse(a.time));
    const keys = all.map(({ event, attempt: number, time: at }) => `${event} ${number} ${at}`);
    if (list.firstChild && list.dataset.shown === keys.join()) {
      return;
    }
    changed = list.dataset.shown !== undefined;
    list.dataset.shown = keys.join();
    // What was there stays, and may be open.
    const old = new Map([...list.querySelectorAll('li')].map((element) => [element.dataset.key, element]));
    list.replaceChildren(
      h('p', { class: 'meta' }, all.length > 0 ? `${plural(all.length, 'attempt')}, newest first` : 'Nothing was sent yet.'),
      ...(all.length > 0 ? [summary(all)] : []),
      h('ol', { class: 'history' }, ...all.map((delivery, i) => old.get(keys[i]) ?? attempt(delivery, keys[i]))),
    );
  }, (text) => {
    list.replaceChildren(problem(text));
    delete list.dataset.shown;
  });
  return changed;
}

/** summary draws how many attempts arrived and failed over time. @param {Delivery[]} all */
function summary(all) {
  const { start, arrived, failed } = tally(all, BARS, Date.now());
  const bad = all.filter((delivery) => !succeeded(delivery)).length;
  return chart({
    label: `${all.length - bad} arrived and ${bad} failed since ${time(start)}`,
    series: [{ class: 'arrived', values: arrived }, { class: 'failed', values: failed }],
    titles: (bar) => `${arrived[bar]} arrived, ${failed[bar]} failed`,
    height: 72,
    axis: [time(start), 'now'],
  });
}

/** outcome says in a few words how an attempt ended. @param {Delivery} delivery */
const outcome = ({ status, error, duration_ms: ms }) => (status === '0' ? `no response: ${error ?? 'unknown'}` : `${status} in ${ms} ms`);

// lines shows text that others wrote. White space stays as it is.
const lines = (/** @type {string} */ text) => text.split(/(\s+)/).flatMap((part, i) => (i % 2 ? part : visible(part)));

function attempt(/** @type {Delivery} */ delivery, /** @type {string} */ key) {
  const { event, type, time: at, attempt: number, response } = delivery;
  const known = allows('events:read') && TYPES.includes(type);
  return h('li', { 'data-key': key },
    h('span', { class: succeeded(delivery) ? 'badge good' : 'badge bad' }, succeeded(delivery) ? 'ok' : 'failed'),
    ` ${type}: ${outcome(delivery)}`,
    h('div', { class: 'meta' }, when(at), number === '1' ? '' : `attempt ${number}`),
    response && h('pre', { class: 'value', 'aria-label': 'Answer' }, ...lines(response)),
    known && payload(event),
  );
}

// payload shows the event of a delivery when it is opened. Deliveries do not have it: who may
// see them need not be allowed to read the log.
function payload(/** @type {string} */ cursor) {
  const text = h('pre', { class: 'value' }, 'Loading…');
  const ontoggle = () => details.open && !details.dataset.loaded && tell(async () => {
    text.replaceChildren(...lines(await readEvent(cursor)));
    details.dataset.loaded = 'yes';
  }, (why) => { text.textContent = why; });
  const details = h('details', { ontoggle }, h('summary', {}, 'Event'), text);
  return details;
}

// readEvent returns the JSON of the event with this cursor. It is the one after its predecessor.
async function readEvent(/** @type {string} */ cursor) {
  const read = (/** @type {Record<string, string>} */ query) => call('GET', `${EVENTS}?${new URLSearchParams({ limit: '1', ...query })}`);
  const [previous] = (await read({ order: 'newest', before: cursor })).json();
  const { text, json } = await read(previous ? { after: previous.cursor } : {});
  return json()[0]?.cursor === cursor ? indent(text.trim().slice(1, -1)) : 'The log of changes no longer has this event.';
}

const test = (/** @type {Webhook} */ { id }) => tell(async () => {
  /** @type {Delivery} */
  const delivery = (await call('POST', `${WEBHOOKS}/${id}/test`)).json();
  tests.push(delivery);
  const bad = !succeeded(delivery);
  toast(sentence(`${bad ? 'The test failed' : 'The test was delivered'}: ${outcome(delivery)}`), { bad });
  await loadDeliveries(id);
});

// command resumes, pauses or tries a webhook.
const command = (/** @type {Webhook} */ { id }, /** @type {string} */ what, /** @type {string} */ said) => tell(async () => {
  await call('POST', `${WEBHOOKS}/${id}/${what}`);
  toast(said);
  startAlerts();
  await load();
});

function replay(/** @type {Webhook} */ { id, url }) {
  const periods = [['1', 'The last hour'], ['24', 'The last 24 hours'], ['168', 'The last 7 days']];
  const hours = h('select', {}, ...periods.map(([value, text]) => h('option', { value }, text)));
  openForm({
    title: 'Send events again?',
    body: [
      h('p', {}, `Everything that has changed since then will be sent to ${url}, in order, even if it was sent before.`),
      field('Period', hours),
    ],
    action: 'Replay',
    async run(options) {
      const since = new Date(Date.now() - Number(hours.value) * 3_600_000).toISOString();
      await call('POST', `${WEBHOOKS}/${id}/replay`, { ...options, body: JSON.stringify({ since }) });
      toast('The events are being sent again.');
      await load();
    },
  });
}

/** edit opens the form for a webhook, or for a new one. @param {Webhook | null} webhook */
function edit(webhook) {
  const input = (/** @type {Record<string, any>} */ properties) => h('input', { autocomplete: 'off', spellcheck: 'false', ...properties });
  const url = input({ id: 'webhook-url', type: 'url', value: webhook?.url ?? '', placeholder: 'https://example.com/hook', autofocus: '' });
  const description = input({ id: 'webhook-description', value: webhook?.description ?? '' });
  const resumes = webhook?.health === 'disabled'; // whoever repairs it wants that
  const types = checks('Changes to send', TYPES.map((value) => ({ value, text: '', checked: webhook?.types.includes(value) ?? true })));
  openForm({
    title: webhook ? 'Edit webhook' : 'New webhook',
    body: [field('URL', url, 'Where to send changes.'), types, field('What is it for? (optional)', description)],
    action: resumes ? 'Save and resume' : webhook ? 'Save' : 'Create',
    async run(options) {
      if (checked(types).length === 0) { // the server takes that for all
        throw new Failure(400, 'Choose at least one kind of change.');
      }
      const body = JSON.stringify({ url: url.value.trim(), types: checked(types), description: description.value.trim() });
      const [method, where] = webhook ? ['PUT', `${WEBHOOKS}/${webhook.id}`] : ['POST', WEBHOOKS];
      const made = (await call(method, where, { ...options, body })).json();
      if (resumes) {
        await call('POST', `${where}/resume`, options);
        startAlerts();
      }
      await load();
      if (webhook) {
        toast(`The webhook was saved${resumes ? ' and resumed' : ''}.${made.health === 'paused' ? ' It is still paused.' : ''}`);
        return undefined;
      }
      return () => {
        if (allows('webhooks:read')) {
          go({ page: 'webhooks', id: made.id });
        }
        secret('The webhook signs its messages with this secret:', made.secret);
      };
    },
  });
}

const secret = (/** @type {string} */ text, /** @type {string} */ value) => (
  showSecret({ title: 'Secret of the webhook', text, label: 'Secret', secret: value }));

function rotate(/** @type {Webhook} */ { id }) {
  openForm({
    title: 'Rotate the secret?',
    body: [h('p', {}, 'For 24 hours, messages are signed with both secrets, so that the receiver can change over without missing any.')],
    action: 'Rotate',
    async run(options) {
      const made = (await call('POST', `${WEBHOOKS}/${id}/rotate`, options)).json();
      return () => secret('This is the new secret:', made.secret);
    },
  });
}

function remove(/** @type {Webhook} */ { id, url }) {
  openForm({
    title: 'Delete this webhook?',
    body: [h('p', {}, `Nothing more will be sent to ${url}. This cannot be undone.`)],
    action: 'Delete',
    risky: true,
    async run(options) {
      await call('DELETE', `${WEBHOOKS}/${id}`, options);
      toast('The webhook was deleted.');
      startAlerts();
      await load();
      return () => { go({ page: 'webhooks' }); };
    },
  });
}

// The alerts on every page: webhooks that were disabled, or that have failed for a while, in one line.

const EVERY = 30_000;
const DISMISSED = 'plantstore.dismissed'; // the ids of webhooks are those of one store

let alerting = new AbortController();

/** startAlerts shows alerts until stopAlerts, if the token has the scope webhooks:read. */
export function startAlerts() {
  stopAlerts();
  const { signal } = alerting;
  if (allows('webhooks:read')) {
    poll(signal, EVERY, async () => {
      const all = alarming(await get(WEBHOOKS, { signal }), Date.now(), dismissed());
      redraw($('alerts'), all.length > 0 && alert(all));
    });
  }
}

export function stopAlerts() {
  alerting = renew(alerting);
  $('alerts').replaceChildren();
}

/** dismissed returns the alarms that the user has dismissed. @returns {string[]} */
function dismissed() {
  try {
    const all = JSON.parse(localStorage.getItem(DISMISSED) ?? '[]');
    return Array.isArray(all) ? all : [];
  } catch {
    return []; // what is stored hides no alert unless it says so
  }
}

/** alert returns one line about webhooks, until something else is wrong. @param {Webhook[]} all */
function alert(all) {
  const [{ id, url, reason, health, failing }] = all;
  const why = failing && health === 'failing'
    ? `Deliveries to ${url} have failed since ${time(failing.since)}: ${failing.error}` : `Nothing is sent to ${url}: ${reason}`;
  const one = all.length === 1;
  const text = one ? sentence(why) : all.map((webhook) => webhook.url).join(', ');
  const dismiss = () => {
    localStorage.setItem(DISMISSED, JSON.stringify([...dismissed().slice(-99), ...all.map(alarm)]));
    element.remove();
  };
  const element = h('p', { class: 'alert' },
    h('strong', {}, one ? `Webhook ${condition(all[0])}` : `${all.length} webhooks need attention`),
    ' ', h('span', { title: text }, text), ' ',
    h('a', { href: format({ page: 'webhooks', id: one ? id : '' }) }, 'Open'),
    h('button', { 'class': 'tool quiet', 'aria-label': 'Dismiss', 'title': 'Dismiss', 'onclick': dismiss }, icon('close')),
  );
  return element;
}
