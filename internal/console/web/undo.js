// Undoing a delete or a new tag, for ten seconds.

import { replacePlant } from './api.js';
import { toast } from './dom.js';
import { plural, sentence } from './format.js';
import { reload } from './plants.js';

const SECONDS = 10;

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
 * @param {{id: string, name: string, tag?: string, after?: string}[]} plants
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

async function restore(/** @type {{id: string, name: string, tag?: string, after?: string}[]} */ plants) {
  const left = []; // someone else has changed them
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
