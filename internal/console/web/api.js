// The one place that talks to the server: the same API as everybody's, with the
// token of the person in front of the page.

const KEY = 'plantstore.token';
const SLOW = 2500;
const LIMIT = 30_000;

const base = document.querySelector('meta[name="plantstore-base"]').content;

// The origin is written out, so that no path can be taken for another host.
export const PLANTS = `${location.origin}${base}/plants`;
const METRICS = `${location.origin}/metrics`;

export const token = {
  read: () => sessionStorage.getItem(KEY) ?? '',
  keep: (text) => sessionStorage.setItem(KEY, text),
  forget: () => sessionStorage.removeItem(KEY),
};

// Failure is a call that did not succeed. Its message is a sentence for people,
// its status 0 where there was no answer.
export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const unreachable = () => new Failure(0, 'The server cannot be reached. Is it running, and is the network up? Nothing you typed is lost: try again.');
const tooSlow = () => new Failure(0, `The server did not answer within ${LIMIT / 1000} seconds. Nothing you typed is lost, and trying again is safe.`);

// What is told when the server refuses the token, and with which words.
let refused = () => {};
export function onRefused(f) {
  refused = f;
}

// parse reads JSON and keeps every number as the text that it is written with:
// an id has 64 bits, and a JavaScript number holds 53 of them.
export function parse(text) {
  return JSON.parse(text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g, (part) => (part[0] === '"' ? part : `"${part}"`)));
}

// plantJSON writes a plant. The id goes out as it was typed if it is a number,
// and as a string otherwise, so that the server's words say what is wrong.
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

function idJSON(text) {
  if (/^[+-]?\d+$/.test(text)) {
    return BigInt(text).toString();
  }
  return /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text) ? text : JSON.stringify(text);
}

// call sends one request and returns the answer with its text. slow is called
// when the answer takes its time.
export async function call(method, url, { headers, body, signal, slow = () => {}, secret = token.read() } = {}) {
  const timeout = AbortSignal.timeout(LIMIT);
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
    throw explain(err, signal, timeout);
  } finally {
    clearTimeout(timer);
  }
}

// explain turns what fetch throws into a Failure. What the page itself gave up
// stays an AbortError.
export function explain(err, signal, timeout) {
  if (err instanceof Failure || signal?.aborted) {
    return err;
  }
  return timeout?.aborted ? tooSlow() : unreachable();
}

// failure puts an answer that is no success into words: the server's, where it
// has some.
export function failure(status, text, requestID) {
  if (status === 0) {
    return unreachable();
  }
  let message = '';
  try {
    message = parse(text).message ?? '';
  } catch {
    // It is not an Error of ours: a proxy answered.
  }
  message ||= `The server answered with the status ${status}. Try again in a moment.`;
  if (status >= 500 && requestID) {
    message += ` (request ${requestID})`;
  }
  if (status === 401) {
    refused(message);
  }
  return new Failure(status, message);
}

export const aborted = (err) => err.name === 'AbortError';

// listPlants returns the plants of one page and the query of the next one, which
// the Link header names, or null after the last.
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

// replacePlant puts the plant in place of the one with that ETag, or of none.
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
