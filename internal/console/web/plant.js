// The dialogs for one plant: create, edit, delete, and the choice between two versions if
// someone else saved first.

import { createPlant, deletePlant, getPlant, replacePlant } from './api.js';
import { $, STILL_WAITING, busy, h, refocus, toast } from './dom.js';
import { sentence } from './format.js';
import { focusRow, freeID, neighbour, reload } from './plants.js';

const dialog = $('plant');
const form = dialog.querySelector('form');
const save = form.querySelector('.primary');
const waiting = form.querySelector('.waiting');
const fields = { id: $('plant-id'), name: $('plant-name'), tag: $('plant-tag') };

let edited = null; // the plant as it was read, or null for a new one
let initial = {}; // the values of the fields when the dialog opened
let warned = false; // that Escape would discard unsaved text

export const newPlant = () => open(null);

function start() {
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    busy(save, submit);
  });
  form.querySelector('.cancel').addEventListener('click', () => dialog.close());
  // Names and tags can have several lines, but rarely do: Enter submits the form, and
  // Shift+Enter starts a new line.
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
      waiting.textContent = 'You have unsaved changes. Save them, or press Escape again to discard them.';
    }
  });
  startDelete();
}

start();

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
  initial = { id: fields.id.value, name: fields.name.value, tag: fields.tag.value };
  clearProblems();
  dialog.showModal();
  (fields.id.value ? fields.name : fields.id).focus();
}

const changed = () => Object.entries(fields).some(([name, field]) => field.value !== initial[name]);

// formPlant returns the plant in the form. A field that was not edited keeps the value
// that was read, because a text area cannot represent every text: it normalises line
// breaks.
function formPlant() {
  const { id, name, tag } = fields;
  return {
    id: id.value.trim(),
    name: edited && name.value === initial.name ? edited.name : name.value,
    tag: tag.value === initial.tag ? edited?.tag : tag.value || undefined,
  };
}

async function submit() {
  clearProblems();
  const plant = formPlant();
  try {
    if (!edited) {
      await createPlant(plant, { slow });
      await done(`Plant ${plant.id} was created.`, plant.id, () => $('create').focus());
      return;
    }
    await replacePlant(plant, edited.etag, { slow });
    await done(`Plant ${plant.id} was saved.`, plant.id, () => focusRow(plant.id, 'Edit'));
  } catch (err) {
    if (err.status === 412) {
      await resolveConflict(plant);
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

// done closes the dialog. The browser restores the focus to the element that opened it.
// If the new rows do not have that element, focus chooses another.
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

// showProblems shows the parts of the server's message next to the fields that they name.
function showProblems(err) {
  if (err.status === 401) {
    return; // the sign-in dialog shows it
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

// resolveConflict shows both versions if someone else saved first, and keeps the one that
// the user chooses.
async function resolveConflict(mine) {
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

// choose returns which version the user wants to keep: mine, theirs, or '' to continue
// editing. theirs is null if the plant was deleted.
function choose(mine, theirs) {
  const choice = $('conflict');
  $('conflict-title').textContent = theirs ? 'The plant has changed' : 'The plant was deleted';
  $('conflict-text').textContent = theirs
    ? 'Someone saved it while you were editing. Which version do you want to keep?'
    : 'Someone deleted it while you were editing. Do you want to create it again?';
  $('conflict-theirs').textContent = theirs ? 'Keep theirs' : 'Leave it deleted';
  $('conflict-mine').textContent = theirs ? 'Save mine' : 'Create it again';
  $('versions').replaceChildren(...(theirs ? [version('Saved version', theirs, mine)] : []), version('Your version', mine, theirs ?? mine));
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

// read gets the plant for a dialog, or shows why it cannot.
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
        toast(`Plant ${id} no longer exists.`);
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

let target; // the plant in the delete dialog

export const removePlant = (id, button) => read(button, id, askDelete);

function startDelete() {
  const dialog = $('delete');
  dialog.querySelector('.cancel').addEventListener('click', () => dialog.close());
  dialog.querySelector('form').addEventListener('submit', (event) => {
    event.preventDefault();
    busy(dialog.querySelector('.danger'), remove);
  });
}

function askDelete(plant) {
  target = plant;
  const entry = (name, content) => [h('dt', {}, name), h('dd', { dir: 'auto' }, content)];
  $('delete-problem').textContent = '';
  $('delete-what').replaceChildren(...entry('ID', plant.id), ...entry('Name', value(plant.name)), ...entry('Tag', value(plant.tag)));
  if (!$('delete').open) {
    $('delete').showModal();
  }
}

async function remove() {
  const dialog = $('delete');
  const status = dialog.querySelector('.waiting');
  const wait = () => {
    status.textContent = STILL_WAITING;
  };
  $('delete-problem').textContent = '';
  try {
    await deletePlant(target.id, target.etag, { slow: wait });
    await finishDelete(`Plant ${target.id} was deleted.`);
  } catch (err) {
    if (err.status === 404) {
      await finishDelete(`Plant ${target.id} was already deleted.`);
    } else if (err.status === 412) {
      await confirmAgain(wait);
    } else if (err.status !== 401) {
      $('delete-problem').textContent = sentence(err.message);
    }
  } finally {
    status.textContent = '';
  }
}

// confirmAgain shows the current version of a plant that changed in the meantime.
async function confirmAgain(slow) {
  try {
    askDelete(await getPlant(target.id, { slow }));
    $('delete-problem').textContent = 'Someone changed it in the meantime. This is the current version. Delete it anyway?';
  } catch (err) {
    if (err.status === 404) {
      await finishDelete(`Plant ${target.id} was already deleted.`);
    } else if (err.status !== 401) {
      $('delete-problem').textContent = sentence(err.message);
    }
  }
}

async function finishDelete(message) {
  const near = neighbour(target.id);
  $('delete').close();
  toast(message);
  await reload();
  focusRow(near, 'Delete');
}
