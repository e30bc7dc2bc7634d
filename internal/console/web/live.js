// The live metrics: two small charts from /metrics.

import { allows, metrics } from './api.js';
import { $, svg } from './dom.js';
import { figure } from './format.js';

const EVERY = 1000;
const SLOWEST = 30_000;
const POINTS = 60;
const WIDTH = 120;
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
  const rates = chart('rate', (n) => figure(n));
  const latencies = chart('commit', (n) => `${figure(n)} ms`);
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
  const succeeded = (/** @type {string} */ operation) => read(`plantstore_http_requests_total\\{operation="${operation}",status="20[04]"\\}`);
  return {
    at: performance.now(),
    creates: read('plantstore_commit_batch_size_sum') - succeeded('replacePlant') - succeeded('deletePlant'),
    commits: read('plantstore_commit_duration_seconds_count'),
    seconds: read('plantstore_commit_duration_seconds_sum'),
  };
}

// chart returns a function that adds a value to a chart of the last minute: a bar for each
// value, the newest one on the right, and a gap if there is none. The figure beside it is
// the newest value, or the one under the pointer.
function chart(/** @type {string} */ name, /** @type {(n: number) => string} */ format) {
  const root = $(name);
  const drawing = root.querySelector('.chart');
  const { title } = root.dataset;
  /** @type {(number | null)[]} */
  const values = [];
  /** @type {number | null} */
  let over = null; // how many values ago the pointer is
  const draw = () => {
    const known = values.filter((value) => value !== null);
    const peak = Math.max(...known, 0);
    const step = WIDTH / POINTS;
    const bars = values.map((value, i) => {
      const height = value && Math.max(1.5, (value / peak) * HEIGHT);
      return height && svg('rect', { x: WIDTH - (values.length - i) * step, y: HEIGHT - height, width: step * 0.7, height, rx: 0.5 });
    });
    drawing.replaceChildren(svg('rect', { class: 'ground', x: 0, y: HEIGHT - 1, width: WIDTH, height: 1 }), ...bars.filter(Boolean));
    const now = values.at(-1) ?? null;
    const shown = over === null ? now : values.at(-1 - over) ?? null;
    root.querySelector('strong').textContent = shown === null ? '–' : format(shown);
    root.querySelector('.peak').textContent = over === null ? (known.length > 0 ? `max ${format(peak)}` : '') : `${over} s ago`;
    drawing.ariaLabel = known.length === 0 ? `${title}: no data yet` : `${title}: ${now === null ? 'no data' : `${format(now)} now`}, peak ${format(peak)} in the last minute`;
  };
  drawing.onpointermove = (/** @type {PointerEvent} */ { offsetX }) => {
    over = Math.max(0, Math.min(POINTS - 1, POINTS - 1 - Math.floor((offsetX / drawing.clientWidth) * POINTS)));
    draw();
  };
  drawing.onpointerleave = () => {
    over = null;
    draw();
  };
  return (/** @type {number | null} */ value) => {
    values.push(value);
    if (values.length > POINTS) {
      values.shift();
    }
    draw();
  };
}
