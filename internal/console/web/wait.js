// Asking the server again: every so often, and less and less often while that fails.

const LONGEST = 30_000;

/** sleep returns after a while. @param {number} ms @returns {Promise<void>} */
export const sleep = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

// renew ends what runs, and returns the controller of what follows.
export const renew = (/** @type {AbortController} */ running) => {
  running.abort();
  return new AbortController();
};

/** longer returns the pause that follows this one after another failure. @param {number} pause */
export const longer = (pause) => Math.min(2 * pause, LONGEST);

// poll calls f every so many milliseconds until the signal, and less and less often while it
// fails. It calls missed instead while the page is hidden, and after a failure. It ends if the
// token lacks the scope or is no longer valid.
/** @type {(signal: AbortSignal, every: number, f: () => Promise<unknown>, missed?: (err?: any) => void) => Promise<void>} */
export async function poll(signal, every, f, missed = () => {}) {
  let pause = every;
  while (!signal.aborted) {
    try {
      await (document.hidden ? missed() : f());
      pause = every;
    } catch (err) {
      if (signal.aborted || err.status === 401 || err.status === 403) {
        return;
      }
      missed(err);
      pause = longer(pause);
    }
    await sleep(pause);
  }
}

// retry calls f after a pause if the server has a problem that may pass. When one that cannot
// be reached is back, the page is refreshed anyway.
/** @type {(signal: AbortSignal, pause: number, err: {status: number}, f: () => void) => Promise<void>} */
export async function retry(signal, pause, { status }, f) {
  if (status === 429 || status >= 500) {
    await sleep(pause);
    if (!signal.aborted) {
      f();
    }
  }
}
