// What the console asks the server again and again, and the live metrics: small charts of the
// last minute from /metrics.

import { allows, metrics } from './api.js';
import { chart } from './chart.js';
import { $ } from './dom.js';
import { figure } from './format.js';
import { rates, sample } from './metrics.js';

const EVERY = 1000;
const SLOWEST = 30_000;
const POINTS = 60;
const HEIGHT = 24;

let running = new AbortController();

/**
 * poll calls f every so many milliseconds until the signal, and less and less often while it
 * fails. It calls missed instead while the page is hidden, and after a failure. It ends if the
 * token lacks the scope or is no longer valid.
 * @param {AbortSignal} signal
 * @param {() => Promise<void>} f
 * @param {(err?: any) => void} [missed]
 * @param {number} [every]
 */
export async function poll(signal, f, missed = () => {}, every = EVERY) {
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
      pause = Math.min(2 * pause, SLOWEST);
    }
    await new Promise((resolve) => {
      setTimeout(resolve, pause);
    });
  }
}

/**
 * measure calls take every second with the samples of the last minute without a gap, the newest
 * one last: none while the server cannot be reached.
 * @param {AbortSignal} signal
 * @param {(samples: import('./metrics.js').Sample[]) => void} take
 */
export function measure(signal, take) {
  /** @type {import('./metrics.js').Sample[]} */
  let samples = [];
  const read = async () => {
    samples = [...samples.slice(-POINTS), sample(await metrics({ signal }), performance.now())];
    take(samples);
  };
  poll(signal, read, () => {
    samples = [];
    take(samples);
  });
}

// startLive draws the charts of the page of plants until stopLive, if the token has the scope
// ops:read.
export function startLive() {
  stopLive();
  $('live').hidden = !allows('ops:read');
  if (!allows('ops:read')) {
    return;
  }
  running = new AbortController();
  const creates = gauge($('rate'), figure);
  const commit = gauge($('commit'), milliseconds);
  measure(running.signal, (samples) => {
    const now = latest(samples);
    creates(now?.creates ?? null);
    commit(now?.commit ?? null);
  });
}

export function stopLive() {
  running.abort();
}

export const milliseconds = (/** @type {number} */ n) => `${figure(n)} ms`;

/** latest returns the rates of the last second. @param {import('./metrics.js').Sample[]} samples */
export function latest(samples) {
  const [before, after] = samples.slice(-2);
  return after ? rates(before, after) : null;
}

/**
 * gauge returns a function that adds a value to the chart of the last minute in a figure, the
 * newest one on the right. The text beside it is the newest value, or the one under the pointer.
 * @param {any} root
 * @param {(n: number) => string} format
 */
export function gauge(root, format) {
  const { title } = root.dataset;
  /** @type {(number | null)[]} */
  const values = Array(POINTS).fill(null);
  /** @type {number | null} */
  let over = null; // how many values ago the pointer is
  const draw = () => {
    const known = values.filter((value) => value !== null);
    const peak = format(Math.max(...known, 0));
    const now = values.at(-1) ?? null;
    const shown = over === null ? now : values.at(-1 - over) ?? null;
    root.querySelector('strong').textContent = shown === null ? '–' : format(shown);
    root.querySelector('.peak').textContent = over === null ? (known.length > 0 ? `max ${peak}` : '') : `${over} s ago`;
    const label = `${title}: ${now === null ? 'no data' : `${format(now)} now`}, peak ${peak} in the last minute`;
    root.querySelector('.chart').replaceWith(chart({
      label: known.length === 0 ? `${title}: no data yet` : label, series: [{ class: '', values }], height: HEIGHT,
    }));
  };
  root.onpointermove = (/** @type {PointerEvent} */ { clientX }) => {
    const { left, width } = root.querySelector('.chart').getBoundingClientRect();
    const at = Math.floor(((clientX - left) / width) * POINTS);
    over = at >= 0 && at < POINTS ? POINTS - 1 - at : null;
    draw();
  };
  root.onpointerleave = () => {
    over = null;
    draw();
  };
  return (/** @type {number | null} */ value) => {
    values.push(value);
    values.shift();
    draw();
  };
}
