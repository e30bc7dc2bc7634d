// Changes of others, merged into a page of plants. It touches no DOM.

import { hasWords, plain } from './format.js';
import { byName } from './state.js';

/** @typedef {import('./api.js').Plant} Plant */
/** @typedef {import('./list.js').List} List */

// merge applies changes to the page, and returns the ids of the plants that look different now.
// Nothing jumps: no plant comes or goes.
export function merge(/** @type {List} */ list, /** @type {import('./feed.js').LogEvent[]} */ events) {
  const differ = [];
  for (const { type, plant } of events.filter((event) => event.plant)) {
    const at = list.plants.findIndex(({ id }) => id === plant.id);
    if (type === 'plant.deleted') {
      list.created.delete(plant.id);
      if (at >= 0) {
        list.deleted.add(plant.id);
      }
    } else if (at >= 0) {
      const { name, tag } = list.plants[at];
      list.plants[at] = plant;
      if (list.selected.has(plant.id)) {
        list.selected.set(plant.id, plant);
      }
      if (list.deleted.delete(plant.id) || name !== plant.name || tag !== plant.tag) {
        differ.push(plant.id);
      }
    } else if (belongs(list, plant)) {
      list.created.add(plant.id);
    }
  }
  return differ;
}

// belongs reports whether a plant would be on this page. In an order by name the page begins with its
// first plant: a position there is opaque.
function belongs(/** @type {List} */ list, /** @type {Plant} */ plant) {
  const { q, tags, untagged, order, after, next, plants } = list;
  const filtersTags = tags.length > 0 || untagged;
  if (!hasWords(plant.name, q) || (filtersTags && !(plant.tag === undefined ? untagged : tags.includes(plant.tag)))) {
    return false;
  }
  const [begin, end] = [byName(list) ? plants[0] : { id: after, name: '' }, plants.at(-1)];
  return (!after || !begin || comesAfter(order, plant, begin)) && (!next || !end || comesAfter(order, end, plant));
}

// comesAfter reports whether one plant is after another in the order.
function comesAfter(/** @type {string} */ order, /** @type {Plant} */ one, /** @type {Plant} */ other) {
  const keys = (/** @type {Plant} */ { id, name }) => [...(byName({ order }) ? [plain(name).toLowerCase(), name] : []), BigInt(id)];
  const [a, b] = [keys(one), keys(other)];
  const at = a.findIndex((key, i) => key !== b[i]);
  return at >= 0 && a[at] > b[at] === !order.startsWith('-');
}
