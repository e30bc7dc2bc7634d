// The only module that talks to the server. It uses the public API, with the user's token.

import { parse, plantJSON } from './json.js';
import { createSession } from './session.js';

const SLOW = 2500;
const TIMEOUT = 30_000;
const REQUESTS = 10; // for tags: each gives up after a while if few match

const base = /** @type {HTMLMetaElement} */ (document.querySelector('meta[name="plantstore-base"]')).content;

// The URL includes the origin, so that a path like //host cannot become another host.
export const API = `${location.origin}${base}`;
export const PLANTS = `${API}/plants`;
export const EVENTS = `${API}/events`;
export const WEBHOOKS = `${API}/webhooks`;
export const TOKEN = `${API}/token`;
const METRICS = `${location.origin}/metrics`;

// Stores may share an origin, but no token: the name has the path of this one.
const NAME = `plantstore.session ${base}`;

/** session is who is signed in. The reference uses it, too. */
export const session = createSession(NAME, sessionStorage, localStorage, new BroadcastChannel(NAME));

/** allows reports whether the token has the scope. @param {string} scope */
export const allows = (scope) => session.token().scopes.includes(scope);

// identify signs in with this token, if the server accepts it.
export async function identify(/** @type {string} */ secret, /** @type {boolean} */ keep, /** @type {() => void} */ slow) {
  session.begin(secret, await get(TOKEN, { secret, slow }), keep);
}

let people = /** @type {Promise<Map<string, string>> | null} */ (null);

// names returns the names of the tokens by their public id, for who did what: all of them if
// the token can list them, and otherwise its own.
export const names = () => {
  people ??= readNames();
  return people;
};

// forgetNames is for another token.
export const forgetNames = () => { people = null; };

async function readNames() {
  const own = session.token();
  const known = new Map();
  if (allows('tokens:read')) {
    try {
      for (const { id, name } of await get(`${API}/tokens`)) {
        known.set(id, name);
      }
    } catch {
      people = null; // so that the next one tries again
    }
  }
  if (own.id) {
    known.set(own.id, `${own.name ?? own.id} (you)`);
  }
  return known;
}

// Failure is a failed call. Its message is for the user. Its status is 0 if there was no response.
export class Failure extends Error {
  constructor(/** @type {number} */ status, /** @type {string} */ message, code = '') {
    super(message);
    this.status = status;
    this.code = code; // the number of the error, if the server sent one
  }
}

const UNREACHABLE = 'Server unreachable. Check that it is running and that you are online. Nothing you typed is lost: try again.';
const TOO_SLOW = `The server did not respond within ${TIMEOUT / 1000} seconds. Nothing you typed is lost, and trying again is safe.`;

const listener = {
  /** @type {(up: boolean) => void} */
  connection() {},
  /** @type {(message: string) => void} */
  unauthorized() {},
};

// listen sets what to call when the server cannot be reached and when it responds again, and when
// it refuses the token.
export const listen = (/** @type {typeof listener} */ functions) => Object.assign(listener, functions);

let connected = true;

function reached(/** @type {boolean} */ up) {
  if (up !== connected) {
    connected = up;
    listener.connection(up);
  }
}

/**
 * Options of a call. slow is called if the response takes a while.
 * @typedef {{headers?: {}, body?: string, signal?: AbortSignal, slow?: () => void, secret?: string}} Options
 *
 * @typedef {{id: string, name: string, tag?: string, version?: string, updated?: string}} Plant
 */

// request sends one request with the token. A body is JSON, unless the headers say otherwise.
/** @type {(method: string, url: string, options: Options) => Promise<Response>} */
export const request = (method, url, { headers, body, signal, secret = session.secret() }) => fetch(url, {
  method,
  body,
  headers: { ...(body && { 'Content-Type': 'application/json' }), ...headers, Authorization: `Bearer ${secret}` },
  signal,
  cache: 'no-store',
  credentials: 'omit',
  redirect: 'error',
});

// call sends one request and returns the response with its text, and its JSON on demand.
/** @type {(method: string, url: string, options?: Options) => Promise<{response: Response, text: string, json: () => any}>} */
export async function call(method, url, { signal, slow = () => {}, ...options } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT);
  const timer = setTimeout(slow, SLOW);
  try {
    const response = await request(method, url, { ...options, signal: signal ? AbortSignal.any([signal, timeout]) : timeout });
    const text = await response.text();
    reached(true);
    if (!response.ok) {
      throw failure(response, text);
    }
    return { response, text, json: () => parse(text) };
  } catch (err) {
    throw classify(err, signal, timeout);
  } finally {
    clearTimeout(timer);
  }
}

/** get returns the JSON at a URL. @param {string} url @param {Options} [options] */
export const get = async (url, options) => (await call('GET', url, options)).json();

// classify turns an error of fetch into a Failure. If the page itself aborted the call, the
// error stays an AbortError.
/** @type {(err: any, signal?: AbortSignal, timeout?: AbortSignal) => any} */
export function classify(err, signal, timeout) {
  if (err instanceof Failure || signal?.aborted) {
    return err;
  }
  reached(false);
  return new Failure(0, timeout?.aborted ? TOO_SLOW : UNREACHABLE);
}

// listOf returns what is on one page of a list, the query of the next page, from the Link
// header, or null on the last page, the position in the log, the time of the server and how many
// there are on all pages, if the query asks for that.
/** @type {(url: string, options: Options) => Promise<{items: any[], next: string | null, cursor: string, date: string, total: string}>} */
async function listOf(url, options) {
  const { response, json } = await call('GET', url, { headers: { Accept: 'application/json' }, ...options });
  const link = /<([^>]*)>\s*;\s*rel="next"/.exec(response.headers.get('Link') ?? '');
  const header = (/** @type {string} */ name) => response.headers.get(name) ?? '';
  return {
    items: json(),
    next: link && new URL(link[1], url).search,
    cursor: header('Plantstore-Cursor'),
    date: header('Date'),
    total: header('Plantstore-Count'),
  };
}

// failure returns the Failure for an error response, with the server's message if it has one.
export function failure(/** @type {Response} */ { status, headers }, /** @type {string} */ text) {
  let [message, code] = ['', ''];
  try {
    ({ message = '', error: code = '' } = parse(text));
  } catch {
    // Not an Error from Plantstore: a proxy responded.
  }
  message ||= `The server responded with status ${status}. Try again in a moment.`;
  const id = headers.get('X-Request-Id');
  if (status >= 500 && id) {
    message += ` (request ${id})`;
  }
  if (status === 401) {
    listener.unauthorized(message);
  }
  return new Failure(status, message, code);
}

export const aborted = (/** @type {any} */ err) => err.name === 'AbortError';

// handled reports whether the user need not be told of a failure: the page was left, or the
// sign-in dialog says it.
export const handled = (/** @type {any} */ err) => aborted(err) || err.status === 401;

/** listPlants returns plants on one page. @param {string} query @param {Options} options */
export function listPlants(query, options) {
  const params = new URLSearchParams(query);
  params.set('details', 'true');
  return listOf(`${PLANTS}?${params}`, options);
}

/** listEvents returns events on one page of the log. @param {string} query @param {Options} options */
export const listEvents = (query, options) => listOf(EVENTS + query, options);

/**
 * histogram returns how many events there were in each of some buckets, and the time of the
 * server.
 * @typedef {{time: string, events: string, partial?: boolean}} Bucket
 * @param {{since: number, until: number, buckets: number}} query times in milliseconds
 * @param {Options} options
 * @returns {Promise<{buckets: Bucket[], date: string}>}
 */
export async function histogram({ since, until, buckets }, options) {
  const iso = (/** @type {number} */ at) => new Date(at).toISOString();
  const query = new URLSearchParams({ since: iso(since), until: iso(until), buckets: `${buckets}` });
  const { items, date } = await listOf(`${EVENTS}/histogram?${query}`, options);
  return { buckets: items, date };
}

/**
 * listTags returns the first tags that contain these words, in any case: this very text first, and
 * then those of the most plants.
 * @typedef {{tag: string, plants: string, more?: boolean}} TagCount
 * @param {string} q
 * @param {Options} options
 * @returns {Promise<TagCount[]>}
 */
export async function listTags(q, options) {
  const items = /** @type {TagCount[]} */ ([]);
  /** @type {string | null} */
  let next = `?${new URLSearchParams({ limit: '1000', ...(q.trim() && { q }) })}`;
  for (let i = 0; next && items.length === 0 && i < REQUESTS; i++) {
    const page = await listOf(`${API}/tags${next}`, options);
    items.push(...page.items);
    ({ next } = page);
  }
  const rank = (/** @type {TagCount} */ { tag, plants }) => (q && tag === q ? Infinity : Number(plants));
  return items.sort((a, b) => rank(b) - rank(a));
}

/** about returns what the server says about itself. @param {Options} options */
export const about = (options) => get(`${API}/about`, options);

// findPlant returns a plant, or null if there is none.
/** @type {(id: string, options: Options) => Promise<Plant | null>} */
export async function findPlant(id, options) {
  try {
    return { id, ...await get(`${PLANTS}/${id}?details=true`, options) };
  } catch (err) {
    if (err.status !== 404) {
      throw err;
    }
    return null;
  }
}

/** @type {(plant: Plant, options: Options) => Promise<unknown>} */
export const createPlant = (plant, options) => call('POST', PLANTS, { ...options, body: plantJSON(plant) });

// importFile imports a file of any size, or says with dry_run what that would do, and returns
// the report. Unlike fetch, XMLHttpRequest says how much has been sent.
/** @type {(file: Blob, query?: {}, options?: {signal?: AbortSignal, sent?: (bytes: number) => void}) => Promise<any>} */
export const importFile = (file, query, { signal, sent } = {}) => new Promise((resolve, reject) => {
  signal?.throwIfAborted();
  const sending = new XMLHttpRequest();
  sending.open('POST', `${PLANTS}/import?${new URLSearchParams(query)}`);
  sending.setRequestHeader('Authorization', `Bearer ${session.secret()}`);
  sending.setRequestHeader('Content-Type', file.type);
  sending.upload.onprogress = ({ loaded }) => sent?.(loaded);
  sending.onload = () => {
    reached(true);
    const { status, responseText } = sending;
    const headers = { 'X-Request-Id': sending.getResponseHeader('X-Request-Id') ?? '' };
    const response = new Response(null, { status, headers });
    return response.ok ? resolve(parse(responseText)) : reject(failure(response, responseText));
  };
  sending.onerror = () => reject(classify(null));
  signal?.addEventListener('abort', () => {
    sending.abort();
    reject(signal.reason);
  });
  sending.send(file);
});

// replacePlant replaces a plant if it still is as it was, or creates it if it was not there, and
// returns it with its version.
/** @type {(plant: Plant, was: Plant | null, options?: Options) => Promise<Plant>} */
export async function replacePlant({ id, name, tag }, was, options) {
  const headers = was ? unchanged(was) : { 'If-None-Match': '*' };
  const { response } = await call('PUT', `${PLANTS}/${id}`, { ...options, body: plantJSON({ name, tag }), headers });
  const [, version] = /"([^"]*)"/.exec(response.headers.get('ETag') ?? '') ?? [];
  return { id, name, tag, version };
}

/** unchanged is the condition that a plant still is as it was. @param {Plant} was */
const unchanged = ({ version }) => ({ 'If-Match': `"${version}"` });

/** deletePlant deletes a plant if it still is as it was. @param {Plant} was */
export const deletePlant = (was) => call('DELETE', `${PLANTS}/${was.id}`, { headers: unchanged(was) });

export const metrics = async (/** @type {Options} */ options) => (await call('GET', METRICS, options)).text;
