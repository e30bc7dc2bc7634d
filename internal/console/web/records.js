// The records of a file of plants: NDJSON, a JSON array, or CSV with a header. The rules are
// those of the command plantstore import. It touches no DOM.

import { guess, head, plantOf, quote, readHeader, separatorLine, withoutReason } from './csv.js';
import { sentence } from './format.js';
import { Input, MAX_RECORD, rows } from './input.js';

/**
 * @typedef {'ndjson' | 'json' | 'csv'} Format
 * @typedef {import('./csv.js').Columns} Columns
 * @typedef {import('./csv.js').Table} Table
 *
 * @typedef {object} PlantRecord
 * @property {number} line of the file where it begins; in a JSON array, the number of the element
 * @property {string} json the plant on one line, as the server gets it; empty if there is a problem
 * @property {string | null} source the record as it is in the file; null if it was too long to keep
 * @property {string} problem why it cannot be sent, or empty
 *
 * @typedef {object} PlantFile
 * @property {Format} format
 * @property {string} noun what a record is called: line or element
 * @property {Table} [table] of CSV; if it has a problem, its columns are a guess
 * @property {string} header what a file of failed records begins with
 * @property {() => number} read how many bytes have been read
 * @property {AsyncGenerator<PlantRecord, void, void>} records in order. It throws a FileProblem
 *   where the file cannot be read further.
 */

/** FileProblem says in one sentence why a file, or the rest of it, cannot be imported. */
export class FileProblem extends Error {}

/**
 * openFile recognises the format of a file, by its content and its name. It throws a
 * FileProblem if there is none. The columns, if given, are those of CSV, whatever its header
 * says.
 * @param {{name: string, stream: () => ReadableStream<Uint8Array>}} file
 * @param {Columns} [columns]
 * @returns {Promise<PlantFile>}
 */
export async function openFile(file, columns) {
  const input = await Input.open(file.stream());
  const read = () => input.read;
  const format = recognise(file.name, input.head);
  if (format === 'json') {
    return { format, noun: 'element', header: '', read, records: elements(input) };
  }
  if (format === 'ndjson') {
    return { format, noun: 'line', header: '', read, records: lines(input) };
  }
  const all = rows(input, true);
  const first = await nextHeader(input, all);
  const separator = separatorLine(first);
  const source = separator ? await nextHeader(input, all) : first;
  const table = readHeader(source, separator);
  if (table.problem && table.headings.length < 2) {
    const other = separator || table.headings.length === 0 ? '' : '; for another separator, put a line such as sep=| before the header';
    throw new FileProblem(sentence(table.problem + other));
  }
  table.columns = columns ?? (table.problem ? guess(table) : table.columns);
  return { format, noun: 'line', table, header: head(source, table), read, records: plants(input, all, table) };
}

/**
 * @param {string} name
 * @param {string} text the beginning of the file
 * @returns {Format}
 */
function recognise(name, text) {
  const extension = /\.[^.]*$/.exec(name.toLowerCase())?.[0] ?? '';
  const isTable = extension === '.csv' || extension === '.tsv';
  const start = text.trimStart();
  if (start === '') {
    throw new FileProblem(`${name} is empty.`);
  }
  if (!isTable && start[0] === '[') {
    return 'json';
  }
  const lineBased = extension === '.ndjson' || extension === '.jsonl';
  if (!isTable && start[0] === '{') {
    const first = /^[^\n]*(?=\n)/.exec(start)?.[0];
    if (first !== undefined && !lineBased && !isJSON(first)) {
      throw new FileProblem(`${name} must be a JSON array of plants, or have one plant per line.`);
    }
    return 'ndjson';
  }
  const first = start.split('\n', 1)[0].replace(/\r$/, '');
  // Before its first line ends, a text has no control characters and is well encoded.
  if (/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(first.slice(0, 1000))) {
    throw new FileProblem(`${name} is not a text file: choose a file of plants as NDJSON, JSON or CSV.`);
  }
  if (isTable || separatorLine(first) || first.includes('\t') || !readHeader(first).problem) {
    return 'csv';
  }
  if (lineBased) {
    return 'ndjson';
  }
  throw new FileProblem(`${name} does not look like plants: choose a file with one JSON object per line, a JSON array, `
    + 'or CSV whose header names the columns id and name.');
}

/** @param {string} text */
function isJSON(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/**
 * @param {number} line
 * @param {string | null} source
 * @param {string} problem
 * @returns {PlantRecord}
 */
const refused = (line, source, problem) => ({ line, json: '', source, problem });

/** @param {number} line @param {string} noun */
const tooLong = (line, noun) => refused(line, null, `the ${noun} is longer than ${MAX_RECORD} bytes`);

/**
 * record returns one that is the same in the file and for the server.
 * @param {number} line
 * @param {string} noun
 * @param {string} json
 * @param {string} invalid
 */
const record = (line, noun, json, invalid) => (invalid
  ? refused(line, json, `the ${noun} is not valid ${invalid}`)
  : { line, json, source: json, problem: '' });

/**
 * lines yields the records of NDJSON.
 * @param {Input} input
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* lines(input) {
  for await (const row of rows(input, false)) {
    const { text, invalid } = input.text(row.bytes);
    const json = text.replace(/^[ \t\r]+/, '').replace(/[ \t\r]+$/, '');
    if (row.tooLong) {
      yield tooLong(row.line, 'line');
    } else if (json !== '') {
      yield record(row.line, 'line', json, invalid);
    }
  }
}

/**
 * elements yields the elements of a JSON array.
 * @param {Input} input
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* elements(input) {
  try {
    await blank(input);
    input.skip(1); // the bracket
    for (let line = 1; ; line++) {
      if (await blank(input) === 0x5d && line === 1) {
        break;
      }
      const element = await elementEnd(input, line);
      if (element.tooLong) {
        yield tooLong(line, 'element');
      } else {
        const { text, invalid } = input.text(input.bytes.subarray(0, element.end));
        yield record(line, 'element', compact(text, line), invalid);
      }
      input.skip(element.end);
      if (input.bytes[0] === 0x5d) {
        break;
      }
      input.skip(1); // the comma
    }
    input.skip(1);
    if (await blank(input) !== undefined) {
      throw new FileProblem('Unexpected data after the JSON array.');
    }
  } finally {
    await input.cancel();
  }
}

/**
 * blank skips white space and returns the byte after it, or undefined at the end.
 * @param {Input} input
 */
async function blank(input) {
  do {
    const { bytes } = input;
    let at = 0;
    while (at < bytes.length && ' \n\r\t'.includes(String.fromCharCode(bytes[at]))) {
      at++;
    }
    input.skip(at);
  } while (input.size === 0 && await input.more());
  return input.bytes[0];
}

/**
 * elementEnd returns where the element ends: before a comma or the bracket of the array.
 * Whether it is JSON is not its concern.
 * @param {Input} input
 * @param {number} line
 */
async function elementEnd(input, line) {
  let at = 0;
  let depth = 0;
  let quoted = false;
  let escaped = false;
  let tooLong = false;
  for (;;) {
    for (const { bytes } = input; at < bytes.length; at++) {
      const byte = bytes[at];
      if (quoted) {
        quoted = escaped || byte !== 0x22;
        escaped = !escaped && byte === 0x5c;
      } else if (byte === 0x22) {
        quoted = true;
      } else if (byte === 0x7b || byte === 0x5b) {
        depth++;
      } else if (depth === 0 && (byte === 0x2c || byte === 0x5d)) {
        return { end: at, tooLong: tooLong || at > MAX_RECORD };
      } else if (byte === 0x7d || byte === 0x5d) {
        depth--;
      }
    }
    if (at > MAX_RECORD) {
      tooLong = true;
      input.skip(at);
      at = 0;
    }
    if (!await input.more()) {
      throw new FileProblem(`Element ${line} is not JSON: the file ends too early.`);
    }
  }
}

/**
 * compact returns an element on one line. JSON has no line breaks within a string.
 * @param {string} text
 * @param {number} line
 */
function compact(text, line) {
  try {
    JSON.parse(text);
  } catch (err) {
    throw new FileProblem(`Element ${line} is not JSON: ${err.message}.`);
  }
  return text.replace(/[\r\n][ \t\r\n]*/g, '').trimEnd();
}

/**
 * nextHeader returns the next record of CSV as a text.
 * @param {Input} input
 * @param {AsyncGenerator<import('./input.js').Row, void, void>} all
 */
async function nextHeader(input, all) {
  const { value: row } = await all.next();
  if (row?.open || row?.tooLong) {
    throw new FileProblem(`Malformed header: ${row.open ? 'unclosed quote' : `longer than ${MAX_RECORD} bytes`}.`);
  }
  return row ? rowText(input, row).text : '';
}

/** @param {Input} input @param {import('./input.js').Row} row */
const rowText = (input, { bytes }) => input.text(bytes.at(-1) === 13 ? bytes.subarray(0, -1) : bytes);

/**
 * plants yields the records of CSV.
 * @param {Input} input
 * @param {AsyncGenerator<import('./input.js').Row, void, void>} all those after the header
 * @param {Table} table
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* plants(input, all, table) {
  for await (const row of all) {
    const { line } = row;
    const { text, invalid } = rowText(input, row);
    const source = withoutReason(text, table);
    if (row.tooLong) {
      yield tooLong(line, 'record');
    } else if (row.open) {
      yield refused(line, source, 'unclosed quote');
    } else if (text !== '') {
      yield { line, source, ...plantOf(text, table, invalid) };
    }
  }
}

/**
 * failedRecord returns a record for the file of failed records, with its reason: in the
 * format of the import, which ignores the reason when the file is imported again.
 * @param {Pick<PlantFile, 'table'>} file
 * @param {string | null} source
 * @param {string} reason
 */
export function failedRecord({ table }, source, reason) {
  if (table) {
    return source === null ? quote(reason) : `${quote(reason)}${table.separator}${source}`;
  }
  const start = `{"error":${JSON.stringify(reason)}`;
  if (source === null) {
    return `${start}}`;
  }
  if (!isJSON(source)) {
    return `${start},"source":${JSON.stringify(source)}}`;
  }
  if (source[0] !== '{') {
    return `${start},"source":${source}}`;
  }
  return `${[start, ...members(source).filter((text) => !/^\s*"error"\s*:/.test(text))].join(',')}}`;
}

/**
 * failedFile returns the parts of a file of failed records.
 * @param {Pick<PlantFile, 'format' | 'header'>} file
 * @param {string[]} records
 */
export function failedFile({ format, header }, records) {
  if (format === 'json') {
    return ['[\n', records.join(',\n'), '\n]\n'];
  }
  return [header, ...records.map((text) => `${text}\n`)];
}

/**
 * members returns the members of an object as they are in its JSON.
 * @param {string} object
 */
function members(object) {
  const found = [];
  let depth = 0;
  let from = 1;
  for (const { 0: part, index } of object.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[{\]},]/g)) {
    if (part === '{' || part === '[') {
      depth++;
    } else if (part === '}' || part === ']') {
      depth--;
    }
    if (depth === 0 || (depth === 1 && part === ',')) {
      found.push(object.slice(from, index));
      from = index + 1;
    }
  }
  return found.filter((text) => text.trim() !== '');
}
