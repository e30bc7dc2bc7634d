// The page of webhooks: the list, and one of them with its deliveries beside it; and the
// alerts on all pages.

import { Failure, WEBHOOKS, allows, call, handled } from './api.js';
import { $, busy, h, icon, toast, when } from './dom.js';
import { plural, sentence } from './format.js';
import { checked, checks, fact, facts, field, listPage, message, openForm, showSecret, tell, words } from './parts.js';
import { go, state } from './route.js';
import { format } from './state.js';

const TYPES = ['plant.created', 'plant.replaced', 'plant.deleted'];

/**
 * @typedef {object} Webhook
 * @property {string} id
 * @property {string} url
 * @property {string[]} types
 * @property {string} description
 * @property {string} state
 * @property {string} [reason]
 * @property {string} created
 * @property {string} [by]
 *
 * @typedef {object} Delivery
 * @property {string} event
 * @property {string} type
 * @property {string} attempt
 * @property {string} time
 * @property {string} status
 * @property {string} duration_ms
 * @property {string} [error]
 * @property {string} [response]
 */

const { page: list, load } = listPage({ title: 'Webhooks', noun: 'webhook', url: WEBHOOKS, draw, create: () => edit(null), reads: 'events:read' });

/** @type {import('./console.js').Page} */
export const page = {
  ...list,
  key(key) {
    if (key !== 'Escape' || !state().id) {
      return false;
    }
    go({ page: 'webhooks' });
    return true;
  },
};

/** @type {HTMLElement} */
let drawer;
/** @type {Delivery[]} */
let tests = []; // of the webhook in the drawer. The server keeps none.

// draw shows the webhooks, and the one that the URL names beside them.
function draw(/** @type {HTMLElement} */ place, /** @type {Webhook[]} */ webhooks) {
  const { id } = state();
  if (!place.contains(drawer)) {
    drawer = h('aside', { class: 'drawer', 'aria-labelledby': 'webhook-title' });
  }
  place.replaceChildren(webhooks.length > 0 ? h('ul', { class: 'records' }, ...webhooks.map((webhook) => row(webhook, webhook.id === id))) : empty(), drawer);
  const open = webhooks.find((webhook) => webhook.id === id);
  const fresh = drawer.dataset.id !== id;
  drawer.hidden = id === '';
  drawer.dataset.id = id;
  if (id === '') {
    drawer.replaceChildren();
  } else if (open) {
    show(open, fresh);
  } else {
    drawer.replaceChildren(heading('Webhook'), h('div', { class: 'drawer-body' }, h('p', { class: 'problem' }, 'There is no such webhook.')));
  }
}

const empty = () => message('No webhooks', 'A webhook sends every change to a URL, signed, until it arrives.');

const badge = (/** @type {Webhook} */ { state: now }) => h('span', { class: now === 'active' ? 'badge' : 'badge bad' }, now);

function row(/** @type {Webhook} */ webhook, /** @type {boolean} */ open) {
  const { id, url, description, types, created } = webhook;
  return h(
    'li',
    { 'data-id': id, class: open ? 'open' : undefined },
    h('div', { class: 'who' }, h('a', { href: format({ page: 'webhooks', id }), 'aria-current': open ? 'true' : undefined }, url), badge(webhook), ...(description ? [h('span', { dir: 'auto' }, description)] : [])),
    words('Changes', types),
    h('dl', {}, fact('Created', when(created))),
  );
}

const heading = (/** @type {string} */ title) => h(
  'header',
  {},
  h('h2', { id: 'webhook-title', tabindex: '-1' }, title),
  h('button', { class: 'tool quiet', 'aria-label': 'Close', title: 'Close', onclick: () => go({ page: 'webhooks' }) }, icon('close')),
);

function show(/** @type {Webhook} */ webhook, /** @type {boolean} */ fresh) {
  const { id, url, description, types, created, by, reason } = webhook;
  const buttons = h('div', { class: 'buttons' });
  /** @type {(name: string, run: (button: HTMLElement) => void, kind?: string) => void} */
  const action = (name, run, kind) => {
    const button = h('button', { class: kind, onclick: () => run(button) }, name);
    buttons.append(button);
  };
  if (allows('webhooks:write') && allows('events:read')) {
    if (webhook.state === 'disabled') {
      action('Resume', (button) => busy(button, () => resume(webhook)), 'primary');
    }
    action('Send a test', (button) => busy(button, () => test(webhook)));
    action('Edit', () => edit(webhook));
  }
  if (allows('webhooks:write')) {
    action('Rotate secret', () => rotate(webhook));
    action('Delete', () => remove(webhook), 'risky');
  }
  const deliveries = drawer.querySelector('.deliveries');
  drawer.replaceChildren(heading(url), h(
    'div',
    { class: 'drawer-body' },
    h(
      'dl',
      { class: 'facts' },
      ...facts(
        ['URL', h('span', { class: 'value' }, url)],
        .../** @type {[string, Node][]} */ (description ? [['For', h('span', { class: 'value', dir: 'auto' }, description)]] : []),
        ['State', badge(webhook), ...(reason ? [h('p', { class: 'problem' }, sentence(reason))] : [])],
        ['Changes', types.join(', ')],
        ['Created', when(created), by ? ` by ${by}` : ''],
        ['ID', h('code', {}, id)],
      ),
    ),
    buttons,
    h('h3', { id: 'deliveries-title' }, 'Deliveries'),
    !fresh && deliveries ? deliveries : h('div', { class: 'deliveries', 'aria-labelledby': 'deliveries-title', role: 'region', tabindex: '0' }),
  ));
  if (fresh) {
    drawer.querySelector('h2')?.focus();
    tests = [];
    loadDeliveries(id);
  }
}

async function loadDeliveries(/** @type {string} */ id) {
  const list = /** @type {HTMLElement} */ (drawer.querySelector('.deliveries'));
  try {
    /** @type {Delivery[]} */
    const sent = (await call('GET', `${WEBHOOKS}/${id}/deliveries`)).json();
    const all = [...tests, ...sent].sort((a, b) => Date.parse(b.time) - Date.parse(a.time));
    const again = h('button', { class: 'quiet', onclick: () => busy(again, () => loadDeliveries(id)) }, 'Refresh');
    list.replaceChildren(
      h('div', { class: 'meta' }, h('span', {}, all.length > 0 ? `${plural(all.length, 'attempt')}${all.length > 1 ? ', newest first' : ''}` : 'Nothing was sent yet.'), again),
      h('ol', { class: 'history' }, ...all.map(attempt)),
    );
  } catch (err) {
    if (!handled(err)) {
      list.replaceChildren(h('p', { class: 'problem' }, sentence(err.message)));
    }
  }
}

const succeeded = (/** @type {Delivery} */ { status }) => /^2..$/.test(status);

/** outcome says in a few words how an attempt ended. @param {Delivery} delivery */
function outcome(delivery) {
  const { status, error, duration_ms: ms } = delivery;
  return status === '0' ? `no response: ${error ?? 'unknown'}` : `${status} in ${ms} ms`;
}

function attempt(/** @type {Delivery} */ delivery) {
  const { type, time, attempt: number, response } = delivery;
  return h(
    'li',
    {},
    h('span', { class: succeeded(delivery) ? 'badge' : 'badge bad' }, succeeded(delivery) ? 'ok' : 'failed'),
    ` ${type}: ${outcome(delivery)}`,
    h('div', { class: 'meta' }, when(time), number === '1' ? '' : `attempt ${number}`),
    ...(response && !succeeded(delivery) ? [h('pre', { class: 'value' }, response)] : []),
  );
}

async function test(/** @type {Webhook} */ { id }) {
  await tell(async () => {
    /** @type {Delivery} */
    const delivery = (await call('POST', `${WEBHOOKS}/${id}/test`)).json();
    tests.push(delivery);
    toast(succeeded(delivery) ? `The test arrived: ${outcome(delivery)}.` : sentence(`the test failed: ${outcome(delivery)}`), { bad: !succeeded(delivery) });
    await loadDeliveries(id);
  });
}

async function resume(/** @type {Webhook} */ { id }) {
  await tell(async () => {
    await call('POST', `${WEBHOOKS}/${id}/resume`);
    toast('The webhook was resumed.');
    startAlerts();
    await load();
  });
}

/** edit opens the form for a webhook, or for a new one. @param {Webhook | null} webhook */
function edit(webhook) {
  const input = (/** @type {Record<string, any>} */ properties) => /** @type {HTMLInputElement} */ (h('input', { autocomplete: 'off', spellcheck: 'false', ...properties }));
  const url = input({ id: 'webhook-url', type: 'url', value: webhook?.url ?? '', placeholder: 'https://example.com/hook', autofocus: '' });
  const description = input({ id: 'webhook-description', value: webhook?.description ?? '' });
  const types = checks('Changes to send', TYPES.map((value) => ({ value, text: '', checked: webhook?.types.includes(value) ?? true })));
  openForm({
    title: webhook ? 'Edit webhook' : 'New webhook',
    body: [field('URL', url, 'Where to send changes.'), types, field('What is it for? (optional)', description)],
    action: webhook ? 'Save' : 'Create',
    async run(options) {
      if (checked(types).length === 0) { // the server takes that for all
        throw new Failure(400, 'Choose at least one kind of change.');
      }
      const body = JSON.stringify({ url: url.value.trim(), types: checked(types), description: description.value.trim() });
      const headers = { 'Content-Type': 'application/json' };
      const { json } = await call(webhook ? 'PUT' : 'POST', webhook ? `${WEBHOOKS}/${webhook.id}` : WEBHOOKS, { ...options, body, headers });
      const made = json();
      await load();
      if (webhook) {
        toast('The webhook was saved.');
        return undefined;
      }
      return () => {
        if (allows('webhooks:read')) {
          go({ page: 'webhooks', id: made.id });
        }
        secret('This secret signs what the webhook sends:', made.secret);
      };
    },
  });
}

const secret = (/** @type {string} */ text, /** @type {string} */ value) => showSecret({ title: 'Secret of the webhook', text, label: 'Secret', secret: value });

function rotate(/** @type {Webhook} */ { id }) {
  openForm({
    title: 'Rotate the secret?',
    body: [h('p', {}, 'For 24 hours both secrets sign what is sent, so that the receiver can change over without missing anything.')],
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
    body: [h('p', {}, `Nothing more is sent to ${url}. This cannot be undone.`)],
    action: 'Delete',
    risky: true,
    async run(options) {
      await call('DELETE', `${WEBHOOKS}/${id}`, options);
      toast('The webhook was deleted.');
      startAlerts();
      await load();
      return () => {
        go({ page: 'webhooks' });
      };
    },
  });
}

// The alerts on every page: webhooks that were disabled.

const EVERY = 30_000;

/** @type {ReturnType<typeof setTimeout>} */
let timer;
let running = new AbortController();

/** startAlerts shows alerts until stopAlerts, if the token has the scope webhooks:read. */
export function startAlerts() {
  stopAlerts();
  running = new AbortController();
  if (allows('webhooks:read')) {
    watch(running.signal);
  }
}

export function stopAlerts() {
  running.abort();
  clearTimeout(timer);
  $('alerts').replaceChildren();
}

async function watch(/** @type {AbortSignal} */ signal) {
  try {
    /** @type {Webhook[]} */
    const all = (await call('GET', WEBHOOKS, { signal })).json();
    $('alerts').replaceChildren(...all.filter((webhook) => webhook.state === 'disabled').map(({ id, url, reason }) => h(
      'p',
      { class: 'alert' },
      h('strong', {}, 'Webhook disabled'),
      ` Nothing is sent to ${url}: ${reason}. `,
      h('a', { href: format({ page: 'webhooks', id }) }, 'Open'),
    )));
  } catch (err) {
    if (handled(err) || err.status === 403) {
      return; // the token lacks the scope, or is no longer valid
    }
  }
  timer = setTimeout(() => watch(signal), EVERY);
}
