// The live metrics: two small charts from /metrics.

import { allows, metrics } from './api.js';
import { chart } from './chart.js';
import { $ } from './dom.js';
import { figure } from './format.js';

const EVERY = 1000;
const SLOWEST = 30_000;
const POINTS = 60;
const HEIGHT = 24;

/** @type {ReturnType<typeof setTimeout>} */
let timer;
let running = new AbortController();

// startLive draws the charts until stopLive, if the token has the scope ops:read.
export function startLive() {
  stopLive();
  $('live').hidden = !allows('ops:read');
  if (!allows('ops:read')) {
    return;
  }
  running = new AbortController();
  watch(running.signal);
}

export function stopLive() {
  running.abort();
  clearTimeout(timer);
}

async function watch(/** @type {AbortSignal} */ signal) {
  const rates = gauge('rate', (n) => figure(n));
  const latencies = gauge('commit', (n) => `${figure(n)} ms`);
  /** @type {ReturnType<typeof sample> | null} */
  let last = null;
  let pause = EVERY;
  const tick = async () => {
    let now = null;
    try {
      now = document.hidden ? null : sample(await metrics({ signal }));
      pause = EVERY;
    } catch (err) {
      if (signal.aborted || err.status === 401 || err.status === 403) {
        return; // the token lacks the scope, or is no longer valid
      }
      pause = Math.min(2 * pause, SLOWEST);
    }
    if (signal.aborted) {
      return;
    }
    rates(now && last ? Math.max(0, now.creates - last.creates) / ((now.at - last.at) / 1000) : null);
    latencies(now && last && now.commits > last.commits ? ((now.seconds - last.seconds) / (now.commits - last.commits)) * 1000 : null);
    last = now;
    timer = setTimeout(tick, pause);
  };
  await tick();
}

// sample reads the counters. Creates are all committed writes, including imports,
// except for those that replaced or deleted a plant.
function sample(/** @type {string} */ text) {
  const read = (/** @type {string} */ name) => Number(text.match(new RegExp(`^${name} (\\S+)$`, 'm'))?.[1] ?? 0);
  const succeeded = (/** @type {string} */ operation) => (
    read(`plantstore_http_requests_total\\{operation="${operation}",status="20[04]"\\}`));
  return {
    at: performance.now(),
    creates: read('plantstore_commit_batch_size_sum') - succeeded('replacePlant') - succeeded('deletePlant'),
    commits: read('plantstore_commit_duration_seconds_count'),
    seconds: read('plantstore_commit_duration_seconds_sum'),
  };
}

// gauge returns a function that adds a value to a chart of the last minute, the newest one on
// the right. The figure beside it is the newest value, or the one under the pointer.
function gauge(/** @type {string} */ name, /** @type {(n: number) => string} */ format) {
  const root = $(name);
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
