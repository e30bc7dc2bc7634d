// Where the user is. The URL is the state: pages change it with go, and draw what it says.

import { format, parse } from './state.js';

/** @typedef {import('./state.js').State} State */

let current = parse(location.hash);
let remembered = history.state;
/** @type {(next: State, again: () => void) => boolean} */
let leave = () => true;
let show = () => {};

/** state returns where the user is. */
export const state = () => current;

/**
 * memory returns what go was told to remember with this entry of the browser's history. A
 * pasted link has none.
 */
export const memory = () => remembered;

// start calls draw whenever the state changes, unless mayLeave says that the user has to
// stay. It may call again later, to go there after all.
export function start(/** @type {(next: State, again: () => void) => boolean} */ mayLeave, /** @type {() => void} */ draw) {
  leave = mayLeave;
  show = draw;
  addEventListener('popstate', () => {
    const next = parse(location.hash);
    const there = { memory: history.state };
    if (!leave(next, () => go(next, there))) {
      history.pushState(remembered, '', format(current));
      return;
    }
    current = next;
    remembered = history.state;
    show();
  });
}

// go changes the state. What next does not have is empty. It reports whether the user could leave.
export function go(/** @type {Partial<State>} */ next, /** @type {{replace?: boolean, memory?: any}} */ options = {}) {
  const hash = format(next);
  const target = parse(hash);
  if (!leave(target, () => go(next, options))) {
    return false;
  }
  const replace = options.replace || hash === format(current);
  current = target;
  remembered = options.memory ?? null;
  history[replace ? 'replaceState' : 'pushState'](remembered, '', hash);
  show();
  return true;
}

/** forget goes back to the start, when the user has signed out. */
export function forget() {
  current = parse('');
  remembered = null;
}
