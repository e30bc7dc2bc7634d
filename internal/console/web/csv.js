// CSV as spreadsheets write it, by the rules of the command plantstore import. It touches no
// DOM.

import { plural, shorten } from './format.js';

/** @type {Record<string, string>} those that are recognised from a header */
const SEPARATORS = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };

/** @param {string} separator */
export const separatorName = (separator) => SEPARATORS[separator] ?? JSON.stringify(separator);

/**
 * @typedef {{id: number, name: number, tag: number}} Columns which column has what, or -1
 *
 * @typedef {object} Table what a header says
 * @property {string} separator
 * @property {string[]} headings
 * @property {Columns} columns
 * @property {boolean} hasReasons whether the first column says why an earlier import failed
 * @property {string} problem why the columns are not known, or empty
 *
 * @typedef {{text: string, quoted: boolean}} Field
 */

/**
 * separatorLine returns the separator that a line such as sep=; before the header names, or
 * ''.
 * @param {string} line
 */
export const separatorLine = (line) => /^"*sep=([\t!#$%&*,/:;=@\\^|~])"*$/i.exec(line)?.[1] ?? '';

/** @param {string} text */
const trim = (text) => text.replace(/^\p{White_Space}+|\p{White_Space}+$/gu, '');

/** @param {string} text */
const cut = (text) => shorten(text, 40);

/**
 * readHeader finds the columns of a header with the separator, or with the first known one
 * that works. If none does, it is the one that makes the most columns.
 * @param {string} source
 * @param {string} [separator]
 */
export function readHeader(source, separator) {
  const tables = (separator ? [separator] : Object.keys(SEPARATORS)).map((one) => tableOf(source, one));
  return tables.find(({ problem }) => !problem)
    ?? tables.reduce((best, table) => (table.headings.length > best.headings.length ? table : best));
}

/**
 * @param {string} source
 * @param {string} separator
 * @returns {Table}
 */
function tableOf(source, separator) {
  const { fields, problem } = split(source, separator);
  const headings = fields.map(({ text }) => text);
  const names = headings.map((text) => trim(text).toLowerCase());
  const columns = { id: names.indexOf('id'), name: names.indexOf('name'), tag: names.indexOf('tag') };
  const twice = names.find((name, i) => Object.hasOwn(columns, name) && names.indexOf(name) < i);
  const table = { separator, headings, columns, hasReasons: names[0] === 'error', problem: '' };
  if (problem) {
    table.problem = `malformed header: ${problem}`;
  } else if (twice) {
    table.problem = `the header names the column ${twice} twice`;
  } else if (columns.id < 0 || columns.name < 0) {
    const seen = headings.slice(0, 10).map((text) => JSON.stringify(cut(text)));
    table.problem = 'the header must name the columns id and name, and may name tag; '
      + `with the separator ${separatorName(separator)} it has ${seen.join(', ')}${headings.length > 10 ? ', …' : ''}`;
  }
  return table;
}

/**
 * ignored returns the headings, quoted, of the columns that are not used.
 * @param {Table} table
 */
export const ignored = ({ headings, columns, hasReasons }) => headings
  .filter((_, i) => !Object.values(columns).includes(i) && !(i === 0 && hasReasons)).map((text) => JSON.stringify(cut(text)));

const WORDS = {
  id: /^(?:#|nr|no|num|key|code)\b|\bid$|_id$|plantid|number|nummer|num[eé]r|número/i,
  name: /name|\bnom|plant|pflanze|bezeichnung|title|species/i,
  tag: /tag|typ|categ|kateg|group|gruppe/i,
};

/**
 * guess returns which columns of a header probably have what: each that the header does not
 * name is the first whose heading has a usual word. Failing that, the id and the name are the
 * first columns that are left.
 * @param {Table} table
 */
export function guess({ headings, columns, hasReasons }) {
  const found = { ...columns };
  const free = (/** @type {number} */ i) => !Object.values(found).includes(i) && !(i === 0 && hasReasons);
  for (const pass of [WORDS, { id: /^/, name: /^/ }]) {
    for (const [name, word] of Object.entries(pass)) {
      const column = /** @type {keyof Columns} */ (name);
      if (found[column] < 0) {
        found[column] = headings.findIndex((text, i) => free(i) && word.test(trim(text)));
      }
    }
  }
  return found;
}

/**
 * split splits a record into its fields. An empty field and a quoted empty one differ: no tag,
 * and the empty tag.
 * @param {string} source
 * @param {string} separator
 * @returns {{fields: Field[], problem: string}}
 */
export function split(source, separator) {
  const fields = [];
  const field = new RegExp(`"([^"]*(?:""[^"]*)*)"|[^\\${separator}]*`, 'y');
  for (let at = 0; ; at++) {
    field.lastIndex = at;
    const [all, text] = /** @type {RegExpExecArray} */ (field.exec(source)); // it matches everywhere
    const quoted = text !== undefined;
    at += all.length;
    if (!quoted && all.includes('"')) {
      return { fields: [], problem: 'a quote in an unquoted field: quote the field and double the quote' };
    }
    fields.push({ text: quoted ? text.replaceAll('""', '"') : all, quoted });
    if (at === source.length) {
      return { fields, problem: '' };
    }
    if (source[at] !== separator) {
      return { fields: [], problem: 'unexpected text after a closing quote' };
    }
  }
}

/**
 * plantOf returns the plant of a record as JSON, or why there is none.
 * @param {string} source
 * @param {Table} table
 * @param {string} invalid the encoding in which the record is not valid, or empty
 * @returns {{json: string, problem: string}}
 */
export function plantOf(source, { separator, headings, columns }, invalid) {
  const { fields, problem } = split(source, separator);
  if (problem) {
    return { json: '', problem };
  }
  if (fields.length !== headings.length) {
    return { json: '', problem: `the record has ${plural(fields.length, 'field')}, but the header has ${headings.length}` };
  }
  if (invalid) {
    return { json: '', problem: `the record is not valid ${invalid}` };
  }
  const id = idOf(trim(fields[columns.id].text));
  const tag = fields[columns.tag];
  const tagged = tag && (tag.text !== '' || tag.quoted) ? `,"tag":${JSON.stringify(tag.text)}` : '';
  return { ...id, json: id.problem ? '' : `{"id":${id.json},"name":${JSON.stringify(fields[columns.name].text)}${tagged}}` };
}

// idOf refuses a number that a spreadsheet may have changed. What is no number becomes a
// string, so that the server says what is wrong with it.
function idOf(/** @type {string} */ text) {
  if (/^-?(?:0|[1-9]\d*)(?:\.\d+)?$/.test(text)) {
    return { json: text, problem: '' };
  }
  const plain = '"id" must be a number in plain digits';
  if (/^[+-]?\d+(?:[.,]\d+)?e[+-]?\d+$/i.test(text)) {
    const lost = 'a spreadsheet has lost the others; format the column as text there, and enter the ids again';
    return { json: '', problem: `${plain}, got ${cut(text)}: ${lost}` };
  }
  if (/^[+-]?\d[\d.,'’\p{Zs}]*$/u.test(text)) {
    return { json: '', problem: `${plain}, without leading zeros, a plus sign or separators, got ${cut(text)}` };
  }
  return { json: JSON.stringify(text), problem: '' };
}

/**
 * withoutReason returns a record without the reason of an earlier import.
 * @param {string} source
 * @param {Table} table
 */
export function withoutReason(source, { separator, hasReasons }) {
  const reason = `"[^"]*(?:""[^"]*)*"|[^"\\${separator}][^\\${separator}]*|`;
  return hasReasons ? source.replace(new RegExp(`^(?:${reason})(?:\\${separator}|$)`), '') : source;
}

/** quote returns a quoted field. @param {string} text */
export const quote = (text) => `"${text.replaceAll('"', '""')}"`;

/**
 * head returns the header of a file of failed records.
 * @param {string} source the header of the file
 * @param {Table} table
 */
export function head(source, table) {
  const { separator } = table;
  return `${separator in SEPARATORS ? '' : `sep=${separator}\n`}error${separator}${withoutReason(source, table)}\n`;
}

const field = (/** @type {string} */ text) => (/[",\r\n]/.test(text) ? quote(text) : text);

/**
 * line returns the line of a plant in an export.
 * @param {{id: string, name: string, tag?: string}} plant
 */
export const line = ({ id, name, tag }) => `${id},${field(name)},${tag === '' ? '""' : field(tag ?? '')}\n`;

/** harmless returns a text that no spreadsheet runs as a formula. @param {string} text */
export const harmless = (text) => (/^[=+\-@\t\r\n]/.test(text) ? `'${text}` : text);
