// How a plant is shown in the drawer: what it is, or was before it was deleted, and its history, which
// can become the present again.

import { PLANTS, allows, names, replacePlant } from './api.js';
import { $, busy, h, value, when } from './dom.js';
import { readBack } from './feed.js';
import { happened, shorten } from './format.js';
import { plantJSON } from './json.js';
import { facts } from './parts.js';
import { go } from './route.js';
import { offerUndo } from './undo.js';

/**
 * @typedef {import('./api.js').Plant} Plant
 * @typedef {import('./feed.js').LogEvent} LogEvent
 *
 * @typedef {object} Past the part of a plant's history that was read
 * @property {LogEvent[]} events newest first
 * @property {string} older the cursor before which there may be more, or empty
 * @property {Map<string, string>} known the names of those who did it
 */

const PAGE = 200; // events that are read at once

/**
 * readHistory reads the history of a plant on from what was read.
 * @param {string} id
 * @param {AbortSignal} signal
 * @param {Past} [past]
 * @returns {Promise<Past>}
 */
export async function readHistory(id, signal, past) {
  const known = await names();
  const { events, older } = await readBack({ id }, past?.older ?? '', PAGE, signal);
  signal.throwIfAborted(); // the response may have been there already
  return { events: [...past?.events ?? [], ...events], older, known };
}

/** who names who did it. @param {LogEvent} event @param {{known: Map<string, string>}} names */
export const who = ({ by }, { known }) => known.get(by) ?? by;

/**
 * restore makes a plant what it was before, if it still is as it is now, or if now is null and
 * there still is none. It returns the plant, and offers to undo that.
 * @param {Plant} plant
 * @param {Plant | null} now
 * @returns {Promise<Plant>}
 */
export async function restore(plant, now) {
  const restored = await replacePlant(plant, now);
  offerUndo(`Plant ${plant.id} was restored.`, [{ ...(now ?? plant), version: restored.version }], now ? 'replace' : 'delete');
  return restored;
}

/** reveal shows the form, the view, or none of them. @param {'plant' | 'plant-view' | ''} part */
export function reveal(part) {
  $('plant').hidden = part !== 'plant';
  $('plant-view').hidden = part !== 'plant-view';
}

/** title names the drawer. @param {string} id */
export function title(id) {
  $('drawer-title').replaceChildren(...(id === 'new' ? ['New plant'] : ['Plant ', h('span', { class: 'mono' }, id)]));
  $('copy-id').hidden = id === 'new';
}

/**
 * drawPlant shows a plant, or what it was before the event that deleted it.
 * @param {Plant} plant
 * @param {LogEvent | null} deletion
 * @param {Past | null} past
 */
export function drawPlant({ id, name, tag }, deletion, past) {
  const writes = allows('plants:write');
  $('plant-gone').hidden = !deletion;
  $('plant-gone').replaceChildren(...(deletion && past ? [`Deleted by ${who(deletion, past)} `, when(deletion.time)] : []));
  $('restore-plant').hidden = !deletion || !writes;
  $('edit-plant').hidden = $('delete-plant').hidden = deletion !== null || !writes;
  $('copy-curl').hidden = deletion !== null;
  const showTag = () => go({ page: 'plants', id, tags: [tag ?? ''] });
  $('plant-facts').replaceChildren(...facts(
    ['ID', h('span', { class: 'mono' }, id)],
    ['Name', value(name)],
    ['Tag', value(tag), ...(tag ? [' ', h('button', { class: 'tag', onclick: showTag }, 'Show all with this tag')] : [])],
  ));
  $('plant-history').hidden = !allows('events:read');
}

// curl returns a command that saves the plant as it is. The token is a variable: a command
// ends up in logs and chats.
export function curl(/** @type {Plant} */ { id, name, tag }) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", `'\\''`)}'`;
  return [
    `curl -X PUT ${quote(`${PLANTS}/${id}`)}`,
    '-H "Authorization: Bearer $PLANTSTORE_TOKEN"',
    "-H 'Content-Type: application/json'",
    `-d ${quote(plantJSON({ name, tag }))}`,
  ].join(' \\\n  ');
}

/** same reports whether both are the same but for their versions. @param {Plant} one @param {Plant} other */
const same = (one, other) => one.name === other.name && one.tag === other.tag;

/**
 * drawHistory shows the history of a plant.
 * @param {Past} past
 * @param {Plant} shown what the plant is, or was before it was deleted
 * @param {{more: () => void, restoreTo: (plant: Plant) => Promise<void>}} actions
 */
export function drawHistory(past, shown, { more, restoreTo }) {
  const { events, older } = past;
  $('history').replaceChildren(...events.map((event, i) => {
    const offered = allows('plants:write') && event.type !== 'plant.deleted' && !same(event.plant, shown);
    const back = h('button', { 'data-testid': 'restore-version', onclick: () => busy(back, () => restoreTo(event.plant)) },
      'Restore this version');
    return entry(event, events[i + 1], past, offered ? [back] : []);
  }));
  const none = `The log of changes has none of this plant${older ? ' among the newest. ' : '.'}`;
  $('history-status').replaceChildren(events.length === 0 ? none : '');
  if (older) {
    $('history-status').append(h('button', { onclick: more }, 'Look further back'));
  }
}

/**
 * entry shows what happened to a plant at a time.
 * @param {LogEvent} event
 * @param {LogEvent | undefined} previous
 * @param {Past} past
 * @param {Node[]} actions
 */
function entry(event, previous, past, actions) {
  const before = previous && previous.type !== 'plant.deleted' ? previous.plant : null;
  /** @type {Node[]} */
  const parts = [];
  for (const [name, key] of [['Name', 'name'], ['Tag', 'tag']]) {
    if (event.type === 'plant.deleted' || (before && before[key] === event.plant[key]) || (!before && event.plant[key] === undefined)) {
      continue;
    }
    const brief = (/** @type {string | undefined} */ text) => value(text && shorten(text, 200));
    parts.push(h('div', {}, `${name}: `, ...(before ? [h('del', {}, brief(before[key])), ' → '] : []), brief(event.plant[key])));
  }
  const meta = [h('strong', {}, happened(event)), h('span', {}, `by ${who(event, past)}`), when(event.time), ...actions];
  return h('li', {}, h('div', { class: 'meta' }, ...meta), ...parts);
}
