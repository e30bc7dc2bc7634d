// The live metrics: small charts of the last minute from /metrics.

import { metrics } from './api.js';
import { chart } from './chart.js';
import { h } from './dom.js';
import { figure } from './format.js';
import { percentile, rates, sample } from './metrics.js';
import { poll } from './wait.js';

const EVERY = 1000;
const POINTS = 60;
const HEIGHT = 24;

/** @typedef {import('./metrics.js').Sample} Sample */

const milliseconds = (/** @type {number} */ n) => `${figure(n)} ms`;

// latest returns the rates of the last second.
const latest = (/** @type {Sample[]} */ samples) => (samples.length > 1 ? rates(samples.slice(-2)[0], samples.slice(-1)[0]) : null);

const slowest = (/** @type {Sample[]} */ samples) => (samples.length > 1 ? percentile(samples[0], samples.slice(-1)[0], 0.99) : null);
const SLOWEST = 'The 99th percentile of the durations of requests in the last minute, except for streams of events';

/**
 * METERS has what can be measured: its title and a short one, how a value is shown, and what it
 * is in the samples of the last minute, or null.
 * @type {Record<string, [string, string, (n: number) => string, (samples: Sample[]) => number | null]>}
 */
const METERS = {
  rate: ['Creates per second', 'Creates/s', figure, (samples) => latest(samples)?.creates ?? null],
  commit: ['Commit latency', 'Commit', milliseconds, (samples) => latest(samples)?.commit ?? null],
  errors: ['Responses per second with a status of 500 or more', 'Errors/s', figure, (samples) => latest(samples)?.errors ?? null],
  slowest: [SLOWEST, 'Slowest 1%', milliseconds, slowest],
};

// measure shows these meters, with a new value every second until the signal: none while the
// server cannot be reached.
export function measure(/** @type {HTMLElement} */ place, /** @type {string[]} */ names, /** @type {AbortSignal} */ signal) {
  const meters = names.map(meter);
  place.replaceChildren(...meters.map(({ element }) => element));
  let samples = /** @type {Sample[]} */ ([]); // without a gap, the newest one last
  poll(signal, EVERY, async () => {
    samples = [...samples.slice(-POINTS), sample(await metrics({ signal }), performance.now())];
    meters.forEach(({ add }) => add(samples));
  }, () => {
    samples = [];
    meters.forEach(({ add }) => add(samples));
  });
}

// meter returns a chart of the last minute, the newest value on the right, and a function that
// adds a value. The text beside it is the newest value, or the one under the pointer.
function meter(/** @type {string} */ name) {
  const [title, caption, format, valueOf] = METERS[name];
  /** @type {(number | null)[]} */
  const values = Array(POINTS).fill(null);
  let over = /** @type {number | null} */ (null); // how many values ago the pointer is
  const [text, peak, place] = [h('strong'), h('span', { class: 'peak' }), h('div')];
  const draw = () => {
    const known = values.filter((value) => value !== null);
    const most = format(Math.max(...known, 0));
    const now = values.at(-1) ?? null;
    const shown = over === null ? now : values.at(-1 - over) ?? null;
    text.textContent = shown === null ? '–' : format(shown);
    peak.textContent = over === null ? (known.length > 0 ? `max ${most}` : '') : `${over} s ago`;
    const label = `${title}: ${now === null ? 'no data' : `${format(now)} now`}, peak ${most} in the last minute`;
    place.replaceChildren(chart({
      label: known.length === 0 ? `${title}: no data yet` : label, series: [{ class: '', values }], height: HEIGHT,
    }));
  };
  const point = (/** @type {PointerEvent} */ { clientX }) => {
    const { left, width } = place.getBoundingClientRect();
    const at = Math.floor(((clientX - left) / width) * POINTS);
    over = at >= 0 && at < POINTS ? POINTS - 1 - at : null;
    draw();
  };
  const leave = () => {
    over = null;
    draw();
  };
  const add = (/** @type {Sample[]} */ samples) => {
    values.push(valueOf(samples));
    values.shift();
    draw();
  };
  draw();
  const properties = { id: name, title, onpointermove: point, onpointerleave: leave };
  return { element: h('figure', properties, h('figcaption', {}, caption), text, place, peak), add };
}
