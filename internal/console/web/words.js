// The words in which two texts differ. It touches no DOM.

const MAX = 1_000_000; // comparisons, so that long texts do not block the page

/** @typedef {{text: string, same: boolean}} Piece */

/**
 * differences splits both texts into pieces that are the same in both and pieces that are
 * not. The pieces of each text, joined together, are the text.
 * @param {string} one
 * @param {string} other
 * @returns {[Piece[], Piece[]]}
 */
export function differences(one, other) {
  const a = words(one);
  const b = words(other);
  if (a.length * b.length > MAX) {
    return [[{ text: one, same: one === other }], [{ text: other, same: one === other }]];
  }
  const width = b.length + 1;
  const common = new Uint32Array((a.length + 1) * width); // of the ends of both texts
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i * width + j] = a[i] === b[j] ? common[(i + 1) * width + j + 1] + 1 : Math.max(common[(i + 1) * width + j], common[i * width + j + 1]);
    }
  }
  /** @type {[Piece[], Piece[]]} */
  const pieces = [[], []];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      add(pieces[0], a[i++], true);
      add(pieces[1], b[j++], true);
    } else if (j === b.length || (i < a.length && common[(i + 1) * width + j] >= common[i * width + j + 1])) {
      add(pieces[0], a[i++], false);
    } else {
      add(pieces[1], b[j++], false);
    }
  }
  return pieces;
}

/** @param {string} text */
const words = (text) => text.match(/[\p{L}\p{N}\p{M}]+|\s+|[^]/gu) ?? [];

/** @param {Piece[]} pieces @param {string} text @param {boolean} same */
function add(pieces, text, same) {
  const last = pieces.at(-1);
  if (last?.same === same) {
    last.text += text;
    return;
  }
  pieces.push({ text, same });
}
