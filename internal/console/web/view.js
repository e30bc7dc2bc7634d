// How a plant is shown in the drawer: what it is, or was before it was deleted, and its history, which
// can become the present again.

import { PLANTS, allows, names, replacePlant } from './api.js';
import { $, busily, h, value, when } from './dom.js';
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
 * @typedef {{events: LogEvent[], older: string, known: Map<string, string>}} Past the part of a plant's history
 *   that was read, newest first, the cursor before which there may be more, and the names of those who did it
 */

const PAGE = 200; // events that are read at once

// readHistory reads the history of a plant on from what was read.
/** @type {(id: string, signal: AbortSignal, past?: Past) => Promise<Past>} */
export async function readHistory(id, signal, past) {
  const known = await names();
  const { events, older } = await readBack({ id }, past?.older ?? '', PAGE, signal);
  signal.throwIfAborted(); // the response may have been there already
  return { events: [...past?.events ?? [], ...events], older, known };
}

/** who names who did it. @param {LogEvent} event @param {{known: Map<string, string>}} names */
export const who = ({ by }, { known }) => known.get(by) ?? by;

// restore makes a plant what it was before, if it still is as it is now, or if now is null and
// there still is none. It returns the plant, and offers to undo that.
/** @type {(plant: Plant, now: Plant | null) => Promise<Plant>} */
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

// drawPlant shows a plant, or what it was before the event that deleted it.
/** @type {(plant: Plant, deletion: LogEvent | null, past: Past | null) => void} */
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
    ['Tag', value(tag), tag && [' ', h('button', { class: 'tag', onclick: showTag }, 'Show all with this tag')]],
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

// drawHistory shows the history of a plant, and what of it differs from what is shown.
/** @type {(past: Past, shown: Plant, actions: {more: () => void, restoreTo: (plant: Plant) => Promise<void>}) => void} */
export function drawHistory(past, shown, { more, restoreTo }) {
  const { events, older } = past;
  $('history').replaceChildren(...events.map((event, i) => {
    const { name, tag } = event.plant;
    const offered = allows('plants:write') && event.type !== 'plant.deleted' && (name !== shown.name || tag !== shown.tag);
    const onclick = busily(() => restoreTo(event.plant));
    return entry(event, events[i + 1], past, offered && h('button', { 'data-testid': 'restore-version', onclick }, 'Restore this version'));
  }));
  const none = `The log of changes has none of this plant${older ? ' among the newest. ' : '.'}`;
  $('history-status').replaceChildren(
    events.length === 0 ? none : '', older ? h('button', { onclick: more }, 'Look further back') : '');
}

// entry shows what happened to a plant at a time.
/** @type {(event: LogEvent, previous: LogEvent | undefined, past: Past, action: Node | false) => HTMLElement} */
function entry(event, previous, past, action) {
  const before = previous && previous.type !== 'plant.deleted' ? previous.plant : null;
  const brief = (/** @type {string | undefined} */ text) => value(text && shorten(text, 200));
  const difference = ([name, key] = ['', '']) => event.type !== 'plant.deleted' && event.plant[key] !== before?.[key]
    && h('div', {}, `${name}: `, before && [h('del', {}, brief(before[key])), ' → '], brief(event.plant[key]));
  const meta = h('div', { class: 'meta' },
    h('strong', {}, happened(event)), h('span', {}, `by ${who(event, past)}`), when(event.time), action);
  return h('li', {}, meta, difference(['Name', 'name']), difference(['Tag', 'tag']));
}
