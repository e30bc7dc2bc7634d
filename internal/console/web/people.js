// The names of tokens, for who did what.

import { allows, API, call, session } from './api.js';
import { parse } from './json.js';

/** @type {{secret: string, names: Promise<Map<string, string>>} | null} */
let cache = null;

/**
 * names returns the names of the tokens by their public id: all of them if the token can
 * list them, and otherwise its own.
 * @returns {Promise<Map<string, string>>}
 */
export function names() {
  if (cache?.secret !== session.secret()) {
    cache = { secret: session.secret(), names: read() };
  }
  return cache.names;
}

export function forgetNames() {
  cache = null;
}

async function read() {
  const own = session.token();
  const names = new Map();
  if (allows('tokens:read')) {
    try {
      for (const { id, name } of parse((await call('GET', `${API}/tokens`)).text)) {
        names.set(id, name);
      }
    } catch {
      cache = null; // so that the next one tries again
    }
  }
  if (own.id) {
    names.set(own.id, `${own.name ?? own.id} (you)`);
  }
  return names;
}
