// The form that creates or edits a plant, in the drawer.

import { createPlant, findPlant, replacePlant } from './api.js';
import { choose } from './conflict.js';
import { $, STILL_WAITING, busy, h } from './dom.js';
import { restoreBreaks, sentence } from './format.js';
import { freeID } from './list.js';
import { openForm } from './parts.js';
import { suggestTags } from './suggest.js';

/** @typedef {import('./api.js').Plant} Plant */

const FIELDS = ['id', 'name', 'tag'];

/**
 * @typedef {object} Ends how the form is left
 * @property {(id: string) => void} created
 * @property {(plant: Plant) => void} saved
 * @property {(theirs: Plant | null) => void} left leaves what others have saved, or deleted
 * @property {() => void} cancel
 */

const form = {
  open: false,
  plant: /** @type {any} */ (null), // as it was read; null for a new one
  /** @type {Record<string, string>} */
  initial: {}, // the values of the fields when the form opened
  signal: AbortSignal.abort(), // aborts when another plant is open
  ends: /** @type {any} */ (null),
  question: /** @type {HTMLDialogElement | null} */ (null), // whether to discard unsaved text
};

const field = (/** @type {string} */ name) => (
  name === 'id' ? $('plant-id', HTMLInputElement) : $(`plant-${name}`, HTMLTextAreaElement));
const slow = () => { $('plant-waiting').textContent = STILL_WAITING; };
const mounted = () => document.getElementById('plant') !== null;

export const isEditing = () => form.open;

export const closeForm = () => { form.open = false; };

const changed = () => form.open && FIELDS.some((name) => field(name).value !== form.initial[name]);

// settled reports whether there is no unsaved text. Otherwise it asks whether to discard it, and
// then calls leave.
export function settled(/** @type {() => void} */ leave) {
  if (!changed()) {
    return true;
  }
  if (!form.question?.open) {
    form.question = openForm({
      title: 'Discard your changes?',
      body: [h('p', {}, `You have unsaved changes to ${form.plant ? `plant ${form.plant.id}` : 'a new plant'}.`)],
      action: 'Discard',
      back: 'Keep editing',
      risky: true,
      async run() {
        closeForm();
        return leave;
      },
    });
  }
  return false;
}

addEventListener('beforeunload', (event) => {
  if (changed()) {
    event.preventDefault(); // the browser asks
  }
});

/** mountForm makes the form work. @param {Ends} ends */
export function mountForm(ends) {
  form.ends = ends;
  const element = $('plant', HTMLFormElement);
  element.addEventListener('submit', (event) => {
    event.preventDefault();
    busy($('save-plant'), submit);
  });
  $('cancel-plant').addEventListener('click', ends.cancel);
  // Names and tags can have several lines, but rarely do: Enter submits the form, and
  // Shift+Enter starts a new line.
  let shift = false;
  element.addEventListener('keydown', (event) => { shift = event.shiftKey; });
  element.addEventListener('beforeinput', (/** @type {any} */ event) => {
    if (event.inputType === 'insertLineBreak' && event.target.tagName === 'TEXTAREA' && !shift) {
      event.preventDefault();
      element.requestSubmit();
    }
  });
  suggestTags(field('tag'), 'options line');
}

// fillForm fills the form with this plant, or for a new one, until the signal.
/** @type {(plant: Plant | null, signal: AbortSignal, id?: string) => void} */
export function fillForm(plant, signal, id = plant?.id ?? freeID()) {
  Object.assign(form, { open: true, plant, signal });
  $('save-plant').textContent = plant ? 'Save' : 'Create';
  $('plant-id-field').hidden = plant !== null;
  field('id').value = id;
  field('name').value = plant?.name ?? '';
  field('tag').value = plant?.tag ?? '';
  form.initial = Object.fromEntries(FIELDS.map((name) => [name, field(name).value]));
  clearProblems();
  (field('id').value ? field('name') : field('id')).focus();
}

// typed returns the plant in the form. A field that was not edited keeps the value that was read,
// and one that was edited keeps its line breaks: a text area cannot represent every text.
function typed() {
  const { plant, initial } = form;
  const edited = (/** @type {string} */ name) => {
    const { value: text } = field(name);
    return plant && text === initial[name] ? plant[name] : restoreBreaks(plant?.[name] ?? '', text);
  };
  const tag = edited('tag') || (field('tag').value === initial.tag ? plant?.tag : undefined);
  return { id: plant?.id ?? field('id').value.trim(), name: edited('name'), tag };
}

async function submit(was = form.plant) {
  clearProblems();
  const plant = typed();
  const { signal, ends } = form;
  try {
    if (!form.plant) {
      await createPlant(plant, { slow });
      ends.created(plant.id);
      return;
    }
    const now = await replacePlant(plant, was, { slow });
    if (!signal.aborted) {
      ends.saved(now);
    }
  } catch (err) {
    await (err.status === 412 ? resolveConflict(plant).catch(showProblems) : showProblems(err));
  } finally {
    if (mounted()) {
      $('plant-waiting').textContent = '';
    }
  }
}

// resolveConflict shows both versions if someone else saved first, and saves what the user chooses.
async function resolveConflict(/** @type {Plant} */ mine) {
  const theirs = await findPlant(mine.id, { slow });
  const choice = await choose(mine, theirs, form.plant);
  if (choice === 'theirs') {
    form.ends.left(theirs);
  } else if (choice) {
    form.plant = { ...form.plant, ...choice };
    field('name').value = choice.name;
    field('tag').value = choice.tag ?? '';
    await submit(theirs);
  }
}

function clearProblems() {
  $('plant-waiting').textContent = '';
  $('plant-problem').textContent = '';
  for (const name of FIELDS) {
    field(name).ariaInvalid = null;
    $(`plant-${name}-problem`).textContent = '';
  }
}

// showProblems shows the parts of the server's message next to the fields that they name.
function showProblems(/** @type {any} */ err) {
  if (err.status === 401 || !mounted()) {
    return; // the sign-in dialog shows it
  }
  let first = null;
  for (const part of err.message.split(/; (?="(?:id|name|tag)" )/)) {
    const name = /^"(id|name|tag)" /.exec(part)?.[1];
    if (!name) {
      $('plant-problem').textContent = sentence(part);
      continue;
    }
    $(`plant-${name}-problem`).textContent = sentence(name === 'id' ? words(part) : part);
    field(name).ariaInvalid = 'true';
    first ??= field(name);
  }
  first?.focus();
}

// words says in a form what the server says about JSON.
function words(/** @type {string} */ part) {
  if (/ is missing| must be an integer/.test(part)) {
    return 'Enter a whole number';
  }
  return part.replace(/^"id" (-?\d+ is taken)/, 'ID $1').replace(/^"id" must be/, 'The ID must be');
}
