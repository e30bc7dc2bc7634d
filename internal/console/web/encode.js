// The formats of an export, made of the server's NDJSON as it arrives. It touches no DOM.

import { harmless, line } from './csv.js';
import { parse } from './json.js';

/** @typedef {'csv' | 'spreadsheet' | 'ndjson' | 'json'} ExportFormat */

const HEADER = 'id,name,tag\n';
const csv = (/** @type {string} */ json) => line(parse(json));

// A spreadsheet recognises UTF-8 by the byte order mark.
const spreadsheet = (/** @type {string} */ json) => {
  const { id, name, tag } = parse(json);
  return line({ id, name: harmless(name), tag: tag && harmless(tag) });
};

const FORMATS = {
  csv: { first: HEADER, one: csv, between: '', last: '', none: HEADER },
  spreadsheet: { first: `\ufeff${HEADER}`, one: spreadsheet, between: '', last: '', none: `\ufeff${HEADER}` },
  json: { first: '[\n', one: (/** @type {string} */ json) => json, between: ',\n', last: '\n]\n', none: '[]\n' },
};

/**
 * encode returns a stream that makes a file of the format out of NDJSON. It keeps no more
 * than one chunk and one line in memory.
 * @param {ExportFormat} format
 * @returns {TransformStream<Uint8Array, Uint8Array>}
 */
export function encode(format) {
  if (format === 'ndjson') {
    return new TransformStream();
  }
  const { first, one, between, last, none } = FORMATS[format];
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const encoder = new TextEncoder();
  let rest = '';
  let lead = first;
  return new TransformStream({
    transform(chunk, controller) {
      const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      let out = '';
      for (const json of lines) {
        out += lead + one(json);
        lead = between;
      }
      controller.enqueue(encoder.encode(out));
    },
    flush(controller) {
      if (rest) {
        throw new TypeError('the response is cut off');
      }
      controller.enqueue(encoder.encode(lead === first ? none : last));
    },
  });
}
