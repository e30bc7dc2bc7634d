// What pages are made of: a list, a drawer beside it, and dialogs for one question or one form.

import { allows, get, handled } from './api.js';
import { STILL_WAITING, busy, h, icon, toast } from './dom.js';
import { sentence } from './format.js';

/**
 * listPage returns a page that shows a list, and a button to create another item if the token
 * may.
 * @param {object} list
 * @param {string} list.title
 * @param {string} list.noun what an item is called: token
 * @param {string} list.url
 * @param {(place: HTMLElement, items: any[]) => void} list.draw is called again when the state
 *   in the URL changes
 * @param {() => void} list.create
 * @param {string} [list.reads] the scope of what a new item lets others read
 */
export function listPage({ title, noun, url, draw, create, reads = `${noun}s:write` }) {
  let running = new AbortController();
  let place = h('div');
  /** @type {any[] | null} */
  let items = null;
  const load = async () => {
    running.abort();
    running = new AbortController();
    if (!allows(`${noun}s:read`)) {
      place.replaceChildren(message(`Your token cannot list ${noun}s`, `It needs the scope ${noun}s:read.`));
      return;
    }
    try {
      items = await get(url, { signal: running.signal });
      draw(place, items ?? []);
    } catch (err) {
      if (!handled(err) && !items) {
        place.replaceChildren(message(`The ${noun}s could not be loaded`, sentence(err.message), ['Try again', load]));
      }
    }
  };
  /** @type {import('./console.js').Page} */
  const page = {
    title,
    show(root) {
      if (root.firstChild) {
        draw(place, items ?? []);
        return;
      }
      items = null;
      place = h('div', { id: `${noun}s` });
      root.append(toolbar(title), place);
      if (allows(`${noun}s:write`) && allows(reads)) {
        const name = `New ${noun}`;
        const word = h('span', { class: 'word' }, name);
        const button = h('button', { id: `new-${noun}`, class: 'primary', title: name, onclick: create }, icon('plus'), word);
        root.firstElementChild?.append(h('div', { class: 'actions' }, button));
      }
      load();
    },
    refresh: load,
    hide: () => running.abort(),
  };
  return { page, load };
}

// Where there is little room, a drawer is on top of its list, or covers everything.
const COVERS = matchMedia('(max-width: 1099px)');
const COVERS_ALL = matchMedia('(max-width: 680px)');

/** guardFocus lets nothing that an open drawer covers take the focus. */
export function guardFocus() {
  const open = document.querySelector('.drawer:not([hidden])') !== null;
  const guard = (/** @type {string} */ selector, /** @type {boolean} */ covered) => {
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(selector))) {
      element.inert = open && covered;
    }
  };
  guard('#alerts, .page > :not(.drawer, dialog)', COVERS.matches);
  guard('.bar', COVERS_ALL.matches);
}

// A click on the veil closes the drawer.
addEventListener('click', ({ target }) => {
  if (COVERS.matches && target instanceof HTMLElement && target.matches('html, body, main, .page')) {
    /** @type {HTMLElement | null} */ (document.querySelector('.drawer:not([hidden]) header button:last-child'))?.click();
  }
});

COVERS.addEventListener('change', guardFocus);
COVERS_ALL.addEventListener('change', guardFocus);

/**
 * redraw shows these children in place of what is there, if they differ. The link or button
 * that had the focus gets it back.
 * @param {HTMLElement} place
 * @param {...Node} children
 */
export function redraw(place, ...children) {
  if (h('div', {}, ...children).innerHTML === place.innerHTML) {
    return;
  }
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const name = (/** @type {HTMLElement} */ element) => element.getAttribute('href') ?? element.textContent;
  const had = place.contains(active);
  place.replaceChildren(...children);
  if (had) {
    /** @type {HTMLElement[]} */
    const all = Array.from(place.querySelectorAll('a, button'));
    all.find((element) => name(element) === name(active))?.focus();
  }
}

/** toolbar returns the top of a page. @param {string} title */
export const toolbar = (title) => h('div', { class: 'toolbar' }, h('h1', { tabindex: '-1' }, title));

/**
 * message returns a message that is shown instead of a list.
 * @param {string} title
 * @param {string} text
 * @param {...[string, (event: Event) => void, string?]} buttons what each is called, does, and its id in tests
 */
export const message = (title, text, ...buttons) => h('div', { class: 'state' },
  h('h2', {}, title),
  h('p', {}, text),
  h('div', { class: 'actions' }, ...buttons.map(([name, onclick, id], i) => (
    h('button', { class: i === 0 ? 'primary' : undefined, 'data-testid': id, onclick }, name)))),
);

/** facts returns labelled values for a list of one thing. @param {...[string, ...(Node | string)[]]} pairs */
export const facts = (...pairs) => pairs.flatMap(([label, ...value]) => [h('dt', {}, label), h('dd', {}, ...value)]);

/**
 * fact returns a labelled value for a list.
 * @param {string} label
 * @param {Node | string} value
 * @param {string} [look] a class
 */
export const fact = (label, value, look) => h('div', { class: look }, h('dt', {}, label), h('dd', {}, value));

/** words returns a list of words. @param {string} label @param {string[]} all */
export const words = (label, all) => h('ul', { class: 'scopes', 'aria-label': label }, ...all.map((word) => h('li', {}, word)));

/**
 * copy puts a text on the clipboard, and reports whether it could. If the browser allows it
 * in no way, it shows the text, so that the user can copy it.
 * @param {string} text
 * @param {string} what
 */
export async function copy(text, what) {
  const done = await navigator.clipboard?.writeText(text).then(() => true, () => false) || copySelected(text);
  if (done) {
    toast(`${what} copied.`);
  } else {
    showText(text, what);
  }
  return done;
}

// copySelected is for pages without TLS, where there is no clipboard API, except on localhost.
function copySelected(/** @type {string} */ text) {
  const field = h('textarea', { class: 'hidden-text', 'aria-hidden': 'true' });
  const back = /** @type {HTMLElement | null} */ (document.activeElement);
  field.value = text;
  (document.querySelector('dialog:modal') ?? document.body).append(field);
  field.select();
  const done = document.execCommand('copy');
  field.remove();
  back?.focus();
  return done;
}

function showText(/** @type {string} */ text, /** @type {string} */ what) {
  const id = `dialog-${++last}`;
  const field = h('textarea', { class: 'mono', readonly: '', autofocus: '', 'aria-label': what });
  field.value = text;
  const dialog = open(h('dialog', { 'aria-labelledby': id },
    h('h2', { id }, 'Copy it yourself'),
    h('p', {}, 'The browser does not let this page use the clipboard. The text is selected: press Ctrl+C, or ⌘C on a Mac.'),
    h('div', { class: 'field' }, field),
    h('div', { class: 'buttons' }, h('button', { onclick: () => dialog.close() }, 'Close')),
  ));
  field.select();
}

/** tell runs f and shows why it failed. @param {() => Promise<void>} f */
export async function tell(f) {
  try {
    await f();
  } catch (err) {
    if (!handled(err)) {
      toast(sentence(err.message), { bad: true });
    }
  }
}

let last = 0; // for ids

/**
 * field returns a form field with its label and a hint.
 * @param {string} label
 * @param {HTMLElement} control
 * @param {string} [hint]
 */
export function field(label, control, hint = '') {
  control.id ||= `field-${++last}`;
  const parts = [h('label', { for: control.id }, label), control];
  if (hint) {
    control.setAttribute('aria-describedby', `${control.id}-hint`);
    parts.push(h('p', { class: 'hint', id: `${control.id}-hint` }, hint));
  }
  return h('div', { class: 'field' }, ...parts);
}

/**
 * checks returns a group of checkboxes. What is checked are their values.
 * @param {string} legend
 * @param {{value: string, text: string, checked: boolean}[]} choices
 */
export function checks(legend, choices) {
  const boxes = choices.map(({ value, text, checked }) => h('label', { class: 'check' },
    h('input', { type: 'checkbox', value, checked: checked ? '' : undefined }),
    h('span', {}, h('code', {}, value), text && ` ${text}`),
  ));
  return h('fieldset', { class: 'field checks' }, h('legend', {}, legend), ...boxes);
}

/** checked returns the values that are checked. @param {HTMLElement} group @returns {string[]} */
export const checked = (group) => [...group.querySelectorAll('input')].filter((box) => box.checked).map((box) => box.value);

/**
 * openForm opens a dialog with a form. When run is done, it closes and calls what run
 * returned; if run fails, it shows why. Closing it before aborts the signal of run. It
 * returns the dialog.
 * @param {object} form
 * @param {string} form.title
 * @param {HTMLElement[]} form.body
 * @param {string} form.action the label of the button
 * @param {string} [form.back] the label of the button that closes it
 * @param {[string, () => void]} [form.other] another button that closes it, and what it does
 * @param {boolean} [form.risky] whether it cannot be undone
 * @param {(options: Running) => Promise<void | (() => void)>} form.run
 *
 * @typedef {object} Running what a form that runs can use
 * @property {AbortSignal} signal
 * @property {() => void} slow
 * @property {(text: string) => void} say
 */
export function openForm({ title, body, action, back = 'Cancel', other, risky = false, run }) {
  const id = `dialog-${++last}`;
  const problem = h('p', { class: 'problem', role: 'alert', 'data-testid': 'problem' });
  const waiting = h('p', { class: 'waiting', role: 'status' });
  const submit = h('button', { type: 'submit', 'data-testid': 'submit', class: risky ? 'danger' : 'primary' }, action);
  const say = (/** @type {string} */ text) => {
    waiting.textContent = text;
  };
  const closing = new AbortController();
  const send = async () => {
    problem.textContent = '';
    try {
      const then = await run({ say, slow: () => say(STILL_WAITING), signal: closing.signal });
      dialog.close();
      if (document.activeElement === document.body || dialog.contains(document.activeElement)) { // what opened it is gone
        /** @type {HTMLElement | null} */ (document.querySelector('.page h1'))?.focus();
      }
      then?.();
    } catch (err) {
      if (!handled(err)) {
        problem.textContent = sentence(err.message);
      }
    } finally {
      say('');
    }
  };
  const autofocus = risky || other ? '' : undefined;
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    busy(submit, send);
  };
  const form = h('form', { novalidate: '', onsubmit },
    h('h2', { id }, title),
    problem,
    ...body,
    waiting,
    h('div', { class: 'buttons' },
      h('button', { class: 'cancel', 'data-testid': 'cancel', autofocus, onclick: () => dialog.close() }, back),
      ...(other ? [h('button', { class: 'other', 'data-testid': 'other', onclick: () => { other[1](); dialog.close(); } }, other[0])] : []),
      submit,
    ),
  );
  const dialog = open(h('dialog', { 'aria-labelledby': id, class: risky ? 'narrow' : undefined }, form));
  dialog.addEventListener('close', () => closing.abort());
  return dialog;
}

/**
 * showSecret shows a secret for the only time. Escape closes the dialog once it was copied.
 * @param {{title: string, text: string, label: string, secret: string}} what
 */
export function showSecret({ title, text, label, secret }) {
  const id = `dialog-${++last}`;
  let copied = false;
  const value = h('input', {
    class: 'mono',
    'data-testid': 'secret',
    readonly: '',
    value: secret,
    spellcheck: 'false',
    'aria-label': label,
    onfocus: (/** @type {any} */ event) => event.target.select(),
    oncopy: () => { copied = true; },
  });
  const copyIt = async () => {
    copied = await copy(secret, label) || copied;
  };
  const button = h('button', { class: 'primary', 'data-testid': 'copy', autofocus: '', onclick: copyIt }, 'Copy');
  const oncancel = (/** @type {Event} */ event) => !copied && event.preventDefault();
  const dialog = open(h('dialog', { 'aria-labelledby': id, class: 'secret', oncancel },
    h('h2', { id }, title),
    h('p', {}, text),
    h('div', { class: 'copyable' }, value, button),
    h('p', { class: 'hint' }, 'Copy it now and keep it safe: it is never shown again.'),
    h('div', { class: 'buttons' }, h('button', { 'data-testid': 'done', onclick: () => dialog.close() }, 'Done')),
  ));
}

// open shows a dialog on the page and removes it when it is closed.
function open(/** @type {HTMLDialogElement} */ dialog) {
  dialog.addEventListener('close', () => dialog.remove());
  document.querySelector('.page')?.append(dialog);
  dialog.showModal();
  return dialog;
}
