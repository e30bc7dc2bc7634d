// Suggestions for a tag while the user types, with the number of plants of each: "1,000+" if
// there are more than the server counts.

import { allows, listTags } from './api.js';
import { h } from './dom.js';
import { count, shorten } from './format.js';
import { renew } from './wait.js';

const MAX = 12;

// suggestTags suggests tags for a field in a list below it, of the class, and calls chosen when
// the user takes one. The list is not a stop of the Tab key, not even when it can be scrolled.
/** @type {(field: HTMLInputElement | HTMLTextAreaElement, look: string, chosen?: () => void) => void} */
export function suggestTags(field, look, chosen = () => {}) {
  const id = `${field.id}-tags`;
  const list = h('ul', { id, class: look, role: 'listbox', 'aria-label': 'Tags', tabindex: '-1', hidden: '' });
  const attributes = { 'aria-autocomplete': 'list', 'aria-controls': id, autocomplete: 'off', autocapitalize: 'none' };
  Object.entries(attributes).forEach(([name, text]) => field.setAttribute(name, text));
  field.after(list);
  let running = new AbortController();
  let options = /** @type {HTMLElement[]} */ ([]);
  let at = -1;

  const expand = (/** @type {boolean} */ open) => {
    list.hidden = !open;
    if (field instanceof HTMLInputElement) { // a text area cannot be one
      field.role = 'combobox';
      field.ariaExpanded = String(open);
    }
  };
  const close = () => {
    running.abort();
    expand(false);
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
    if (!allows('plants:read')) {
      return;
    }
    running = renew(running);
    const { signal } = running;
    const tags = await listTags(field.value, { signal }).catch(() => []);
    if (signal.aborted || document.activeElement !== field) {
      return;
    }
    const marked = options[at]?.dataset.tag;
    at = -1;
    const press = (/** @type {Event} */ event) => {
      event.preventDefault(); // the field keeps the focus
      take(/** @type {HTMLElement} */ (event.currentTarget).dataset.tag ?? '');
    };
    options = tags.slice(0, MAX).map(({ tag, plants, more }, i) => {
      const properties = { 'role': 'option', 'id': `${id}-${i}`, 'aria-selected': 'false', 'onpointerdown': press, 'data-tag': tag };
      return h('li', properties, h('span', { dir: 'auto' }, shorten(tag, 100)), h('span', {}, count(Number(plants)), more && '+'));
    });
    list.replaceChildren(...options);
    expand(options.length > 0);
    const again = options.findIndex((option) => option.dataset.tag === marked);
    if (again >= 0) {
      mark(again);
    }
  };

  close();
  field.addEventListener('input', suggest);
  field.addEventListener('focus', suggest);
  field.addEventListener('blur', close);
  field.addEventListener('keydown', (/** @type {any} */ event) => {
    if (options.length === 0) {
      return;
    }
    /** @type {number | undefined} */
    const step = { ArrowDown: 1, ArrowUp: -1 }[/** @type {'ArrowUp'} */ (event.key)];
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
