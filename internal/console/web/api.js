// The only module that talks to the server. It uses the public API, with the user's
// token.

import { parse, plantJSON } from './json.js';
import { createSession } from './session.js';

const SLOW = 2500;
const TIMEOUT = 30_000;

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

/**
 * identify signs in with this token, if the server accepts it.
 * @param {string} secret
 * @param {boolean} keep whether the device keeps it
 * @param {() => void} slow
 */
export async function identify(secret, keep, slow) {
  session.begin(secret, (await call('GET', TOKEN, { secret, slow })).json(), keep);
}

/** @type {{secret: string, names: Promise<Map<string, string>>} | null} */
let people = null;

/**
 * names returns the names of the tokens by their public id, for who did what: all of them if
 * the token can list them, and otherwise its own.
 */
export function names() {
  if (people?.secret !== session.secret()) {
    people = { secret: session.secret(), names: readNames() };
  }
  return people.names;
}

async function readNames() {
  const own = session.token();
  const known = new Map();
  if (allows('tokens:read')) {
    try {
      for (const { id, name } of (await call('GET', `${API}/tokens`)).json()) {
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

export function forgetNames() {
  people = null;
}

// Failure is a failed call. Its message is for the user. Its status is 0 if there was
// no response.
export class Failure extends Error {
  constructor(/** @type {number} */ status, /** @type {string} */ message) {
    super(message);
    this.status = status;
  }
}

const UNREACHABLE = 'Server unreachable. Check that it is running and that you are online. Nothing you typed is lost: try again.';
const TOO_SLOW = `The server did not respond within ${TIMEOUT / 1000} seconds. Nothing you typed is lost, and trying again is safe.`;

// onConnection sets the function to call when the server cannot be reached, with false, and
// when it responds again, with true.
let connected = true;
/** @type {(up: boolean) => void} */
let connection = () => {};
export function onConnection(/** @type {typeof connection} */ f) {
  connection = f;
}

function reached(/** @type {boolean} */ up) {
  if (up !== connected) {
    connected = up;
    connection(up);
  }
}

// onUnauthorized sets the function to call, with a message, when the server refuses the
// token.
/** @type {(message: string) => void} */
let unauthorized = () => {};
export function onUnauthorized(/** @type {typeof unauthorized} */ f) {
  unauthorized = f;
}

/**
 * @typedef {object} Options of a call
 * @property {Record<string, string>} [headers]
 * @property {string} [body]
 * @property {AbortSignal} [signal]
 * @property {() => void} [slow] is called if the response takes a while
 * @property {string} [secret]
 *
 * @typedef {object} Plant
 * @property {string} id
 * @property {string} name
 * @property {string} [tag]
 * @property {string | null} [etag]
 */

/**
 * call sends one request and returns the response with its text, and its JSON on demand.
 * @param {string} method
 * @param {string} url
 * @param {Options} [options]
 */
export async function call(method, url, { headers, body, signal, slow = () => {}, secret = session.secret() } = {}) {
  const timeout = AbortSignal.timeout(TIMEOUT);
  const timer = setTimeout(slow, SLOW);
  try {
    const response = await fetch(url, {
      method,
      body,
      headers: { ...headers, Authorization: `Bearer ${secret}` },
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
    });
    const text = await response.text();
    reached(true);
    if (!response.ok) {
      throw failure(response.status, text, response.headers.get('X-Request-Id'));
    }
    return { response, text, json: () => parse(text) };
  } catch (err) {
    throw classify(err, signal, timeout);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * classify turns an error of fetch into a Failure. If the page itself aborted the call, the
 * error stays an AbortError.
 * @param {any} err
 * @param {AbortSignal} [signal]
 * @param {AbortSignal} [timeout]
 */
export function classify(err, signal, timeout) {
  if (err instanceof Failure || signal?.aborted) {
    return err;
  }
  reached(false);
  return new Failure(0, timeout?.aborted ? TOO_SLOW : UNREACHABLE);
}

// listOf returns what is on one page of a list, and the URL of the next page, from the Link
// header, or null on the last page.
async function listOf(/** @type {string} */ url, /** @type {Options} */ options) {
  const { response, json } = await call('GET', url, { headers: { Accept: 'application/json' }, ...options });
  const link = /<([^>]*)>\s*;\s*rel="next"/.exec(response.headers.get('Link') ?? '');
  return {
    items: json(),
    next: link && new URL(link[1], url),
    cursor: response.headers.get('Plantstore-Cursor') ?? '',
    date: response.headers.get('Date') ?? '',
  };
}

// failure returns the Failure for an error response, with the server's message if it has
// one.
export function failure(/** @type {number} */ status, /** @type {string} */ text, /** @type {string | null} */ requestID) {
  if (status === 0) {
    return new Failure(0, UNREACHABLE);
  }
  let message = '';
  try {
    message = parse(text).message ?? '';
  } catch {
    // Not an Error from Plantstore: a proxy responded.
  }
  message ||= `The server responded with status ${status}. Try again in a moment.`;
  if (status >= 500 && requestID) {
    message += ` (request ${requestID})`;
  }
  if (status === 401) {
    unauthorized(message);
  }
  return new Failure(status, message);
}

/** @param {any} err */
export const aborted = (err) => err.name === 'AbortError';

/**
 * handled reports whether the user need not be told of a failure: the page was left, or the
 * sign-in dialog says it.
 * @param {any} err
 */
export const handled = (err) => aborted(err) || err.status === 401;

// listPlants returns the plants on one page, the query of the next page, or null on the last
// page, and the time of the server.
export async function listPlants(/** @type {string} */ query, /** @type {Options} */ options) {
  const { items, next, date } = await listOf(PLANTS + query, options);
  return { plants: items, next: next && next.search, date };
}

// listEvents returns events on one page of the log, and the query of the next page, or null.
export async function listEvents(/** @type {string} */ query, /** @type {Options} */ options) {
  const { items, next, cursor } = await listOf(EVENTS + query, options);
  return { events: items, next: next && next.search, cursor };
}

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
 * listTags returns the first tags with this prefix, those of the most plants first.
 * @typedef {{tag: string, plants: string, more?: boolean}} TagCount
 * @param {string} prefix
 * @param {Options} options
 * @returns {Promise<TagCount[]>}
 */
export async function listTags(prefix, options) {
  const query = new URLSearchParams({ limit: '1000', ...(prefix && { prefix }) });
  const { items } = await listOf(`${API}/tags?${query}`, options);
  return items.sort((/** @type {TagCount} */ a, /** @type {TagCount} */ b) => Number(b.plants) - Number(a.plants));
}

/** about returns what the server says about itself. @param {Options} options */
export const about = async (options) => (await call('GET', `${API}/about`, options)).json();

/**
 * getPlant returns a plant with its ETag.
 * @param {string} id
 * @param {Options} options
 * @returns {Promise<Plant>}
 */
export async function getPlant(id, options) {
  const { response, json } = await call('GET', `${PLANTS}/${id}`, options);
  return { id, ...json(), etag: response.headers.get('ETag') };
}

export function createPlant(/** @type {Plant} */ plant, /** @type {Options} */ options) {
  return call('POST', PLANTS, { ...options, body: plantJSON(plant), headers: { 'Content-Type': 'application/json' } });
}

/**
 * replacePlant replaces the plant with this ETag, or creates it if there is no ETag.
 * @param {Plant} plant
 * @param {string | null | undefined} etag
 * @param {Options} options
 */
export function replacePlant({ id, name, tag }, etag, options) {
  /** @type {Record<string, string>} */
  const condition = etag ? { 'If-Match': etag } : { 'If-None-Match': '*' };
  return call('PUT', `${PLANTS}/${id}`, {
    ...options,
    body: plantJSON({ name, tag }),
    headers: { 'Content-Type': 'application/json', ...condition },
  });
}

export function deletePlant(/** @type {string} */ id, /** @type {string | null | undefined} */ etag, /** @type {Options} */ options) {
  return call('DELETE', `${PLANTS}/${id}`, { ...options, headers: { 'If-Match': etag ?? '*' } });
}

export async function metrics(/** @type {Options} */ options) {
  const { text } = await call('GET', METRICS, options);
  return text;
}
