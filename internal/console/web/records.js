// The records of a file of plants: NDJSON, a JSON array, or CSV with a header. The rules are
// those of the command plantstore import. It touches no DOM.

const MAX_RECORD = 16 * 1024 * 1024;
const HEAD = 64 * 1024; // is enough to recognise the format
const LF = 10;
const QUOTE = 34;

/**
 * @typedef {'ndjson' | 'json' | 'csv'} Format
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
 * @property {string[]} ignored the columns of a CSV file that are ignored, quoted
 * @property {string} header what a file of failed records begins with
 * @property {() => number} read how many bytes have been read
 * @property {AsyncGenerator<PlantRecord, void, void>} records in order. It throws a FileProblem
 *   where the file cannot be read further.
 */

/** FileProblem says in one sentence why a file, or the rest of it, cannot be imported. */
export class FileProblem extends Error {}

/**
 * openFile recognises the format of a file, by its content and its name. It throws a
 * FileProblem if there is none.
 * @param {{name: string, stream: () => ReadableStream<Uint8Array>}} file
 * @returns {Promise<PlantFile>}
 */
export async function openFile(file) {
  const input = new Input(file.stream());
  while (input.size < HEAD && await input.more()) {
    // until there is enough
  }
  input.skip(startsWithMark(input.bytes) ? 3 : 0);
  const format = recognise(file.name, input.bytes.subarray(0, HEAD));
  /** @type {PlantFile} */
  const opened = { format, noun: format === 'json' ? 'element' : 'line', ignored: [], header: '', read: () => input.read, records: lines(input) };
  if (format === 'json') {
    opened.records = elements(input);
  } else if (format === 'csv') {
    const { value } = await rows(input).next();
    const table = readHeader(value);
    opened.ignored = table.ignored;
    opened.header = `${table.head}\n`;
    opened.records = plants(input, table, value.lines);
  }
  return opened;
}

/** @param {Uint8Array} bytes */
const startsWithMark = (bytes) => bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;

/**
 * @param {string} name
 * @param {Uint8Array} head
 * @returns {Format}
 */
function recognise(name, head) {
  const text = new TextDecoder().decode(head);
  const extension = /\.[^.]*$/.exec(name.toLowerCase())?.[0] ?? '';
  const start = text.trimStart();
  if (start === '') {
    throw new FileProblem(`${name} is empty.`);
  }
  if (extension !== '.csv' && start[0] === '[') {
    return 'json';
  }
  const lineBased = extension === '.ndjson' || extension === '.jsonl';
  if (extension !== '.csv' && start[0] === '{') {
    const first = /^[^\n]*(?=\n)/.exec(start)?.[0];
    if (first !== undefined && !lineBased && !isJSON(first)) {
      throw new FileProblem(`${name} must be a JSON array of plants, or have one plant per line.`);
    }
    return 'ndjson';
  }
  const [first] = start.split('\n', 1);
  // Before its first line ends, a text has no control characters and is UTF-8.
  if (/[\u0000-\u0008\u000e-\u001f\ufffd]/.test(first.slice(0, 1000))) {
    throw new FileProblem(`${name} is not a text file: choose a file of plants as NDJSON, JSON or CSV.`);
  }
  if (extension === '.csv' || namesColumns(first)) {
    return 'csv';
  }
  if (lineBased) {
    return 'ndjson';
  }
  throw new FileProblem(`${name} does not look like plants: choose a file with one JSON object per line, a JSON array, or CSV whose header names the columns id and name.`);
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

/** @param {string} header */
function namesColumns(header) {
  const names = split(header).fields?.map(({ text }) => text.trim().toLowerCase()) ?? [];
  return names.includes('id') && names.includes('name');
}

/** Input buffers a stream. It keeps no more than what was not skipped. */
class Input {
  #reader;
  #buffer = new Uint8Array(256 * 1024);
  #start = 0;
  #end = 0;
  read = 0;

  /** @param {ReadableStream<Uint8Array>} stream */
  constructor(stream) {
    this.#reader = stream.getReader();
  }

  get size() {
    return this.#end - this.#start;
  }

  /** bytes is valid until the next call of more. */
  get bytes() {
    return this.#buffer.subarray(this.#start, this.#end);
  }

  /** @param {number} count */
  skip(count) {
    this.#start += count;
  }

  /** more reads on. It returns false at the end of the stream. */
  async more() {
    const { done, value } = await this.#reader.read();
    if (done) {
      return false;
    }
    this.read += value.length;
    if (this.#end + value.length > this.#buffer.length) {
      const old = this.bytes;
      if (old.length + value.length > this.#buffer.length / 2) {
        this.#buffer = new Uint8Array(2 * (old.length + value.length));
      }
      this.#buffer.set(old);
      this.#start = 0;
      this.#end = old.length;
    }
    this.#buffer.set(value, this.#end);
    this.#end += value.length;
    return true;
  }

  /** @returns {Promise<void>} */
  async cancel() {
    await this.#reader.cancel();
  }
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * decode returns the text, and whether the bytes are valid UTF-8.
 * @param {Uint8Array} bytes
 */
function decode(bytes) {
  try {
    return { text: strict.decode(bytes), valid: true };
  } catch {
    return { text: lenient.decode(bytes), valid: false };
  }
}

/**
 * rows yields the lines of the input without their line feed, from the line after the given
 * one. If quotes count, a line feed within quotes does not end a row.
 * @param {Input} input
 * @param {{quotes?: boolean, lines?: number}} [options]
 * @returns {AsyncGenerator<{line: number, lines: number, bytes: Uint8Array, tooLong: boolean, open: boolean}, any, void>}
 */
async function* rows(input, { quotes = true, lines: before = 0 } = {}) {
  let lineFeeds = before;
  for (;;) {
    const line = lineFeeds + 1;
    let at = 0;
    let open = false;
    let tooLong = false;
    let found = false;
    while (!found) {
      const { bytes } = input;
      if (quotes) {
        for (; at < bytes.length && !found; at++) {
          if (bytes[at] === QUOTE) {
            open = !open;
          } else if (bytes[at] === LF) {
            lineFeeds++;
            found = !open;
          }
        }
      } else {
        const end = bytes.indexOf(LF, at);
        found = end >= 0;
        lineFeeds += found ? 1 : 0;
        at = found ? end + 1 : bytes.length;
      }
      if (!found) {
        if (at > MAX_RECORD) {
          tooLong = true;
          input.skip(at);
          at = 0;
        }
        if (!await input.more()) {
          break;
        }
      }
    }
    if (!found && at === 0 && !tooLong) {
      return;
    }
    const bytes = input.bytes.subarray(0, found ? at - 1 : at);
    input.skip(at);
    yield { line, lines: lineFeeds, bytes, tooLong: tooLong || bytes.length > MAX_RECORD, open };
    if (!found) {
      return;
    }
  }
}

/**
 * lines yields the records of NDJSON.
 * @param {Input} input
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* lines(input) {
  try {
    for await (const { line, bytes, tooLong } of rows(input, { quotes: false })) {
      if (tooLong) {
        yield { line, json: '', source: null, problem: `the line is longer than ${MAX_RECORD} bytes` };
        continue;
      }
      const { text, valid } = decode(bytes);
      const json = text.replace(/^[ \t\r]+/, '').replace(/[ \t\r]+$/, '');
      if (json !== '') {
        yield valid ? { line, json, source: json, problem: '' } : { line, json: '', source: json, problem: 'the line is not valid UTF-8' };
      }
    }
  } finally {
    await input.cancel();
  }
}

/**
 * elements yields the elements of a JSON array.
 * @param {Input} input
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* elements(input) {
  let line = 0;
  try {
    await blank(input);
    input.skip(1); // the bracket
    for (;;) {
      line++;
      if (await blank(input) === 0x5d && line === 1) {
        break;
      }
      const { end, tooLong } = await elementEnd(input, line);
      if (tooLong) {
        yield { line, json: '', source: null, problem: `the element is longer than ${MAX_RECORD} bytes` };
      } else {
        const { text, valid } = decode(input.bytes.subarray(0, end));
        const json = compact(text, line);
        yield valid ? { line, json, source: json, problem: '' } : { line, json: '', source: json, problem: 'the element is not valid UTF-8' };
      }
      input.skip(end);
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
    while (at < bytes.length && (bytes[at] === 32 || bytes[at] === LF || bytes[at] === 13 || bytes[at] === 9)) {
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
        quoted = escaped || byte !== QUOTE;
        escaped = !escaped && byte === 0x5c;
      } else if (byte === QUOTE) {
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

/** @typedef {{id: number, name: number, tag: number, columns: number, hasReasons: boolean, ignored: string[], head: string}} Table */

/**
 * @param {{bytes: Uint8Array, open: boolean, tooLong: boolean}} row
 * @returns {Table}
 */
function readHeader(row) {
  const source = rowText(row).text;
  const { fields, problem } = row.open ? { fields: [], problem: 'unclosed quote' } : split(source);
  if (problem) {
    throw new FileProblem(`Malformed header: ${problem}.`);
  }
  const table = { id: -1, name: -1, tag: -1, columns: fields.length, hasReasons: false, ignored: /** @type {string[]} */ ([]), head: '' };
  fields.forEach(({ text }, i) => {
    const name = text.trim().toLowerCase();
    if (name === 'id' || name === 'name' || name === 'tag') {
      table[name] = i;
    } else if (i === 0 && name === 'error') {
      table.hasReasons = true;
    } else {
      table.ignored.push(JSON.stringify(cut(text)));
    }
  });
  if (table.id < 0 || table.name < 0) {
    throw new FileProblem(`The header must name the columns id and name, and may name tag, got ${JSON.stringify(cut(source))}.`);
  }
  table.head = `error,${withoutReason(source, table)}`;
  return table;
}

/** @param {string} text */
const cut = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);

/** @param {{bytes: Uint8Array}} row */
function rowText({ bytes }) {
  return decode(bytes.at(-1) === 13 ? bytes.subarray(0, -1) : bytes);
}

/**
 * plants yields the records of CSV.
 * @param {Input} input
 * @param {Table} table
 * @param {number} before the line on which the header ends
 * @returns {AsyncGenerator<PlantRecord, void, void>}
 */
async function* plants(input, table, before) {
  try {
    for await (const row of rows(input, { lines: before })) {
      const { line } = row;
      if (row.tooLong) {
        yield { line, json: '', source: null, problem: `the record is longer than ${MAX_RECORD} bytes` };
        continue;
      }
      const { text, valid } = rowText(row);
      if (text === '') {
        continue;
      }
      const source = withoutReason(text, table);
      const { fields, problem } = row.open ? { fields: [], problem: 'unclosed quote' } : split(text);
      if (problem) {
        yield { line, json: '', source, problem };
      } else if (fields.length !== table.columns) {
        yield { line, json: '', source, problem: `the record has ${fields.length} fields, but the header has ${table.columns}` };
      } else if (!valid) {
        yield { line, json: '', source, problem: 'the record is not valid UTF-8' };
      } else {
        yield { line, json: plantOf(fields, table), source, problem: '' };
      }
    }
  } finally {
    await input.cancel();
  }
}

/**
 * plantOf encodes a plant. An id that is not a number is sent as a string, so that the
 * server says what is wrong with it.
 * @param {{text: string, quoted: boolean}[]} fields
 * @param {Table} table
 */
function plantOf(fields, table) {
  const id = fields[table.id].text.trim();
  const tag = fields[table.tag];
  const members = [
    `"id":${/^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(id) ? id : JSON.stringify(id)}`,
    `"name":${JSON.stringify(fields[table.name].text)}`,
  ];
  if (tag && (tag.text !== '' || tag.quoted)) {
    members.push(`"tag":${JSON.stringify(tag.text)}`);
  }
  return `{${members.join(',')}}`;
}

/**
 * split splits a record of CSV into its fields. An empty field and a quoted empty one differ:
 * no tag, and the empty tag.
 * @param {string} source
 * @returns {{fields: {text: string, quoted: boolean}[], problem: string}}
 */
function split(source) {
  const fields = [];
  let at = 0;
  for (;;) {
    const field = /"([^"]*(?:""[^"]*)*)"|[^,]*/y;
    field.lastIndex = at;
    const found = /** @type {RegExpExecArray} */ (field.exec(source)); // it matches everywhere
    const quoted = found[1] !== undefined;
    at += found[0].length;
    if (!quoted && found[0].includes('"')) {
      return { fields: [], problem: 'a quote in an unquoted field: quote the field and double the quote' };
    }
    fields.push({ text: quoted ? found[1].replaceAll('""', '"') : found[0], quoted });
    if (at === source.length) {
      return { fields, problem: '' };
    }
    if (source[at] !== ',') {
      return { fields: [], problem: 'unexpected text after a closing quote' };
    }
    at++;
  }
}

/**
 * withoutReason returns a record without the reason of an earlier import.
 * @param {string} source
 * @param {Table} table
 */
function withoutReason(source, { hasReasons }) {
  if (!hasReasons) {
    return source;
  }
  if (source[0] === '"') {
    return source.replace(/^"[^"]*(?:""[^"]*)*"(?:,|$)/, '');
  }
  const comma = source.indexOf(',');
  return comma < 0 ? '' : source.slice(comma + 1);
}

/**
 * failedRecord returns a record for the file of failed records, with its reason: in the
 * format of the import, which ignores the reason when the file is imported again.
 * @param {Format} format
 * @param {string | null} source
 * @param {string} reason
 */
export function failedRecord(format, source, reason) {
  if (format === 'csv') {
    const field = /[",\r\n]/.test(reason) ? `"${reason.replaceAll('"', '""')}"` : reason;
    return source === null ? field : `${field},${source}`;
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
