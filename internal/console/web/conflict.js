// The choice between two versions of a plant, if someone else saved first.

import { $, h, refocus, value, visible } from './dom.js';
import { differences } from './format.js';

const FIELDS = /** @type {const} */ ([['name', 'Name'], ['tag', 'Tag']]);

/** @typedef {{name: string, tag?: string}} Version */

/**
 * choose returns the version that the user wants to save, chosen field by field; 'theirs' to
 * leave what is saved; or '' to continue editing. theirs is null if the plant was deleted. A
 * field that only one side has changed since base is already chosen.
 * @param {Version} mine
 * @param {Version | null} theirs
 * @param {Version} base
 * @returns {Promise<Version | 'theirs' | ''>}
 */
export function choose(mine, theirs, base) {
  const dialog = $('conflict');
  $('conflict-title').textContent = theirs ? 'The plant has changed' : 'The plant was deleted';
  $('conflict-text').textContent = theirs
    ? 'Someone saved it while you were editing. Choose what to keep.'
    : 'Someone deleted it while you were editing. Do you want to create it again?';
  $('conflict-theirs').textContent = theirs ? 'Keep theirs' : 'Leave it deleted';
  $('conflict-mine').textContent = theirs ? 'Save this' : 'Create it again';
  $('versions').replaceChildren(...FIELDS.map(([key, title]) => (
    theirs ? question(key, title, mine, theirs, base) : h('div', {}, h('strong', {}, `${title}: `), value(mine[key])))));
  dialog.returnValue = '';
  dialog.showModal();
  $('conflict-back').focus();
  return new Promise((resolve) => {
    dialog.addEventListener('close', () => {
      refocus();
      resolve(dialog.returnValue === 'mine' ? chosen(mine, theirs) : dialog.returnValue);
    }, { once: true });
  });
}

/**
 * question asks which version of one field to keep, if they differ.
 * @param {'name' | 'tag'} key
 * @param {string} title
 * @param {Version} mine
 * @param {Version} theirs
 * @param {Version} base
 */
function question(key, title, mine, theirs, base) {
  if (mine[key] === theirs[key]) {
    return h('fieldset', {}, h('legend', {}, title), value(mine[key]));
  }
  const [marked, saved] = differences(mine[key] ?? '', theirs[key] ?? '');
  /** @type {(who: string, name: string, text: string | undefined, pieces: import('./format.js').Piece[], mark: string) => HTMLElement} */
  const option = (who, name, text, pieces, mark) => {
    const input = h('input', { type: 'radio', name: `keep-${key}`, value: who });
    /** @type {HTMLInputElement} */ (input).checked = (who === 'theirs') === (mine[key] === base[key]);
    const shown = pieces.map((piece) => h(piece.same ? 'span' : mark, {}, ...visible(piece.text, true)));
    const whole = text ? h('span', { class: 'value', dir: 'auto' }, ...shown) : value(text);
    return h('label', {}, input, h('span', {}, h('small', {}, name), whole));
  };
  return h(
    'fieldset',
    {},
    h('legend', {}, title),
    option('theirs', 'Saved version', theirs[key], saved, 'del'),
    option('mine', 'Your version', mine[key], marked, 'ins'),
  );
}

/** @param {Version} mine @param {Version | null} theirs @returns {Version} */
function chosen(mine, theirs) {
  /** @type {(key: string) => HTMLInputElement | null} */
  const checked = (key) => document.querySelector(`input[name="keep-${key}"]:checked`);
  const keep = (/** @type {string} */ key) => checked(key)?.value;
  return {
    name: theirs && keep('name') === 'theirs' ? theirs.name : mine.name,
    tag: theirs && keep('tag') === 'theirs' ? theirs.tag : mine.tag,
  };
}

$('conflict-back').addEventListener('click', () => $('conflict').close(''));
$('conflict-theirs').addEventListener('click', () => $('conflict').close('theirs'));
$('conflict').querySelector('form').addEventListener('submit', (/** @type {Event} */ event) => {
  event.preventDefault();
  $('conflict').close('mine');
});
