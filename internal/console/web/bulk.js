// Deleting and re-tagging the selected plants: one question before it, one undo after it.

import { deletePlant, getPlant, replacePlant } from './api.js';
import { $, busy, toast } from './dom.js';
import { plural, sentence, shorten } from './format.js';
import { clearChoice, focusRow, reload } from './plants.js';
import { each, offerUndo } from './undo.js';

const dialog = $('bulk');

/** @type {any[]} */
let plants = []; // as the table shows them
let change = deleteOne;

dialog.querySelector('.cancel').addEventListener('click', () => dialog.close());
dialog.querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  busy($('bulk-go'), run);
});

export function askDelete(given) {
  open(given, deleteOne, `Delete ${plural(given.length, 'plant')}?`, 'Delete', true);
  dialog.querySelector('.cancel').focus();
}

export function askTag(given) {
  open(given, tagOne, `Change the tag of ${plural(given.length, 'plant')}`, 'Change tag', false);
  $('bulk-tag').value = '';
  $('bulk-tag').focus();
}

function open(given, f, title, verb, danger) {
  plants = given;
  change = f;
  const names = given.slice(0, 3).map(({ id, name }) => (name ? shorten(name, 40) : `plant ${id}`));
  $('bulk-title').textContent = title;
  $('bulk-text').textContent = `${names.join(', ')}${given.length > 3 ? ` and ${given.length - 3} more` : ''}. You can undo this for 10 seconds.`;
  $('bulk-field').hidden = danger;
  $('bulk-go').textContent = verb;
  $('bulk-go').className = danger ? 'danger' : 'primary';
  dialog.querySelector('.waiting').textContent = '';
  dialog.showModal();
}

// deleteOne deletes a plant and returns what would undo it.
async function deleteOne(plant) {
  await deletePlant(plant.id, plant.etag, {});
  return plant;
}

async function tagOne(plant) {
  const { response } = await replacePlant({ ...plant, tag: $('bulk-tag').value || undefined }, plant.etag, {});
  return { ...plant, after: response.headers.get('ETag') };
}

// run changes every plant that still is as the table shows it.
async function run() {
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
    dialog.querySelector('.waiting').textContent = `${done.length} of ${plants.length} done…`;
  });
  dialog.close();
  clearChoice();
  const verb = change === deleteOne ? 'deleted' : 're-tagged';
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
}
