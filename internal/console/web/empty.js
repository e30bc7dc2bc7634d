// What the page of plants shows instead of rows: why there are none, and what to do about it.

import { PLANTS, allows } from './api.js';
import { $, h, icon } from './dom.js';
import { sentence, shorten } from './format.js';
import { loadSamples, openImport } from './import.js';
import { filtered, list, reload } from './list.js';
import { copy, message } from './parts.js';
import { go, state } from './route.js';
import { newPlant } from './rows.js';

const firstPage = () => go({ page: 'plants' });

// renderMessage says why there are no rows. A message that is already shown stays as it is,
// with the focus in it; so does the last one until the plants that are wanted are there.
export function renderMessage() {
  $('state').hidden = list.plants.length > 0;
  const forbidden = !allows('plants:read');
  $('plants').hidden ||= forbidden;
  if (list.plants.length > 0 || (list.loaded !== list.query && !forbidden)) {
    return;
  }
  const kind = forbidden ? 'forbidden' : list.failure ? list.failure.message : list.status === 'searching' ? list.status : 'empty';
  const key = JSON.stringify([kind, list.query, allows('plants:write')]);
  if ($('state').dataset.key !== key) {
    $('state').dataset.key = key;
    $('state').replaceChildren(messageOf(kind));
  }
}

function messageOf(/** @type {string} */ kind) {
  const { failure } = list;
  if (kind === 'forbidden') {
    return message('Your token cannot list plants', 'It needs the scope plants:read. You can still use everything else that it allows.');
  }
  if (failure?.code === '40007') {
    const byID = () => go({ ...state(), order: '', after: '' });
    const how = 'The server sorts at most 1,000,000 plants by name. Filter by tags first, or sort by ID.';
    return message('Too many plants to sort by name', how, ['Sort by ID', byID]);
  }
  if (failure) {
    const title = failure.status === 0 ? 'Server unreachable' : 'Something went wrong';
    return message(title, sentence(failure.message), ['Try again', () => reload()]);
  }
  if (kind === 'searching') {
    return message('Searching…', 'There are many plants. Matches appear here as they are found.');
  }
  const { q, tags, untagged, after } = list;
  if (filtered()) {
    const either = [...tags.map((tag) => `the tag “${shorten(tag, 80)}”`), ...(untagged ? ['no tag'] : [])].join(' or ');
    const parts = [q && `“${shorten(q, 80)}” in its name`, either].filter(Boolean);
    const note = q ? ' Case and accents do not matter, but letters such as ł and ø are not l and o.' : '';
    return message('No matches', `No plant has ${parts.join(' and ')}.${note}`, ['Show all plants', firstPage]);
  }
  if (after) {
    return message('This page is empty', 'Its plants have been deleted.', ['Back to the first page', firstPage]);
  }
  return allows('plants:write') ? welcome() : message('No plants yet', 'Your token can read plants, but not create them.');
}

// welcome is for an empty store.
function welcome() {
  const element = message(
    'No plants yet',
    'Create the first one, drop a file of plants anywhere on this page, or use the API:',
    ['New plant', newPlant, 'first'],
    ['Import', openImport],
    ['Load 20 sample plants', loadSamples, 'samples'],
  );
  const command = [
    `curl ${PLANTS} -H "Authorization: Bearer $PLANTSTORE_TOKEN" -H 'Content-Type: application/json'`,
    `-d '{"id": 1, "name": "Monstera", "tag": "tropical"}'`,
  ].join(' ');
  const onclick = () => copy(command, 'Command');
  const button = h('button', { class: 'tool quiet', title: 'Copy', 'aria-label': 'Copy the command', onclick }, icon('copy'));
  element.querySelector('p')?.after(h('div', { class: 'snippet' }, h('code', {}, command), button));
  return element;
}
