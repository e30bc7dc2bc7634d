// What needs attention: webhooks that were disabled.

import { allows, call, WEBHOOKS } from './api.js';
import { $, h, toast } from './dom.js';
import { parse } from './json.js';

const EVERY = 30_000;

let timer;
let running = new AbortController();

// startAlerts shows alerts until stopAlerts, if the token has the scope webhooks:read.
export function startAlerts() {
  stopAlerts();
  if (!allows('webhooks:read')) {
    return;
  }
  running = new AbortController();
  watch(running.signal);
}

export function stopAlerts() {
  running.abort();
  clearTimeout(timer);
  $('alerts').replaceChildren();
}

async function watch(signal) {
  try {
    const { text } = await call('GET', WEBHOOKS, { signal });
    show(parse(text).filter((webhook) => webhook.state === 'disabled'), signal);
  } catch (err) {
    if (signal.aborted || err.status === 401 || err.status === 403) {
      return; // the token lacks the scope, or is no longer valid
    }
  }
  timer = setTimeout(() => watch(signal), EVERY);
}

function show(disabled, signal) {
  $('alerts').replaceChildren(...disabled.map((webhook) => h(
    'div',
    { class: 'alert' },
    h('p', {}, h('strong', {}, 'Webhook disabled'), ` Nothing is sent to ${webhook.url}: ${webhook.reason}.`),
    h('button', { type: 'button', onclick: () => resume(webhook, signal) }, 'Resume'),
  )));
}

async function resume(webhook, signal) {
  try {
    await call('POST', `${WEBHOOKS}/${webhook.id}/resume`, { signal });
    toast('Webhook resumed');
    startAlerts();
  } catch (err) {
    if (!signal.aborted) {
      toast(err.message, { bad: true });
    }
  }
}
