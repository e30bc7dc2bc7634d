// Small things that every part of the page needs. Text from the store enters the
// page through h and textContent only, so that it can be nothing but text.

export const $ = (id) => document.getElementById(id);

// h makes an element. A property that begins with "on" is a listener.
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

// short cuts a text that is too long to look at.
export function short(text, most) {
  return text.length > most ? `${text.slice(0, most).toWellFormed()}…` : text;
}

const plain = new Intl.NumberFormat('en');
export const count = (n) => plain.format(n);

// toast shows a message at the bottom of the page. A failure stays until it is
// closed.
export function toast(message, { bad = false, action } = {}) {
  const close = () => element.remove();
  const element = h('div', { class: bad ? 'toast bad' : 'toast' }, h('span', {}, message));
  if (action) {
    element.append(h('button', { type: 'button', class: 'text', onclick: action.run }, action.name));
  }
  element.append(h('button', { type: 'button', 'aria-label': 'Close the message', onclick: close }, icon('close')));
  $('toasts').replaceChildren(element);
  if (!bad && !action) {
    setTimeout(close, 6000);
  }
  return close;
}

export const STILL_WAITING = 'The server is slow. Still waiting…';

// busy runs f while the button says so, and ignores the button meanwhile. It
// stays in the tab order, where its user is.
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

// refocus is for when a dialog over another has closed. The browser has given the
// focus back, but Chromium lets a field that was inert take no text until it is
// focused once more.
export function refocus() {
  const { activeElement } = document;
  activeElement.blur();
  activeElement.focus();
}
