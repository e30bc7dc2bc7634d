// Changes that can be undone for ten seconds: deleting a plant, and deleting or re-tagging the
// selected ones, which asks once before it.

import { deletePlant, getPlant, replacePlant } from './api.js';
import { h, toast } from './dom.js';
import { plural, sentence, shorten } from './format.js';
import { field, openForm } from './parts.js';
import { choose, focusRow, reload } from './plants.js';

/** @typedef {import('./api.js').Plant} Plant */

const SECONDS = 10;

/** @typedef {{id: string, name: string, tag?: string, after?: string}} Past a plant as it was */

/** @type {{run: () => void, close: () => void} | null} */
let last = null;

/** undoLast undoes what was offered last. It reports whether there was anything. */
export function undoLast() {
  const offered = last;
  last = null;
  offered?.close();
  offered?.run();
  return offered !== null;
}

export function forgetUndo() {
  last?.close();
  last = null;
}

/**
 * offerUndo shows a message with an undo. It restores the plants: those with an ETag after
 * only if they still have it, and the deleted ones only if nobody has created them since.
 * @param {string} message
 * @param {Past[]} plants
 */
export function offerUndo(message, plants) {
  const run = () => {
    last = null;
    restore(plants);
  };
  const shown = toast(message, { keep: true, seconds: SECONDS, actions: [['Undo', run]] });
  last = { run, close: shown.close };
  const offered = last;
  setTimeout(() => {
    last = last === offered ? null : last;
  }, SECONDS * 1000);
}

async function restore(/** @type {Past[]} */ plants) {
  /** @type {Past[]} */
  const left = []; // someone else has changed them
  /** @type {Past[]} */
  const failed = [];
  let reason = '';
  await each(plants, async (plant) => {
    try {
      await replacePlant(plant, plant.after, {});
    } catch (err) {
      if (err.status === 412) {
        left.push(plant);
      } else {
        failed.push(plant);
        reason = err.message;
      }
    }
  });
  await reload({ fresh: plants[0].id });
  if (failed.length > 0) {
    toast(`${plural(failed.length, 'plant')} could not be restored. ${sentence(reason)}`, { bad: true, actions: [['Try again', () => restore(failed)]] });
  }
  if (left.length > 0) {
    toast(left.length === 1 ? `Plant ${left[0].id} has been changed by someone else since. It was left as it is.` : `${plural(left.length, 'plant')} have been changed by someone else since. They were left as they are.`, { bad: true });
  }
  if (plants.length > left.length + failed.length) {
    toast(plants.length === 1 ? `Plant ${plants[0].id} is back as it was.` : `${plural(plants.length - left.length - failed.length, 'plant')} are back as they were.`);
  }
}

/**
 * each calls f for every item, a few at a time.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Promise<void>} f
 */
export async function each(items, f) {
  const queue = [...items];
  const work = async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await f(item);
    }
  };
  await Promise.all([work(), work(), work(), work()]);
}

/** askDelete asks whether to delete these plants. @param {Plant[]} plants */
export function askDelete(plants) {
  ask(plants, 'deleted', { title: `Delete ${plural(plants.length, 'plant')}?`, body: [], action: 'Delete', risky: true }, async (plant) => {
    await deletePlant(plant.id, plant.etag, {});
    return plant;
  });
}

/** askTag asks for a new tag of these plants. @param {Plant[]} plants */
export function askTag(plants) {
  const tag = /** @type {HTMLInputElement} */ (h('input', { id: 'bulk-tag', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'none', autofocus: '' }));
  const body = [field('New tag', tag, 'Leave it empty to remove the tag.')];
  ask(plants, 're-tagged', { title: `Change the tag of ${plural(plants.length, 'plant')}`, body, action: 'Change tag' }, async (plant) => {
    const { response } = await replacePlant({ ...plant, tag: tag.value || undefined }, plant.etag, {});
    return { ...plant, after: response.headers.get('ETag') ?? undefined };
  });
}

/**
 * ask opens the form, and then changes every plant that still is as the table shows it.
 * @param {Plant[]} plants
 * @param {string} verb what happens to them
 * @param {{title: string, body: HTMLElement[], action: string, risky?: boolean}} form
 * @param {(plant: Plant) => Promise<Past>} change returns what undoes it
 */
function ask(plants, verb, form, change) {
  const names = plants.slice(0, 3).map(({ id, name }) => (name ? shorten(name, 40) : `plant ${id}`));
  const text = `${names.join(', ')}${plants.length > 3 ? ` and ${plants.length - 3} more` : ''}. You can undo this for 10 seconds.`;
  openForm({
    ...form,
    body: [h('p', {}, text), ...form.body],
    async run({ say }) {
      /** @type {Past[]} */
      const done = [];
      let changed = 0;
      let reason = '';
      await each(plants, async (shown) => {
        if (reason) {
          return; // the rest would fail, too
        }
        try {
          const now = await getPlant(shown.id, {});
          if (now.name !== shown.name || now.tag !== shown.tag) {
            changed++;
            return;
          }
          done.push(await change(now));
        } catch (err) {
          if (err.status === 404 || err.status === 412) {
            changed++;
          } else {
            reason = err.message;
          }
        }
        say(`${done.length} of ${plants.length} done…`);
      });
      return async () => {
        choose();
        if (done.length > 0) {
          offerUndo(`${plural(done.length, 'plant')} ${done.length === 1 ? 'was' : 'were'} ${verb}.`, done);
        }
        if (changed > 0) {
          toast(`${plural(changed, 'plant')} ${changed === 1 ? 'was' : 'were'} left alone: someone else has changed or deleted ${changed === 1 ? 'it' : 'them'}.`, { bad: true });
        }
        if (reason) {
          toast(`Not every plant was ${verb}. ${sentence(reason)}`, { bad: true });
        }
        await reload({ fresh: done[0]?.id });
        focusRow(done[0]?.id);
      };
    },
  });
}
