// What pages are made of: a list, a drawer beside it, and dialogs for one question or one form.

import { allows, get, handled } from './api.js';
import { STILL_WAITING, busy, h, icon, toast } from './dom.js';
import { sentence } from './format.js';
import { renew } from './wait.js';

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
  let items = /** @type {any[] | null} */ (null);
  const load = async () => {
    running = renew(running);
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
    document.querySelectorAll(selector).forEach((element) => element.toggleAttribute('inert', open && covered));
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

// redraw shows these children in place of what is there, if they differ. The link or button
// that had the focus gets it back.
export function redraw(/** @type {HTMLElement} */ place, /** @type {import('./dom.js').Child[]} */ ...children) {
  const drawn = h('div', {}, ...children);
  if (drawn.innerHTML === place.innerHTML) {
    return;
  }
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const name = (/** @type {HTMLElement} */ element) => element.getAttribute('href') ?? element.textContent;
  const had = place.contains(active);
  place.replaceChildren(...drawn.childNodes);
  if (had) {
    const all = /** @type {HTMLElement[]} */ (Array.from(place.querySelectorAll('a, button')));
    all.find((element) => name(element) === name(active))?.focus();
  }
}

/** problem returns what says that something is wrong. @param {string} text */
export const problem = (text) => h('p', { class: 'problem' }, text);

/** toolbar returns the top of a page. @param {string} title */
export const toolbar = (title) => h('div', { class: 'toolbar' }, h('h1', { tabindex: '-1' }, title));

// message returns a message that is shown instead of a list.
/** @type {(title: string, text: string, ...buttons: [string, (event: Event) => void, string?][]) => HTMLElement} */
export const message = (title, text, ...buttons) => h('div', { class: 'state' },
  h('h2', {}, title),
  h('p', {}, text),
  h('div', { class: 'actions' }, ...buttons.map(([name, onclick, id], i) => (
    h('button', { class: i === 0 && 'primary', 'data-testid': id, onclick }, name)))),
);

// facts returns labelled values for a list of one thing. Those that are false are left out.
/** @type {(...pairs: (false | undefined | '' | [string, ...import('./dom.js').Child[]])[]) => HTMLElement[]} */
export const facts = (...pairs) => pairs.flatMap((pair) => (
  pair ? [h('dt', {}, /** @type {string} */ (pair[0])), h('dd', {}, ...pair.slice(1))] : []));

// fact returns a labelled value for a list.
/** @type {(label: string, value: Node | string, look?: string | false) => HTMLElement} */
export const fact = (label, value, look) => h('div', { class: look }, h('dt', {}, label), h('dd', {}, value));

/** words returns a list of words. @param {string} label @param {string[]} all */
export const words = (label, all) => h('ul', { class: 'scopes', 'aria-label': label }, ...all.map((word) => h('li', {}, word)));

// copy puts a text on the clipboard, and reports whether it could. If the browser allows it
// in no way, it shows the text, so that the user can copy it.
export async function copy(/** @type {string} */ text, /** @type {string} */ what) {
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
  const field = h('textarea', { class: 'mono', readonly: '', autofocus: '', 'aria-label': what });
  field.value = text;
  const dialog = modal('Copy it yourself', {},
    h('p', {}, 'The browser does not let this page use the clipboard. The text is selected: press Ctrl+C, or ⌘C on a Mac.'),
    h('div', { class: 'field' }, field),
    h('div', { class: 'buttons' }, h('button', { onclick: () => dialog.close() }, 'Close')),
  );
  field.select();
}

// tell runs f and says why it failed: in a message at the bottom of the page, unless it is told where.
/** @type {(f: () => Promise<void>, say?: (text: string) => void) => Promise<void>} */
export async function tell(f, say = (/** @type {string} */ text) => { toast(text, { bad: true }); }) {
  try {
    await f();
  } catch (err) {
    if (!handled(err)) {
      say(sentence(err.message));
    }
  }
}

let last = 0; // for ids

// field returns a form field with its label and a hint.
export function field(/** @type {string} */ label, /** @type {HTMLElement} */ control, hint = '') {
  control.id ||= `field-${++last}`;
  const id = `${control.id}-hint`;
  if (hint) {
    control.setAttribute('aria-describedby', id);
  }
  return h('div', { class: 'field' }, h('label', { for: control.id }, label), control, hint && h('p', { class: 'hint', id }, hint));
}

// checks returns a group of checkboxes. What is checked are their values.
export function checks(/** @type {string} */ legend, /** @type {{value: string, text: string, checked: boolean}[]} */ choices) {
  const boxes = choices.map(({ value, text, checked }) => h('label', { class: 'check' },
    h('input', { type: 'checkbox', value, checked }), h('span', {}, h('code', {}, value), text && ` ${text}`)));
  return h('fieldset', { class: 'field checks' }, h('legend', {}, legend), ...boxes);
}

/** checked returns the values that are checked. @param {HTMLElement} group @returns {string[]} */
export const checked = (group) => [...group.querySelectorAll('input')].filter((box) => box.checked).map((box) => box.value);

// modal shows a dialog on the page, and removes it when it is closed.
/** @type {(title: string, properties: Record<string, any>, ...children: Node[]) => HTMLDialogElement} */
function modal(title, properties, ...children) {
  const id = `dialog-${++last}`;
  const dialog = h('dialog', { 'aria-labelledby': id, ...properties }, h('h2', { id }, title), ...children);
  dialog.addEventListener('close', () => dialog.remove());
  document.querySelector('.page')?.append(dialog);
  dialog.showModal();
  return dialog;
}

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
 * @param {(options: {signal: AbortSignal, slow: () => void}) => Promise<void | (() => void)>} form.run
 */
export function openForm({ title, body, action, back = 'Cancel', other, risky = false, run }) {
  const refusal = h('p', { class: 'problem', role: 'alert', 'data-testid': 'problem' });
  const waiting = h('p', { class: 'waiting', role: 'status' });
  const submit = h('button', { type: 'submit', 'data-testid': 'submit', class: risky ? 'danger' : 'primary' }, action);
  const closing = new AbortController();
  const send = async () => {
    refusal.textContent = '';
    await tell(async () => {
      const then = await run({ slow: () => { waiting.textContent = STILL_WAITING; }, signal: closing.signal });
      dialog.close();
      if (document.activeElement === document.body || dialog.contains(document.activeElement)) { // what opened it is gone
        /** @type {HTMLElement | null} */ (document.querySelector('.page h1'))?.focus();
      }
      then?.();
    }, (text) => { refusal.textContent = text; });
    waiting.textContent = '';
  };
  const onsubmit = (/** @type {Event} */ event) => {
    event.preventDefault();
    busy(submit, send);
  };
  const close = () => dialog.close();
  const dialog = modal(title, { class: risky && 'narrow', onclose: () => closing.abort() }, h('form', { novalidate: '', onsubmit },
    refusal,
    ...body,
    waiting,
    h('div', { class: 'buttons' },
      h('button', { class: 'cancel', 'data-testid': 'cancel', autofocus: risky || other !== undefined, onclick: close }, back),
      other && h('button', { class: 'other', 'data-testid': 'other', onclick: () => { other[1](); close(); } }, other[0]),
      submit,
    ),
  ));
  return dialog;
}

// showSecret shows a secret for the only time. Escape closes the dialog once it was copied.
export function showSecret(/** @type {{title: string, text: string, label: string, secret: string}} */ { title, text, label, secret }) {
  let copied = false;
  const onfocus = (/** @type {any} */ { target }) => target.select();
  const oncopy = () => { copied = true; };
  const looks = { 'class': 'mono', 'data-testid': 'secret', 'aria-label': label, 'readonly': '', 'spellcheck': 'false' };
  const value = h('input', { ...looks, value: secret, onfocus, oncopy });
  const copyIt = async () => { copied = await copy(secret, label) || copied; };
  const button = h('button', { class: 'primary', 'data-testid': 'copy', autofocus: '', onclick: copyIt }, 'Copy');
  const oncancel = (/** @type {Event} */ event) => !copied && event.preventDefault();
  const dialog = modal(title, { class: 'secret', oncancel },
    h('p', {}, text),
    h('div', { class: 'copyable' }, value, button),
    h('p', { class: 'hint' }, 'Copy it now and keep it safe: it is never shown again.'),
    h('div', { class: 'buttons' }, h('button', { 'data-testid': 'done', onclick: () => dialog.close() }, 'Done')),
  );
}
