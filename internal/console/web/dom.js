// Helpers for all parts of the page. Text from the store enters the page only through h
// and textContent, so it is never interpreted as markup.

import { ago, exact, marks, shorten } from './format.js';

// $ returns the element with this id, which must be there and of the class.
/** @type {<T extends HTMLElement = HTMLElement>(id: string, type?: new () => T) => T} */
export function $(id, type) {
  const [element, wanted] = [document.getElementById(id), type ?? HTMLElement];
  if (!(element instanceof wanted)) {
    throw new TypeError(`#${id} must be an ${wanted.name}, got ${element?.constructor.name ?? 'nothing'}`);
  }
  return /** @type {any} */ (element);
}

/** @typedef {Node | string | false | null | undefined | (Node | string)[]} Child */

// h creates an element. A property whose name starts with "on" is an event listener; what is undefined
// or false is left out, also of the children. A button submits no form unless its type says so.
/** @type {<K extends keyof HTMLElementTagNameMap>(name: K, properties?: {}, ...children: Child[]) => HTMLElementTagNameMap[K]} */
export function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(/** @type {Record<string, any>} */ ({ type: name === 'button' && name, ...properties }))) {
    if (key.startsWith('on')) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== undefined && value !== false) {
      element.setAttribute(key, value === true ? '' : value);
    }
  }
  element.append(.../** @type {(Node | string)[]} */ (children.flat().filter(Boolean)));
  return element;
}

// svg creates an element of a drawing.
/** @type {(name: string, attributes: Record<string, any>, ...children: (Node | string)[]) => SVGElement} */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
  element.append(...children);
  return element;
}

/** icon returns an icon of index.html. @param {string} name */
export const icon = (name) => svg('svg', { class: 'icon', 'aria-hidden': 'true' }, svg('use', { href: `#icon-${name}` }));

// visible returns a text for display, in which line breaks, control characters and double spaces can be seen.
/** @type {(text: string, part?: boolean) => (Node | string)[]} */
export const visible = (text, part) => marks(text, part).map(({ text: plain, sign, name }) => (
  sign ? h('span', { class: sign.length > 3 ? 'mark code' : 'mark', title: name }, sign) : plain));

/** value shows a name or a tag in full, or says that there is none. @param {string | undefined} text */
export function value(text) {
  return text
    ? h('span', { class: 'value', dir: 'auto' }, ...visible(shorten(text, 100_000)))
    : h('span', { class: 'blank' }, text === '' ? 'empty' : 'none');
}

let clock = /** @type {ReturnType<typeof setInterval> | undefined} */ (undefined); // keeps what when shows up to date

// when shows how long ago a time was, or what else is said of it, with the exact one on hover.
/** @type {(at: string, said?: (at: string) => string) => HTMLElement} */
export function when(at, said) {
  clock ??= setInterval(() => {
    for (const shown of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll('time.ago'))) {
      const text = ago(shown.dateTime);
      if (shown.textContent !== text) {
        shown.textContent = text;
      }
    }
  }, 5000);
  return h('time', { class: said ? undefined : 'ago', datetime: at, title: exact(at) }, (said ?? ago)(at));
}

/**
 * @typedef {{close: () => void, say: (text: string) => void, fill: (share: number) => void}} Toast with a bar
 *   that can be filled, from 0 to 1
 *
 * toast shows a message at the bottom of the page. It gives way to the next one, unless it is
 * kept. Errors are kept. Without seconds, what is kept stays until it is closed.
 * @param {string} message
 * @param {object} [options]
 * @param {boolean} [options.bad]
 * @param {boolean} [options.keep]
 * @param {boolean} [options.bar] whether it has a bar
 * @param {[string, () => void, string?][]} [options.actions] what each is called, does, and its id in tests
 * @param {number} [options.seconds]
 * @param {() => void} [options.onclose]
 * @param {string} [options.closeLabel]
 * @returns {Toast}
 */
export function toast(message, options = {}) {
  const { bad = false, keep = bad, bar = false, actions = [], seconds, onclose = () => {}, closeLabel = 'Dismiss' } = options;
  const text = h('span', {}, message);
  const progress = h('progress', { 'aria-label': message, value: 0 });
  const look = `toast${bad ? ' bad' : ''}${keep ? '' : ' brief'}`;
  const element = h('div', { 'class': look, 'data-testid': 'toast' }, text, bar && progress);
  const close = () => element.remove();
  for (const [name, run, id] of actions) {
    element.append(h('button', { class: 'text', 'data-testid': id, onclick: () => { close(); run(); } }, name));
  }
  const dismiss = () => { close(); onclose(); };
  element.append(h('button', { 'data-testid': 'dismiss', 'aria-label': closeLabel, title: closeLabel, onclick: dismiss }, icon('close')));
  $('toasts').querySelectorAll('.brief').forEach((old) => old.remove());
  $('toasts').append(element);
  const limit = seconds ?? (keep ? 0 : 6);
  if (limit > 0) {
    expire(element, limit * 1000, close);
  }
  return { close, say: (words) => { text.textContent = words; }, fill: (share) => { progress.value = share; } };
}

// expire closes a message after a while, but not while the user points at it or is in it.
function expire(/** @type {HTMLElement} */ element, /** @type {number} */ ms, /** @type {() => void} */ close) {
  const step = 250;
  let left = ms;
  const timer = setInterval(() => {
    left -= element.matches(':hover, :focus-within') ? 0 : step;
    if (left <= 0 || !element.isConnected) {
      clearInterval(timer);
      close();
    }
  }, step);
}

export const STILL_WAITING = 'The server is slow. Still waiting…';

// busy marks the button as busy while f runs, and ignores clicks on it. The button keeps the focus.
export async function busy(/** @type {HTMLElement} */ button, /** @type {() => Promise<void>} */ f) {
  if (button.ariaBusy === 'true') {
    return;
  }
  button.ariaBusy = 'true';
  try {
    await f();
  } finally {
    button.ariaBusy = null;
  }
}

// busily returns what marks the button that is clicked as busy while f runs.
export const busily = (/** @type {() => Promise<void>} */ f) => (/** @type {Event} */ { currentTarget }) => (
  busy(/** @type {HTMLElement} */ (currentTarget), f));

// askBefore runs f. Until it ends, the browser asks before the user leaves the page.
/** @type {<T>(f: () => Promise<T>) => Promise<T>} */
export async function askBefore(f) {
  const ask = (/** @type {Event} */ event) => event.preventDefault();
  addEventListener('beforeunload', ask);
  try {
    return await f();
  } finally {
    removeEventListener('beforeunload', ask);
  }
}

// refocus is for after a dialog on top of another has closed. The browser restores the focus, but in Chromium a
// field that was inert accepts no text until it is focused again.
export function refocus() {
  const active = /** @type {HTMLElement} */ (document.activeElement);
  active.blur();
  active.focus();
}
