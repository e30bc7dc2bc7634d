// Who is signed in. A tab keeps the token for itself, and the open tabs of the same store tell
// each other: a new tab is signed in if another one is, and all of them sign out together. The
// device keeps the token only if the user wants that. It touches no DOM.

const LONGEST = 30 * 86_400_000;
const ANSWER = 50; // milliseconds in which another tab answers, before anyone sees that the page waits

/**
 * @typedef {{
 *   id?: string, name?: string, issuer?: string, subject?: string, scopes: string[], created: string, expires: string | null,
 * }} Token
 * @typedef {{secret: string, token: Token, since: number, until?: number}} Entry what is kept of a sign-in,
 *   since the user signed in, and until the device forgets it
 */

// isEntry reports whether a value is what is kept of a sign-in. Other pages of the origin, and
// other releases, may have stored or sent something else.
const isEntry = (/** @type {any} */ value) => (
  typeof value?.secret === 'string' && Number.isFinite(value.since) && Array.isArray(value.token?.scopes));

/** parse returns the value of a JSON text, or null if it is not one. @param {string | null} text */
function parse(text) {
  try {
    return JSON.parse(text ?? 'null');
  } catch {
    return null;
  }
}

// createSession returns the session of a tab. Sessions with the same name share their sign-ins.
/**
 * @param {string} name
 * @param {Storage} tab
 * @param {Storage} device
 * @param {BroadcastChannel} channel
 */
export function createSession(name, tab, device, channel, now = Date.now) {
  const ended = `${name} ended`;
  let refused = ''; // the last token that the server refused
  let joined = () => {};
  let left = () => {};

  // A tab that the browser had put to sleep hears of no sign-out, so the device keeps its time.
  const endedAt = () => Number(device.getItem(ended));
  const isOver = (/** @type {Entry} */ { since, until = Infinity }) => since <= endedAt() || until <= now();

  /** @returns {Entry | null} */
  const read = (/** @type {Storage} */ storage) => {
    const entry = parse(storage.getItem(name));
    if (!isEntry(entry) || isOver(entry)) {
      storage.removeItem(name);
      return null;
    }
    return entry;
  };
  const write = (/** @type {Storage} */ storage, /** @type {Entry} */ entry) => storage.setItem(name, JSON.stringify(entry));

  const kept = read(device);
  if (kept && !read(tab)) {
    write(tab, { ...kept, until: undefined });
  }

  channel.onmessage = ({ data }) => {
    const own = read(tab);
    if (data === 'who?') {
      if (own) {
        channel.postMessage(own);
      }
    } else if (data === 'ended') {
      tab.removeItem(name);
      left();
    } else if (!own && isEntry(data) && !isOver(data) && data.secret !== refused) {
      write(tab, data);
      joined();
    }
  };

  return {
    secret: () => read(tab)?.secret ?? '',
    token: () => read(tab)?.token ?? /** @type {Token} */ ({ scopes: [], created: '', expires: null }),

    // begin signs in, here and in the open tabs where nobody is signed in. With keep, the device
    // keeps the token for 30 days, or until it expires.
    begin(/** @type {string} */ secret, /** @type {Token} */ token, /** @type {boolean} */ keep) {
      const since = Math.max(now(), endedAt() + 1);
      write(tab, { secret, token, since });
      if (keep) {
        write(device, { secret, token, since, until: Math.min(now() + LONGEST, Date.parse(token.expires ?? '') || Infinity) });
      }
      channel.postMessage({ secret, token, since });
    },

    /** refuse forgets the token of this tab, which the server has refused. */
    refuse() {
      if (read(device)?.secret === read(tab)?.secret) {
        device.removeItem(name);
      }
      refused = this.secret();
      tab.removeItem(name);
    },

    /** end signs out in every tab and on the device. */
    end() {
      device.setItem(ended, String(Math.max(now(), read(tab)?.since ?? 0)));
      device.removeItem(name);
      tab.removeItem(name);
      channel.postMessage('ended');
    },

    /** join returns whether the user is signed in, here or in another tab that is open. */
    async join() {
      if (!read(tab)) {
        channel.postMessage('who?');
        await new Promise((resolve) => {
          joined = () => resolve(undefined);
          setTimeout(resolve, ANSWER);
        });
      }
      return read(tab) !== null;
    },

    // follow calls a function when another tab has signed this one in, or out.
    follow(/** @type {() => void} */ onJoined, /** @type {() => void} */ onLeft) {
      [joined, left] = [onJoined, onLeft];
    },
  };
}
