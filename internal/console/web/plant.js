// The dialogs about one plant: create, edit, delete, and the choice that is left
// when somebody else was faster.

import { createPlant, deletePlant, getPlant, replacePlant } from './api.js';
import { $, STILL_WAITING, busy, h, refocus, toast } from './dom.js';
import { focusRow, freeID, neighbour, reload, sentence } from './plants.js';

const dialog = $('plant');
const form = dialog.querySelector('form');
const save = form.querySelector('.primary');
const waiting = form.querySelector('.waiting');
const fields = { id: $('plant-id'), name: $('plant-name'), tag: $('plant-tag') };

let edited = null; // the plant as it was read, or null while a new one is written
let shown = {}; // what the fields held when the dialog opened
let warned = false; // of text that Escape would drop

export function startPlant() {
  $('create').addEventListener('click', () => open(null));
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    busy(save, submit);
  });
  form.querySelector('.cancel').addEventListener('click', () => dialog.close());
  // Names and tags may hold any text, lines included, but are rarely more than one:
  // Enter sends the form, Shift and Enter begins a line.
  let shift = false;
  form.addEventListener('keydown', (event) => {
    shift = event.shiftKey;
  });
  form.addEventListener('beforeinput', (event) => {
    if (event.inputType === 'insertLineBreak' && event.target.tagName === 'TEXTAREA' && !shift) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  dialog.addEventListener('cancel', (event) => {
    if (changed() && !warned) {
      event.preventDefault();
      warned = true;
      waiting.textContent = 'What you typed is not saved. Save it, or press Escape again to drop it.';
    }
  });
  startDelete();
}

function open(plant) {
  edited = plant;
  warned = false;
  $('plant-title').textContent = plant ? 'Edit plant' : 'New plant';
  save.textContent = plant ? 'Save' : 'Create';
  fields.id.readOnly = plant !== null;
  $('plant-id-hint').hidden = plant !== null;
  fields.id.value = plant ? plant.id : freeID();
  fields.name.value = plant ? plant.name : '';
  fields.tag.value = plant?.tag ?? '';
  shown = { id: fields.id.value, name: fields.name.value, tag: fields.tag.value };
  clearProblems();
  dialog.showModal();
  (fields.id.value ? fields.name : fields.id).focus();
}

const changed = () => Object.entries(fields).some(([name, field]) => field.value !== shown[name]);

// written returns the plant that the fields say. A field that nobody touched
// stands for what was read, which it may not be able to hold: a text area knows
// one kind of line end only.
function written() {
  const { id, name, tag } = fields;
  return {
    id: id.value.trim(),
    name: edited && name.value === shown.name ? edited.name : name.value,
    tag: tag.value === shown.tag ? edited?.tag : tag.value || undefined,
  };
}

async function submit() {
  clearProblems();
  const plant = written();
  try {
    if (!edited) {
      await createPlant(plant, { slow });
      await done(`Plant ${plant.id} is created.`, plant.id, () => $('create').focus());
      return;
    }
    await replacePlant(plant, edited.etag, { slow });
    await done(`Plant ${plant.id} is saved.`, plant.id, () => focusRow(plant.id, 'Edit'));
  } catch (err) {
    if (err.status === 412) {
      await settle(plant);
      return;
    }
    showProblems(err);
  } finally {
    waiting.textContent = '';
  }
}

const slow = () => {
  waiting.textContent = STILL_WAITING;
};

// done closes the dialog. The browser gives the focus back to what opened it, and
// where the new rows do not have that any more, focus finds another place.
async function done(message, id, focus) {
  dialog.close();
  toast(message);
  await reload({ fresh: id });
  if (document.activeElement === document.body) {
    focus();
  }
}

function clearProblems() {
  waiting.textContent = '';
  $('plant-problem').textContent = '';
  for (const [name, field] of Object.entries(fields)) {
    field.ariaInvalid = null;
    $(`plant-${name}-problem`).textContent = '';
  }
}

// showProblems puts the server's words beside the fields that they name.
function showProblems(err) {
  if (err.status === 401) {
    return; // the sign-in says it
  }
  let first = null;
  for (const part of err.message.split(/; (?="(?:id|name|tag)" )/)) {
    const name = /^"(id|name|tag)" /.exec(part)?.[1];
    if (!name) {
      $('plant-problem').textContent = sentence(part);
      continue;
    }
    $(`plant-${name}-problem`).textContent = sentence(part);
    fields[name].ariaInvalid = 'true';
    first ??= fields[name];
  }
  first?.focus();
}

// settle shows both versions after a lost race, and does what their user chooses.
async function settle(mine) {
  let theirs = null;
  try {
    theirs = await getPlant(mine.id, { slow });
  } catch (err) {
    if (err.status !== 404) {
      showProblems(err);
      return;
    }
  }
  switch (await choose(mine, theirs)) {
    case 'mine':
      edited = { ...edited, etag: theirs?.etag };
      await submit();
      break;
    case 'theirs':
      dialog.close();
      await reload({ fresh: mine.id });
      focusRow(mine.id, 'Edit');
  }
}

// choose returns what the user wants to keep: mine, theirs, or '' to go on
// editing. theirs is null if the plant was deleted.
function choose(mine, theirs) {
  const choice = $('conflict');
  $('conflict-title').textContent = theirs ? 'The plant has changed' : 'The plant was deleted';
  $('conflict-text').textContent = theirs
    ? 'Somebody saved it while you were editing. Which version should stay?'
    : 'Somebody deleted it while you were editing. Should yours be put back?';
  $('conflict-theirs').textContent = theirs ? 'Keep the store’s' : 'Leave it deleted';
  $('conflict-mine').textContent = theirs ? 'Save mine' : 'Put it back';
  $('versions').replaceChildren(...(theirs ? [version('In the store now', theirs, mine)] : []), version('Yours', mine, theirs ?? mine));
  choice.returnValue = '';
  choice.showModal();
  $('conflict-back').focus();
  return new Promise((resolve) => {
    const closed = () => {
      refocus();
      resolve(choice.returnValue);
    };
    choice.addEventListener('close', closed, { once: true });
  });
}

for (const value of ['back', 'theirs', 'mine']) {
  $(`conflict-${value}`).addEventListener('click', () => $('conflict').close(value === 'back' ? '' : value));
}

function version(title, plant, other) {
  const entry = (name, key) => [h('dt', {}, name), h('dd', { class: plant[key] === other[key] ? undefined : 'differs', dir: 'auto' }, value(plant[key]))];
  return h('section', {}, h('h3', {}, title), h('dl', {}, ...entry('Name', 'name'), ...entry('Tag', 'tag')));
}

function value(text) {
  if (text === undefined) {
    return h('span', { class: 'blank' }, 'none');
  }
  return text === '' ? h('span', { class: 'blank' }, 'empty') : text;
}

// read gets the plant for a dialog, or says why it cannot.
async function read(button, id, then) {
  await busy(button, async () => {
    let close = () => {};
    try {
      const plant = await getPlant(id, {
        slow: () => {
          close = toast(STILL_WAITING);
        },
      });
      close();
      then(plant);
    } catch (err) {
      close();
      if (err.status === 404) {
        toast(`Plant ${id} is not there any more.`);
        await reload();
        return;
      }
      if (err.status !== 401) {
        toast(sentence(err.message), { bad: true });
      }
    }
  });
}

export const editPlant = (id, button) => read(button, id, open);

let doomed; // the plant that the dialog asks about

export const removePlant = (id, button) => read(button, id, askDelete);

function startDelete() {
  const ask = $('delete');
  ask.querySelector('.cancel').addEventListener('click', () => ask.close());
  ask.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    busy(ask.querySelector('.danger'), remove);
  });
}

function askDelete(plant) {
  doomed = plant;
  const entry = (name, content) => [h('dt', {}, name), h('dd', { dir: 'auto' }, content)];
  $('delete-problem').textContent = '';
  $('delete-what').replaceChildren(...entry('Id', plant.id), ...entry('Name', value(plant.name)), ...entry('Tag', value(plant.tag)));
  if (!$('delete').open) {
    $('delete').showModal();
  }
}

async function remove() {
  const ask = $('delete');
  const status = ask.querySelector('.waiting');
  const wait = () => {
    status.textContent = STILL_WAITING;
  };
  $('delete-problem').textContent = '';
  try {
    await deletePlant(doomed.id, doomed.etag, { slow: wait });
    await gone(`Plant ${doomed.id} is deleted.`);
  } catch (err) {
    if (err.status === 404) {
      await gone(`Plant ${doomed.id} was deleted already.`);
    } else if (err.status === 412) {
      await askAgain(wait);
    } else if (err.status !== 401) {
      $('delete-problem').textContent = sentence(err.message);
    }
  } finally {
    status.textContent = '';
  }
}

// askAgain shows what the plant has become since the question was asked.
async function askAgain(slow) {
  try {
    askDelete(await getPlant(doomed.id, { slow }));
    $('delete-problem').textContent = 'Somebody changed it meanwhile. This is what it is now: delete it still?';
  } catch (err) {
    if (err.status === 404) {
      await gone(`Plant ${doomed.id} was deleted already.`);
    } else if (err.status !== 401) {
      $('delete-problem').textContent = sentence(err.message);
    }
  }
}

async function gone(message) {
  const near = neighbour(doomed.id);
  $('delete').close();
  toast(message);
  await reload();
  focusRow(near, 'Delete');
}
