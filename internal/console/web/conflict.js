// The choice between two versions of a plant, if someone else saved first.

import { h, refocus, value, visible } from './dom.js';
import { differences } from './format.js';
import { openForm } from './parts.js';

const FIELDS = /** @type {const} */ ([['name', 'Name'], ['tag', 'Tag']]);

/** @typedef {{name: string, tag?: string}} Version */

// choose returns the version that the user wants to save, chosen field by field; 'theirs' to
// leave what is saved; or '' to continue editing. theirs is null if the plant was deleted. A
// field that only one side has changed since base is already chosen.
/** @type {(mine: Version, theirs: Version | null, base: Version) => Promise<Version | 'theirs' | ''>} */
export const choose = (mine, theirs, base) => new Promise((resolve) => {
  const versions = h('div', { id: 'versions', class: 'versions' }, ...FIELDS.map(([key, title]) => (
    theirs ? question(key, title, mine, theirs, base) : h('div', {}, h('strong', {}, `${title}: `), value(mine[key])))));
  const dialog = openForm({
    title: theirs ? 'The plant has changed' : 'The plant was deleted',
    body: [
      h('p', {}, theirs
        ? 'Someone saved it while you were editing. Choose what to keep.'
        : 'Someone deleted it while you were editing. Do you want to create it again?'),
      versions,
    ],
    action: theirs ? 'Save this' : 'Create it again',
    back: 'Keep editing',
    other: [theirs ? 'Keep theirs' : 'Leave it deleted', () => resolve('theirs')],
    run: async () => resolve(chosen(versions, mine, theirs)),
  });
  dialog.addEventListener('close', () => {
    refocus();
    resolve('');
  });
});

// question asks which version of one field to keep, if they differ.
/** @type {(key: 'name' | 'tag', title: string, mine: Version, theirs: Version, base: Version) => HTMLElement} */
function question(key, title, mine, theirs, base) {
  if (mine[key] === theirs[key]) {
    return h('fieldset', {}, h('legend', {}, title), value(mine[key]));
  }
  const [marked, saved] = differences(mine[key] ?? '', theirs[key] ?? '');
  /** @type {(who: string, name: string, text: string | undefined, pieces: import('./format.js').Piece[], mark: 'ins' | 'del') => Node} */
  const option = (who, name, text, pieces, mark) => {
    const input = h('input', { type: 'radio', name: `keep-${key}`, value: who });
    input.checked = (who === 'theirs') === (mine[key] === base[key]);
    const shown = pieces.map((piece) => h(piece.same ? 'span' : mark, {}, ...visible(piece.text, true)));
    const whole = text ? h('span', { class: 'value', dir: 'auto' }, ...shown) : value(text);
    return h('label', {}, input, h('span', {}, h('small', {}, name), whole));
  };
  return h('fieldset', {},
    h('legend', {}, title),
    option('theirs', 'Saved version', theirs[key], saved, 'del'),
    option('mine', 'Your version', mine[key], marked, 'ins'),
  );
}

/** @param {HTMLElement} versions @param {Version} mine @param {Version | null} theirs @returns {Version} */
function chosen(versions, mine, theirs) {
  const keep = (/** @type {string} */ key) => versions.querySelector(`[name="keep-${key}"][value="theirs"]:checked`) !== null;
  return {
    name: theirs && keep('name') ? theirs.name : mine.name,
    tag: theirs && keep('tag') ? theirs.tag : mine.tag,
  };
}
