// The live metrics: two small charts from /metrics.

import { allows, metrics } from './api.js';
import { $, svg } from './dom.js';
import { figure } from './format.js';

const EVERY = 1000;
const POINTS = 60;
const WIDTH = 240;
const HEIGHT = 44;

let timer;
let running = new AbortController();

// startLive draws the charts until stopLive, if the token has the scope ops:read.
export function startLive() {
  stopLive();
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

async function watch(signal) {
  const rates = [];
  const latencies = [];
  let last = null;
  const tick = async () => {
    let now = null;
    try {
      now = document.hidden ? null : sample(await metrics({ signal }));
    } catch (err) {
      if (signal.aborted || err.status === 401 || err.status === 403) {
        return; // the token lacks the scope, or is no longer valid
      }
    }
    if (signal.aborted) {
      return;
    }
    if (now) {
      $('live').hidden = false;
    }
    push(rates, now && last ? Math.max(0, now.creates - last.creates) / ((now.at - last.at) / 1000) : null);
    push(latencies, now && last && now.commits > last.commits ? ((now.seconds - last.seconds) / (now.commits - last.commits)) * 1000 : null);
    last = now;
    draw('rate', rates, 'Creates per second', (n) => figure(n));
    draw('commit', latencies, 'Average commit latency', (n) => `${figure(n)} ms`);
    timer = setTimeout(tick, EVERY);
  };
  await tick();
}

// sample reads the counters. Creates are all committed writes, including imports,
// except for those that replaced or deleted a plant.
function sample(text) {
  const read = (name) => Number(text.match(new RegExp(`^${name} (\\S+)$`, 'm'))?.[1] ?? 0);
  const succeeded = (operation) => read(`plantstore_http_requests_total\\{operation="${operation}",status="20[04]"\\}`);
  return {
    at: performance.now(),
    creates: read('plantstore_commit_batch_size_sum') - succeeded('replacePlant') - succeeded('deletePlant'),
    commits: read('plantstore_commit_duration_seconds_count'),
    seconds: read('plantstore_commit_duration_seconds_sum'),
  };
}

function push(values, value) {
  values.push(value);
  if (values.length > POINTS) {
    values.shift();
  }
}

// draw draws a bar for each value, the newest one on the right, and a gap if there is no
// value.
function draw(name, values, title, format) {
  const known = values.filter((value) => value !== null);
  const peak = Math.max(...known, 1e-9);
  const step = WIDTH / POINTS;
  const bars = values.map((value, i) => {
    const height = value && Math.max(1.5, (value / peak) * HEIGHT);
    return height && svg('rect', { x: WIDTH - (values.length - i) * step, y: HEIGHT - height, width: step * 0.7, height, rx: 0.5 });
  });
  const chart = $(`${name}-chart`);
  chart.replaceChildren(svg('rect', { class: 'ground', x: 0, y: HEIGHT - 1, width: WIDTH, height: 1 }), ...bars.filter(Boolean));
  const now = values.at(-1);
  $(`${name}-now`).textContent = now === null ? '–' : format(now);
  chart.ariaLabel = known.length === 0 ? `${title}: no data yet` : `${title}: ${now === null ? 'no data' : `${format(now)} now`}, peak ${format(peak)} in the last minute`;
}
