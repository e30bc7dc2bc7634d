// JSON with exact ids. It touches no DOM.

import { shorten } from './format.js';

/**
 * parse parses JSON and keeps every number as a string: an id has 64 bits, and a
 * JavaScript number only 53.
 * @param {string} text
 * @returns {any}
 */
export function parse(text) {
  const exact = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
  return JSON.parse(text.replace(exact, (part) => (part[0] === '"' ? part : `"${part}"`)));
}

/**
 * plantJSON encodes a plant. The id is sent as typed if it is a number, and as a string
 * otherwise, so that the server's error message says what is wrong.
 * @param {{id?: string, name: string, tag?: string}} plant
 */
export function plantJSON({ id, name, tag }) {
  const members = [];
  if (id !== undefined && id !== '') {
    members.push(`"id":${idJSON(id)}`);
  }
  members.push(`"name":${JSON.stringify(name)}`);
  if (tag !== undefined) {
    members.push(`"tag":${JSON.stringify(tag)}`);
  }
  return `{${members.join(',')}}`;
}

/** @param {string} text */
function idJSON(text) {
  if (/^[+-]?\d+$/.test(text)) {
    return BigInt(text).toString();
  }
  return /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text) ? text : JSON.stringify(text);
}

/**
 * refusal returns why the server would refuse a plant, in its words, or '' if nothing is known
 * to be wrong. Only the server knows everything: duplicate members, for example.
 * @param {string} json
 */
export function refusal(json) {
  let plant;
  try {
    plant = JSON.parse(json);
  } catch {
    return 'not JSON';
  }
  if (kind(plant) !== 'an object') {
    return `not a JSON object: got ${kind(plant)}`;
  }
  const problems = [];
  for (const [name, member] of Object.entries(plant)) {
    if (name === 'id') {
      problems.push(typeof member === 'number' ? idProblem(parse(json).id) : `"id" must be an integer, got ${kind(member)}`);
    } else if ((name === 'name' || name === 'tag') && typeof member !== 'string') {
      problems.push(`"${name}" must be a string, got ${kind(member)}`);
    }
  }
  problems.push('id' in plant ? '' : '"id" is missing: send an integer', 'name' in plant ? '' : '"name" is missing: send a string');
  return problems.filter(Boolean).join('; ');
}

const LIMIT = 2n ** 63n;

// idProblem says nothing about exponents, which a file of plants hardly ever has.
function idProblem(/** @type {string} */ text) {
  const [, whole, fraction] = /^(-?\d+)(?:\.(\d+))?$/.exec(text) ?? [];
  if (whole && !/^0*$/.test(fraction ?? '')) {
    return `"id" must be an integer, got ${shorten(text, 40)}`;
  }
  const outside = whole && (BigInt(whole) < -LIMIT || BigInt(whole) >= LIMIT);
  return outside ? `"id" must be from ${-LIMIT} to ${LIMIT - 1n}, got ${shorten(text, 40)}` : '';
}

/** @param {unknown} value */
function kind(value) {
  if (value === null) {
    return 'null';
  }
  return Array.isArray(value) ? 'an array' : `${typeof value === 'object' ? 'an' : 'a'} ${typeof value}`;
}

/**
 * indent returns JSON with line breaks and indentation, and every number and string as it
 * was. What is not one JSON value, such as NDJSON, stays as it is.
 * @param {string} text
 */
export function indent(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let out = '';
  let line = '\n';
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === '{' || token === '[') {
      line += '  ';
      out += token + line;
    } else if (token === '}' || token === ']') {
      line = line.slice(0, -2);
      out += line + token;
    } else if (token === ',') {
      out += token + line;
    } else {
      out += token === ':' ? ': ' : token.replace(/^([{[])\s+/, '$1');
    }
  }
  return out;
}
