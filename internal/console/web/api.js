// The only module that talks to the server. It uses the public API, with the user's
// token.

import { parse, plantJSON } from './json.js';

const KEY = 'plantstore.token'; // the reference uses it, too
const OWN = 'plantstore.own';
const SLOW = 2500;
const TIMEOUT = 30_000;

const base = document.querySelector('meta[name="plantstore-base"]').content;

// The URL includes the origin, so that a path like //host cannot become another host.
export const API = `${location.origin}${base}`;
export const PLANTS = `${API}/plants`;
export const WEBHOOKS = `${API}/webhooks`;
const METRICS = `${location.origin}/metrics`;

/**
 * @typedef {object} Token
 * @property {string} [id]
 * @property {string} [name]
 * @property {string} [issuer]
 * @property {string} [subject]
 * @property {string[]} scopes
 * @property {string} created
 * @property {string | null} expires
 */

// session is who is signed in. It is kept in this tab only.
export const session = {
  secret: () => sessionStorage.getItem(KEY) ?? '',
  /** @returns {Token} */
  token: () => JSON.parse(sessionStorage.getItem(OWN) ?? '{"scopes":[]}'),
};

/** allows reports whether the token has the scope. @param {string} scope */
export const allows = (scope) => session.token().scopes.includes(scope);

/**
 * identify signs in with this token, if the server accepts it.
 * @param {string} secret
 * @param {() => void} [slow]
 */
export async function identify(secret, slow) {
  const { text } = await call('GET', `${API}/token`, { secret, slow });
  sessionStorage.setItem(KEY, secret);
  sessionStorage.setItem(OWN, JSON.stringify(parse(text)));
}

export function signOff() {
  sessionStorage.removeItem(KEY);
  sessionStorage.removeItem(OWN);
}

// Failure is a failed call. Its message is for the user. Its status is 0 if there was
// no response.
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const unreachable = () => new Failure(0, 'The server cannot be reached. Check that it is running and that you are online. Nothing you typed is lost: try again.');
const tooSlow = () => new Failure(0, `The server did not respond within ${TIMEOUT / 1000} seconds. Nothing you typed is lost, and trying again is safe.`);

// onUnauthorized sets the function to call, with a message, when the server refuses the
// token.
let unauthorized = () => {};
export function onUnauthorized(f) {
  unauthorized = f;
}

// call sends one request and returns the response and its text. It calls slow if the
// response takes a while.
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
    if (!response.ok) {
      throw failure(response.status, text, response.headers.get('X-Request-Id'));
    }
    return { response, text };
  } catch (err) {
    throw classify(err, signal, timeout);
  } finally {
    clearTimeout(timer);
  }
}

// classify turns an error of fetch into a Failure. If the page itself aborted the call,
// the error stays an AbortError.
export function classify(err, signal, timeout) {
  if (err instanceof Failure || signal?.aborted) {
    return err;
  }
  return timeout?.aborted ? tooSlow() : unreachable();
}

// failure returns the Failure for an error response, with the server's message if it has
// one.
export function failure(status, text, requestID) {
  if (status === 0) {
    return unreachable();
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

export const aborted = (err) => err.name === 'AbortError';

// listPlants returns the plants on one page, and the query of the next page from the Link
// header, or null on the last page.
export async function listPlants(query, options) {
  const { response, text } = await call('GET', PLANTS + query, { headers: { Accept: 'application/json' }, ...options });
  const link = /<([^>]*)>\s*;\s*rel="next"/.exec(response.headers.get('Link') ?? '');
  return { plants: parse(text), next: link && new URL(link[1], PLANTS).search };
}

// getPlant returns a plant with its ETag.
export async function getPlant(id, options) {
  const { response, text } = await call('GET', `${PLANTS}/${id}`, options);
  return { id, ...parse(text), etag: response.headers.get('ETag') };
}

export function createPlant(plant, options) {
  return call('POST', PLANTS, { ...options, body: plantJSON(plant), headers: { 'Content-Type': 'application/json' } });
}

// replacePlant replaces the plant with this ETag, or creates it if there is no ETag.
export function replacePlant({ id, name, tag }, etag, options) {
  const condition = etag ? { 'If-Match': etag } : { 'If-None-Match': '*' };
  return call('PUT', `${PLANTS}/${id}`, {
    ...options,
    body: plantJSON({ name, tag }),
    headers: { 'Content-Type': 'application/json', ...condition },
  });
}

export function deletePlant(id, etag, options) {
  return call('DELETE', `${PLANTS}/${id}`, { ...options, headers: { 'If-Match': etag } });
}

export async function metrics(options) {
  const { text } = await call('GET', METRICS, options);
  return text;
}
