// Changes that can be undone for ten seconds: deleting a plant, and deleting or re-tagging the
// selected ones, which asks once before it.

import { deletePlant, importFile, replacePlant } from './api.js';
import { h, toast } from './dom.js';
import { count, plural, sentence, shorten } from './format.js';
import { plantJSON } from './json.js';
import { list, reload, select } from './list.js';
import { field, openForm } from './parts.js';
import { focusRow } from './rows.js';
import { suggestTags } from './suggest.js';
import { sleep } from './wait.js';

/** @typedef {import('./api.js').Plant} Plant */

const SECONDS = 10;
const MANY = 50; // plants of which the progress is shown
const BATCH = 1000; // deleted plants that one request restores
const AT_ONCE = 6; // requests, as many as a browser has connections
const TOLD = 100; // milliseconds between two numbers of the progress
const PAUSE = 1000; // after the server has said that it gets too many requests

/** @typedef {Plant & {after?: Plant, added?: boolean}} Past a plant as it was, and as it has been changed */

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
 * offerUndo shows a message with an undo. It restores the plants: the changed ones only if they
 * still are as they were after that, and the deleted ones only if nobody has created them since. In
 * the modes replace and delete, it replaces or deletes those that still have their version.
 * @param {string} message
 * @param {Past[]} changed
 * @param {'create' | 'replace' | 'delete'} [mode]
 */
export function offerUndo(message, changed, mode = 'create') {
  const plants = changed.map((plant) => ({
    ...plant, ...(mode === 'replace' && { after: plant }), ...(mode === 'delete' && { added: true }),
  }));
  const run = () => {
    last = null;
    restore(plants);
  };
  const shown = toast(message, { keep: true, seconds: SECONDS, actions: [['Undo', run, 'undo']] });
  last = { run, close: shown.close };
  const offered = last;
  setTimeout(() => {
    last = last === offered ? null : last;
  }, SECONDS * 1000);
}

async function restore(/** @type {Past[]} */ plants) {
  /** @type {Past[]} */
  const failed = [];
  let left = 0; // someone else has changed them
  let reason = '';
  let done = 0;
  const progress = plants.length > MANY ? toast('Restoring…', { keep: true }) : null;
  const size = plants[0].after || plants[0].added ? 1 : BATCH;
  const batches = Array.from({ length: Math.ceil(plants.length / size) }, (_, i) => plants.slice(i * size, (i + 1) * size));
  await each(batches, async (batch) => {
    const [{ after }] = batch;
    try {
      if (after) {
        await patiently(() => replacePlant(batch[0], after));
      } else if (batch[0].added) {
        await patiently(() => deletePlant(batch[0]));
      } else {
        const body = new Blob(batch.map((plant) => `${plantJSON(plant)}\n`), { type: 'application/x-ndjson' });
        const { failed: refused } = await patiently(() => importFile(body));
        left += Number(refused);
      }
    } catch (err) {
      if (err.status === 412 || err.status === 404) {
        left++;
      } else {
        failed.push(...batch);
        reason = err.message;
      }
    }
    done += batch.length;
    progress?.say(`Restoring… ${count(done)} of ${count(plants.length)}`);
  });
  progress?.close();
  await reload({ changed: plants[0].id });
  if (failed.length > 0) {
    const text = `${plural(failed.length, 'plant')} could not be restored. ${sentence(reason)}`;
    toast(text, { bad: true, actions: [['Try again', () => restore(failed)]] });
  }
  if (left > 0) {
    toast(leftAlone(left), { bad: true });
  }
  const back = plants.length - left - failed.length;
  if (back > 0) {
    const were = plants[0].added ? 'is deleted again' : back === 1 ? 'is back as it was' : 'are back as they were';
    toast(`${plants.length === 1 ? `Plant ${plants[0].id}` : plural(back, 'plant')} ${were}.`);
  }
}

/**
 * each calls f for every item, a few at a time, until the signal.
 * @template T
 * @param {T[]} items
 * @param {(item: T) => Promise<void>} f
 * @param {AbortSignal} [signal]
 */
async function each(items, f, signal) {
  const queue = items.values();
  const work = async () => {
    for (const item of queue) {
      await f(item);
      if (signal?.aborted) {
        return;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/**
 * patiently calls f again as long as the server says that the token sends too many requests.
 * @template T
 * @param {() => Promise<T>} f
 * @returns {Promise<T>}
 */
async function patiently(f) {
  for (;;) {
    try {
      return await f();
    } catch (err) {
      if (err.status !== 429) {
        throw err;
      }
    }
    await sleep(PAUSE);
  }
}

/** askDelete asks whether to delete these plants. @param {Plant[]} plants */
export function askDelete(plants) {
  const form = { title: `Delete ${plural(plants.length, 'plant')}?`, body: [], action: 'Delete', risky: true };
  ask(plants, 'deleted', form, async (plant) => {
    await deletePlant(plant);
    return plant;
  });
}

/** askTag asks for a new tag of these plants. @param {Plant[]} plants */
export function askTag(plants) {
  const tag = h('input', { id: 'bulk-tag', spellcheck: 'false', autofocus: '' });
  const body = [field('New tag', tag, 'Leave it empty to remove the tag.')];
  suggestTags(tag, 'options line');
  ask(plants, 're-tagged', { title: `Change the tag of ${plural(plants.length, 'plant')}`, body, action: 'Change tag' }, async (plant) => {
    return { ...plant, after: await replacePlant({ ...plant, tag: tag.value || undefined }, plant) };
  });
}

/**
 * ask opens the form, and then changes every plant that still is as the table shows it, until
 * the form is closed.
 * @param {Plant[]} plants
 * @param {string} verb what happens to them
 * @param {{title: string, body: HTMLElement[], action: string, risky?: boolean}} form
 * @param {(plant: Plant) => Promise<Past>} change returns what undoes it
 */
function ask(plants, verb, form, change) {
  const names = plants.slice(0, 3).map(({ id, name }) => (name ? shorten(name, 40) : `plant ${id}`));
  const text = `${names.join(', ')}${plants.length > 3 ? ` and ${count(plants.length - 3)} more` : ''}. You can undo this for 10 seconds.`;
  const gone = plants.filter(({ id }) => list.deleted.has(id)).length;
  openForm({
    ...form,
    body: [h('p', {}, text), ...(gone > 0 ? [h('p', { class: 'problem' }, leftAlone(gone, 'will be'))] : []), ...form.body],
    async run({ say, signal }) {
      /** @type {Past[]} */
      const done = [];
      let changed = 0;
      let told = 0;
      let reason = '';
      await each(plants, async (plant) => {
        if (reason) {
          return; // the rest would fail, too
        }
        try {
          done.push(await patiently(() => change(plant)));
        } catch (err) {
          if (err.status === 404 || err.status === 412) {
            changed++;
          } else {
            reason = err.message;
          }
        }
        if (performance.now() - told >= TOLD) {
          told = performance.now();
          say(`${count(done.length)} of ${count(plants.length)} done…`);
        }
      }, signal);
      const stopped = signal.aborted;
      return async () => {
        select([]);
        if (done.length > 0) {
          offerUndo(`${plural(done.length, 'plant')} ${done.length === 1 ? 'was' : 'were'} ${verb}.`, done);
        }
        if (stopped) {
          toast(`Stopped with ${plural(plants.length - done.length - changed, 'plant')} left.`);
        }
        if (changed > 0) {
          toast(leftAlone(changed), { bad: true });
        }
        if (reason) {
          toast(`Not every plant was ${verb}. ${sentence(reason)}`, { bad: true });
        }
        await reload({ changed: done[0]?.id });
        focusRow(done[0]?.id);
      };
    },
  });
}

// leftAlone says that plants are not changed with the others.
function leftAlone(/** @type {number} */ n, were = n === 1 ? 'was' : 'were') {
  const them = n === 1 ? 'it' : 'them';
  return `${plural(n, 'plant')} ${were} left alone: someone else has changed or deleted ${them}.`;
}
