// Helpers for all parts of the page. Text from the store enters the page only through h
// and textContent, so it is never interpreted as markup.

export const $ = (id) => document.getElementById(id);

// h creates an element. A property whose name starts with "on" is an event listener.
export function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key.startsWith('on')) {
      element.addEventListener(key.slice(2), value);
    } else if (value !== undefined) {
      element.setAttribute(key, value);
    }
  }
  element.append(...children);
  return element;
}

export function svg(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) {
    element.setAttribute(key, value);
  }
  return element;
}

export function icon(name) {
  const element = svg('svg', { class: 'icon', 'aria-hidden': 'true' });
  element.append(svg('use', { href: `#icon-${name}` }));
  return element;
}

// toast shows a message at the bottom of the page. An error stays until it is closed.
export function toast(message, { bad = false, action } = {}) {
  const close = () => element.remove();
  const element = h('div', { class: bad ? 'toast bad' : 'toast' }, h('span', {}, message));
  if (action) {
    element.append(h('button', { type: 'button', class: 'text', onclick: action.run }, action.name));
  }
  element.append(h('button', { type: 'button', 'aria-label': 'Dismiss', onclick: close }, icon('close')));
  $('toasts').replaceChildren(element);
  if (!bad && !action) {
    setTimeout(close, 6000);
  }
  return close;
}

export const STILL_WAITING = 'The server is slow. Still waiting…';

// busy marks the button as busy while f runs, and ignores clicks on it. The button
// keeps the focus.
export async function busy(button, f) {
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

// refocus is for after a dialog on top of another has closed. The browser restores the
// focus, but in Chromium a field that was inert accepts no text until it is focused
// again.
export function refocus() {
  const { activeElement } = document;
  activeElement.blur();
  activeElement.focus();
}
