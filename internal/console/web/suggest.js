// Suggestions for a tag while the user types, with the number of plants of each: "1,000+" if
// there are more than the server counts.

import { listTags } from './api.js';
import { h } from './dom.js';
import { count, shorten } from './format.js';

const MAX = 12;

/**
 * suggestTags suggests tags for a field in a list below it, and calls chosen when the user
 * takes one.
 * @param {HTMLInputElement} field
 * @param {HTMLElement} list
 * @param {() => void} chosen
 */
export function suggestTags(field, list, chosen) {
  let running = new AbortController();
  /** @type {HTMLElement[]} */
  let options = [];
  let at = -1;

  const close = () => {
    running.abort();
    list.hidden = true;
    field.ariaExpanded = 'false';
    field.removeAttribute('aria-activedescendant');
    options = [];
    at = -1;
  };
  const take = (/** @type {string} */ tag) => {
    field.value = tag;
    close();
    chosen();
  };
  const mark = (/** @type {number} */ i) => {
    at = i;
    options.forEach((option, j) => option.setAttribute('aria-selected', String(j === i)));
    field.setAttribute('aria-activedescendant', options[i].id);
    options[i].scrollIntoView({ block: 'nearest' });
  };
  const suggest = async () => {
    running.abort();
    running = new AbortController();
    const { signal } = running;
    const tags = await listTags(field.value, { signal }).catch(() => []);
    if (signal.aborted || document.activeElement !== field) {
      return;
    }
    at = -1;
    options = tags.slice(0, MAX).map(({ tag, plants, more }, i) => h(
      'li',
      { role: 'option', id: `${list.id}-${i}`, 'aria-selected': 'false', onpointerdown: (/** @type {Event} */ event) => { event.preventDefault(); take(tag); }, 'data-tag': tag },
      h('span', { dir: 'auto' }, shorten(tag, 100)),
      h('span', {}, count(Number(plants)) + (more ? '+' : '')),
    ));
    list.replaceChildren(...options);
    list.hidden = options.length === 0;
    field.ariaExpanded = String(options.length > 0);
  };

  field.addEventListener('input', suggest);
  field.addEventListener('focus', suggest);
  field.addEventListener('blur', close);
  field.addEventListener('keydown', (event) => {
    if (options.length === 0) {
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) {
      event.preventDefault();
      mark((Math.max(at, step < 0 ? 0 : -1) + step + options.length) % options.length);
    } else if (event.key === 'Enter' && at >= 0) {
      event.preventDefault();
      take(options[at].dataset.tag ?? '');
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
}
