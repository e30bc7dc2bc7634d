// How values are shown. It touches no DOM.

const numbers = new Intl.NumberFormat('en');
const compact = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });

/** count shows a count with its thousands. @param {number | bigint} n */
export const count = (n) => numbers.format(n);

// plural shows a count with its noun: "1 plant", "2 plants".
export const plural = (/** @type {number | bigint} */ n, /** @type {string} */ noun) => `${count(n)} ${noun}${BigInt(n) === 1n ? '' : 's'}`;

/** figure shows a measured value in a few characters. @param {number} n */
export const figure = (n) => (n >= 1000 ? compact.format(n) : n.toFixed(n > 0 && n < 10 ? 1 : 0));

/** size shows a number of bytes. @param {number} bytes */
export function size(bytes) {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let n = bytes;
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) {
    n /= 1000;
  }
  return `${i === 0 ? n : n.toPrecision(3)} ${units[i]}`;
}

/** span shows seconds in the largest unit that there are two of. @param {number} seconds */
export function span(seconds) {
  const [length, unit] = /** @type {[number, string][]} */ ([[86_400, 'day'], [3600, 'hour'], [60, 'minute']])
    .find(([unit]) => seconds >= 2 * unit) ?? [1, 'second'];
  return plural(Math.floor(Math.max(0, seconds) / length), unit);
}

// shorten truncates a text that is too long to display.
export const shorten = (/** @type {string} */ text, /** @type {number} */ max) => (
  text.length > max ? `${text.slice(0, max).toWellFormed()}…` : text);

/** plain returns a text without the diacritics that can be taken off its letters. @param {string} text */
export const plain = (text) => text.normalize('NFD').replace(/[\u0300-\u036f]/g, '');

// hasWords reports whether a name contains every word of a search, as the server decides it:
// in any order, ignoring case and diacritics.
export function hasWords(/** @type {string} */ name, /** @type {string} */ q) {
  const text = plain(name);
  return plain(q).split(/\p{White_Space}+/u).every((word) => new RegExp(word.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'iu').test(text));
}

/** hue returns one of the 8 colours of tags: for the same text always the same. @param {string} tag */
export const hue = (tag) => [...tag].reduce((sum, c) => (31 * sum + (c.codePointAt(0) ?? 0)) % 997, 7) % 8;

/** sentence makes a server's message a sentence. @param {string} message */
export function sentence(message) {
  const text = message.slice(0, 1).toUpperCase() + message.slice(1);
  return /[.!?)]$/.test(text) ? text : `${text}.`;
}

// Words are English, as all of the console; an English browser says how times are written.
const ENGLISH = /^en\b/.exec(globalThis.navigator?.language)?.input ?? 'en-GB';

// time shows a time in the user's own time zone, which it names, with no more of the date than is needed.
/** @type {(at: string | number, now?: number, zone?: string, locale?: string) => string} */
export function time(at, now = Date.now(), zone, locale = ENGLISH) {
  const show = (/** @type {string | number} */ when, /** @type {Intl.DateTimeFormatOptions} */ options) =>
    formatter(locale, { timeZone: zone, ...options }).format(new Date(when));
  const clock = show(at, { timeStyle: 'long' });
  const day = (/** @type {string | number} */ when) => show(when, { dateStyle: 'medium' });
  if (day(at) === day(now)) {
    return clock;
  }
  if (day(at) === day(now - 86_400_000)) {
    return `yesterday, ${clock}`;
  }
  const sameYear = show(at, { year: 'numeric' }) === show(now, { year: 'numeric' });
  return sameYear ? `${show(at, { month: 'short', day: 'numeric' })}, ${clock}` : day(at);
}

// exact shows a time in full, to the millisecond.
/** @type {(at: string | number, zone?: string, locale?: string) => string} */
export const exact = (at, zone, locale = ENGLISH) => formatter(locale, {
  timeZone: zone, year: 'numeric', month: 'short', day: 'numeric', weekday: 'short',
  hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3, timeZoneName: 'short',
}).format(new Date(at));

const relative = new Intl.RelativeTimeFormat('en');
/** @type {[number, 'day' | 'hour' | 'minute' | 'second'][]} */
const UNITS = [[86_400, 'day'], [3600, 'hour'], [60, 'minute'], [10, 'second']];

// ago shows how long ago a time was, or how far away it is, and a date if that is 30 days or more.
/** @type {(at: string | number, now?: number, zone?: string, locale?: string) => string} */
export function ago(at, now = Date.now(), zone, locale = ENGLISH) {
  const seconds = (new Date(at).getTime() - now) / 1000;
  if (Math.abs(seconds) >= 30 * 86_400) {
    return formatter(locale, { timeZone: zone, dateStyle: 'medium' }).format(new Date(at));
  }
  const [length, unit] = UNITS.find(([least]) => Math.abs(seconds) >= least) ?? [0, 'second'];
  const step = unit === 'second' ? 1 : length;
  return length === 0 ? 'just now' : relative.format(Math.trunc(seconds / step), unit);
}

const formatters = /** @type {Map<string, Intl.DateTimeFormat>} */ (new Map());

// formatter returns a formatter of times. To build one takes much longer than to use it.
function formatter(/** @type {string | undefined} */ locale, /** @type {Intl.DateTimeFormatOptions} */ options) {
  const key = JSON.stringify([locale, options]);
  const made = formatters.get(key) ?? new Intl.DateTimeFormat(locale, options);
  formatters.set(key, made);
  return made;
}

/** @type {Record<string, string>} */
const TYPES = {
  'plant.created': 'Created',
  'plant.replaced': 'Changed',
  'plant.deleted': 'Deleted',
  'token.created': 'Token created',
  'token.revoked': 'Token revoked',
};
export const EVENT_TYPES = Object.keys(TYPES);

/** happened says what an event is, in a word or two. @param {{type: string}} event */
export const happened = ({ type }) => TYPES[type] ?? type;

const UNSEEN = '\\r\\n|[\\u0000-\\u001f\\u007f\\u0085\\u00a0\\u200b\\u2028\\u2029\\ufeff\\u202a-\\u202e\\u2066-\\u2069]|(?<=\\s) | (?=\\s)';

// marks splits a text into pieces: plain text, and characters that would not be seen, each
// with a visible sign and its name. Joined together the pieces are the text. A space counts
// as one of these beside another, and at the ends of a text that is not just a part of one.
/** @type {(text: string, part?: boolean) => {text: string, sign?: string, name?: string}[]} */
export function marks(text, part = false) {
  const pieces = [];
  let at = 0;
  const ends = part ? '' : '|^ | $';
  for (const { 0: found, index } of text.matchAll(new RegExp(UNSEEN + ends, 'g'))) {
    if (index > at) {
      pieces.push({ text: text.slice(at, index) });
    }
    pieces.push({ text: found, ...mark(found) });
    at = index + found.length;
  }
  if (at < text.length) {
    pieces.push({ text: text.slice(at) });
  }
  return pieces;
}

/** @type {Record<string, [string, string]>} */
const SIGNS = {
  '\r\n': ['CR↵', 'line break (CR LF)'],
  '\n': ['↵', 'line break'],
  '\r': ['CR', 'carriage return'],
  '\t': ['→', 'tab'],
  ' ': ['·', 'space'],
  '\u00a0': ['·', 'no-break space'],
};

function mark(/** @type {string} */ found) {
  const code = `U+${found.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`;
  const [sign, name] = SIGNS[found] ?? [code, code];
  return { sign, name };
}

// restoreBreaks returns an edited text with the line breaks of the original. A text area
// makes every line break a line feed: lines that were not edited get back what they had,
// and new ones get the kind that the original has most.
export function restoreBreaks(/** @type {string} */ original, /** @type {string} */ edited) {
  const breaks = original.match(/\r\n|\r|\n/g) ?? [];
  if (breaks.every((text) => text === '\n')) {
    return edited;
  }
  const [before, after] = [original.split(/\r\n|\r|\n/), edited.split('\n')];
  const uses = (/** @type {string} */ kind) => breaks.filter((text) => text === kind).length;
  const usual = ['\r\n', '\n', '\r'].sort((a, b) => uses(b) - uses(a))[0];
  const [same, tail] = common(before, after); // lines that were not edited
  return after.map((line, i) => {
    const left = after.length - 1 - i; // line breaks after that of this line
    const own = i < same ? breaks[i] : left <= tail ? breaks[breaks.length - left] : usual;
    return left === 0 ? line : line + (own ?? usual);
  }).join('');
}

/** @typedef {{text: string, same: boolean}} Piece */

// differences splits both texts into their common beginning and end, and the words between that
// differ. The pieces of each text, joined together, are the text.
/** @type {(one: string, other: string) => [Piece[], Piece[]]} */
export function differences(one, other) {
  const words = (/** @type {string} */ text) => text.match(/[\p{L}\p{N}\p{M}]+|\s+|[^]/gu) ?? [];
  const [a, b] = [words(one), words(other)];
  const [start, end] = common(a, b);
  const pieces = (/** @type {string[]} */ all) => [
    { text: all.slice(0, start).join(''), same: true },
    { text: all.slice(start, all.length - end).join(''), same: false },
    { text: all.slice(all.length - end).join(''), same: true },
  ].filter(({ text }) => text);
  return [pieces(a), pieces(b)];
}

/** common returns how many items two lists share at the beginning, and at the end. @param {string[]} a @param {string[]} b */
function common(a, b) {
  const most = Math.min(a.length, b.length);
  let [start, end] = [0, 0];
  while (start < most && a[start] === b[start]) {
    start++;
  }
  while (end < most - start && a[a.length - 1 - end] === b[b.length - 1 - end]) {
    end++;
  }
  return [start, end];
}
