// Files of plants as they are: their format, and where a record begins, for the preview and for
// those that failed. What a record means is for the server to say. It touches no DOM.

import { shorten } from './format.js';
import { parse } from './json.js';

/** The formats: their media types, what a record is called, and what they are. */
const FORMATS = {
  csv: { media: 'text/csv', noun: 'line', description: 'CSV' },
  json: { media: 'application/json', noun: 'element', description: 'a JSON array' },
  ndjson: { media: 'application/x-ndjson', noun: 'line', description: 'one JSON object per line' },
};

/** @type {Record<string, Format>} by the extension or the first character */
const KNOWN = { 'csv': 'csv', 'tsv': 'csv', 'ndjson': 'ndjson', 'jsonl': 'ndjson', '[': 'json', '{': 'ndjson' };

/** @type {Record<string, string>} those that the server recognises from a header */
const SEPARATORS = { ',': 'comma', ';': 'semicolon', '\t': 'tab' };

const FIRST = 1000; // records of a preview
const HEADER = 1 << 20; // bytes

/**
 * @typedef {keyof typeof FORMATS} Format
 * @typedef {{line: number, text: string}} FileRecord with the line, or element, where it begins
 *
 * Which column has what, or -1. Reasons of an earlier import are in the first.
 * @typedef {Record<'id' | 'name' | 'tag' | 'if_version' | 'error', number>} Columns
 *
 * @typedef {object} Table CSV
 * @property {string} separator
 * @property {boolean} named whether a line such as sep=; before the header names it
 * @property {string} header
 * @property {number} lines before the first record
 * @property {string[]} headings
 * @property {Columns} columns
 * @property {boolean} chosen whether the columns are others than the header names
 *
 * @typedef {{
 *   file: File, format: Format, noun: string, description: string, first: FileRecord[], table?: Table,
 * }} PlantFile whose first records are without the header
 */

// openFile reads the beginning of a file. It throws an Error that says what is wrong with it.
/** @type {(file: File) => Promise<PlantFile>} */
export async function openFile(file) {
  const start = new TextDecoder(await encodingOf(file)).decode(await file.slice(0, 1000).arrayBuffer());
  if (start === '') {
    throw new Error(`${file.name} is empty.`);
  }
  if (/^.*[\0-\x08\x0e-\x1f]/.test(start)) {
    throw new Error(`${file.name} is not a text file. Save a spreadsheet as CSV first.`);
  }
  const [extension] = /[^.]*$/.exec(file.name.toLowerCase()) ?? [''];
  const format = KNOWN[extension] ?? KNOWN[start.trimStart()[0]] ?? (extension === 'json' ? 'json' : 'csv');
  const first = [];
  for await (const record of records(file, format)) {
    first.push(record);
    if (first.length === FIRST) {
      break;
    }
  }
  const { noun, description } = FORMATS[format];
  const table = format === 'csv' ? readHeader(first) : undefined;
  const separator = table ? `, separator ${SEPARATORS[table.separator] ?? table.separator}` : '';
  return { file, format, noun, description: description + separator, first, table };
}

// records yields the records of a file, with the header and blank lines.
/** @type {(file: File, format: Format) => AsyncGenerator<FileRecord, void, void>} */
export const records = (file, format) => (format === 'json' ? elements(read(file)) : lines(read(file), format === 'csv'));

async function* read(/** @type {File} */ file) {
  const reader = file.stream().pipeThrough(new TextDecoderStream(await encodingOf(file))).getReader();
  try {
    for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
      yield value ?? '';
    }
  } finally {
    await reader.cancel();
  }
}

/** encodingOf returns what the byte order mark says. @param {File} file */
async function encodingOf(file) {
  const mark = new Uint8Array(await file.slice(0, 2).arrayBuffer()).join();
  return { '255,254': 'utf-16le', '254,255': 'utf-16be' }[mark] ?? 'utf-8';
}


async function* lines(/** @type {AsyncIterable<string>} */ texts, /** @type {boolean} */ quotes) {
  let [line, rest, open] = [1, '', false];
  let record = /** @type {string[]} */ ([]);
  for await (const text of texts) {
    const parts = (rest + text).split('\n');
    rest = parts.pop() ?? '';
    for (const part of parts) {
      record.push(part);
      open = quotes && open !== (part.split('"').length % 2 === 0);
      if (!open) {
        yield { line, text: record.join('\n').replace(/\r$/, '') };
        line += record.length;
        record = [];
      }
    }
  }
  if (rest !== '' || open) {
    yield { line, text: [...record, rest].join('\n') };
  }
}

async function* elements(/** @type {AsyncIterable<string>} */ texts) {
  let [line, depth, text, quoted] = [0, 0, '', false];
  let read = 0; // characters of the parts before
  let escaped = -1; // the character after a backslash
  for await (const part of texts) {
    let from = 0;
    for (const { 0: c, index } of part.matchAll(/[\\"[\]{},]/g)) {
      if (read + index === escaped) {
        continue;
      }
      escaped = c === '\\' ? read + index + 1 : -1;
      quoted = quoted !== (c === '"');
      const before = depth;
      if (!quoted) {
        depth += Number('[{'.includes(c)) - Number(']}'.includes(c));
      }
      if (before === 0) {
        from = index + 1;
      } else if (!quoted && (depth === 0 || (depth === 1 && c === ','))) {
        text += part.slice(from, index);
        from = index + 1;
        if (text.trim() !== '') {
          line++;
          yield { line, text: text.trim() };
        }
        text = '';
      }
    }
    text += depth > 0 ? part.slice(from) : '';
    read += part.length;
  }
}

// cells splits a record of CSV. What is undefined is empty and not quoted.
function cells(/** @type {string} */ record, /** @type {string} */ separator) {
  const field = new RegExp(`\\${separator}(?:"([^"]*(?:""[^"]*)*)"|([^\\${separator}]*))`, 'g');
  return [...(separator + record).matchAll(field)].map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? (plain || undefined));
}

// readHeader takes the header off the first records. The separator is the first that gives it
// an id and a name, or else the one that makes the most columns.
/** @type {(first: FileRecord[]) => Table} */
function readHeader(first) {
  const given = /^"*sep=([\t!#$%&*,/:;=@\\^|~])"*$/i.exec(first[0].text)?.[1];
  const { line, text: header } = first.splice(0, given ? 2 : 1).at(-1) ?? first[0];
  const lines = line - 1 + header.split('\n').length;
  const tables = (given ? [given] : Object.keys(SEPARATORS)).map((separator) => {
    const headings = cells(header, separator).map((text = '') => text.trim());
    const names = headings.map((text) => text.toLowerCase());
    const [id, name, tag, version] = ['id', 'name', 'tag', 'if_version'].map((one) => names.indexOf(one));
    const columns = { id, name, tag, if_version: version, error: names[0] === 'error' ? 0 : -1 };
    const twice = names.some((one, i) => one in columns && one !== 'error' && names.indexOf(one) < i);
    return { separator, named: Boolean(given), header, lines, headings, columns, chosen: id < 0 || name < 0 || twice };
  });
  const table = tables.find(({ chosen }) => !chosen) ?? tables.reduce((a, b) => (b.headings.length > a.headings.length ? b : a));
  return table.chosen ? { ...table, columns: guess(table) } : table;
}

/** @type {[keyof Columns, RegExp][]} */
const WORDS = [
  ['id', /^(?:#|nr|no|num|key|code)\b|\bid$|_id$|plantid|number|nummer|num[eé]r|número/i],
  ['name', /name|\bnom|plant|pflanze|bezeichnung|title|species/i],
  ['tag', /tag|typ|categ|kateg|group|gruppe/i],
  ['id', /^/],
  ['name', /^/],
];

// guess returns which columns probably have what the header does not name: the first with a usual
// word in its heading. Failing that, the id and the name are the first columns that are left.
function guess(/** @type {Table} */ { headings, columns }) {
  const found = { ...columns };
  for (const [name, word] of WORDS.filter(([one]) => columns[one] < 0)) {
    if (found[name] < 0) {
      found[name] = headings.findIndex((text, i) => !Object.values(found).includes(i) && word.test(text));
    }
  }
  return found;
}

/** ignored returns the headings of the columns that are not used. @param {Table} [table] */
export const ignored = (table) => table?.headings
  .filter((_, i) => !Object.values(table.columns).includes(i)).map((text) => JSON.stringify(shorten(text, 40))) ?? [];

/**
 * plantOf returns a record for display, as texts. What is not JSON is shown as a name.
 * @typedef {{id?: string, name?: string, tag?: string, if_version?: string}} Cells
 * @param {Pick<PlantFile, 'table'>} file
 * @param {string} text
 * @returns {Cells}
 */
export function plantOf({ table }, text) {
  if (table) {
    const fields = cells(text, table.separator);
    const { id, name, tag, if_version: version } = table.columns;
    return { id: fields[id], name: fields[name] ?? '', tag: fields[tag], if_version: fields[version] };
  }
  try {
    const show = (/** @type {any} */ member) => (typeof member === 'object' ? JSON.stringify(member) : member?.toString());
    const { id, name, tag, if_version: version } = parse(text);
    return { id: show(id), name: show(name), tag: show(tag), if_version: show(version) };
  } catch {
    return { name: text };
  }
}

// find returns the records that are wanted: of a whole file, or of its first records.
/** @type {(opened: PlantFile, wanted: (record: FileRecord, plant: () => Cells) => boolean, all: boolean) => Promise<FileRecord[]>} */
export async function find(opened, wanted, all) {
  const found = [];
  for await (const record of all ? records(opened.file, opened.format) : opened.first) {
    const isHeader = record.line <= (opened.table?.lines ?? 0);
    if (!isHeader && record.text.trim() !== '' && wanted(record, () => plantOf(opened, record.text))) {
      found.push(record);
    }
  }
  return found;
}

/** names returns a header that the server understands. @param {Table} table */
const names = ({ headings, columns, separator }) => headings
  .map((_, i) => Object.entries(columns).find(([, column]) => column === i)?.[0]).join(separator);

/** whole returns a file as it is sent: with the columns that were chosen. @param {PlantFile} file */
export async function whole({ file, format, table }) {
  const type = FORMATS[format].media;
  if (!table?.chosen) {
    return new Blob([file], { type });
  }
  const encoding = await encodingOf(file);
  const plain = encoding === 'utf-8' ? file : new Blob([new TextDecoder(encoding, { fatal: true }).decode(await file.arrayBuffer())]);
  const bytes = new Uint8Array(await plain.slice(0, HEADER).arrayBuffer());
  let end = 0;
  for (let line = 0; line < table.lines; line++) {
    end = bytes.indexOf(10, end) + 1 || plain.size;
  }
  const first = table.named ? `sep=${table.separator}\n` : '';
  return new Blob([first, names(table), '\n'.repeat(table.lines - (first ? 1 : 0)), plain.slice(end)], { type });
}

// part returns records that follow one another as a file of their own, and how much lower its numbers are.
export function part(/** @type {PlantFile} */ { format, table }, /** @type {FileRecord[]} */ some) {
  const header = table ? `sep=${table.separator}\n${names(table)}\n` : '';
  const texts = some.map(({ text }) => text);
  const body = format === 'json' ? `[${texts.join(',\n')}]` : `${header}${texts.join('\n')}\n`;
  return { body: new Blob([body], { type: FORMATS[format].media }), before: some[0].line - (table ? 3 : 1) };
}

// failedFile returns a table of records that failed, with their reasons, which an import ignores.
export function failedFile(/** @type {{reason: string, now: Cells}[]} */ failed, separator = ',') {
  const quote = (/** @type {string | undefined} */ text) => (text === undefined ? '' : `"${text.replaceAll('"', '""')}"`);
  const rows = failed.map(({ reason, now }) => [reason, now.id, now.name, now.tag, now.if_version].map(quote));
  const first = separator in SEPARATORS ? '' : `sep=${separator}\n`;
  return first + [['error', 'id', 'name', 'tag', 'if_version'], ...rows].map((row) => `${row.join(separator)}\n`).join('');
}
