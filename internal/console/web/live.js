// The live figures: what /metrics says, as two small charts.

import { metrics } from './api.js';
import { $, svg } from './dom.js';

const EVERY = 2000;
const POINTS = 60;
const WIDTH = 240;
const HEIGHT = 44;

let timer;
let running = new AbortController();

// startLive draws the charts if the token may see the figures, and until stopLive.
export function startLive() {
  stopLive();
  running = new AbortController();
  watch(running.signal);
}

export function stopLive() {
  running.abort();
  clearTimeout(timer);
  $('live').hidden = true;
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
        return; // the token does not have the scope, or is gone
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
    draw('commit', latencies, 'Commit latency, on average', (n) => `${figure(n)} ms`);
    timer = setTimeout(tick, EVERY);
  };
  await tick();
}

// sample reads the counters. Creates are the writes that were committed, imports
// included, without those that replaced or deleted.
function sample(text) {
  const read = (name) => Number(text.match(new RegExp(`^${name} (\\S+)$`, 'm'))?.[1] ?? 0);
  const answered = (operation) => read(`plantstore_requests_total\\{operation="${operation}",status="20[04]"\\}`);
  return {
    at: performance.now(),
    creates: read('plantstore_commit_batch_size_sum') - answered('replacePlant') - answered('deletePlant'),
    commits: read('plantstore_commit_seconds_count'),
    seconds: read('plantstore_commit_seconds_sum'),
  };
}

function push(values, value) {
  values.push(value);
  if (values.length > POINTS) {
    values.shift();
  }
}

const figure = (n) => (n >= 1000 ? new Intl.NumberFormat('en', { notation: 'compact' }).format(n) : n.toFixed(n > 0 && n < 10 ? 1 : 0));

// draw draws the newest value at the right edge, and nothing where there is none.
function draw(name, values, title, format) {
  const known = values.filter((value) => value !== null);
  const most = Math.max(...known, 1e-9);
  const x = (i) => WIDTH - (values.length - 1 - i) * (WIDTH / (POINTS - 1));
  const y = (value) => HEIGHT - 2 - (value / most) * (HEIGHT - 6);
  const parts = [svg('line', { class: 'ground', x1: 0, x2: WIDTH, y1: HEIGHT - 1, y2: HEIGHT - 1 })];
  for (const run of runs(values)) {
    const points = run.map((i) => `${x(i).toFixed(1)},${y(values[i]).toFixed(1)}`);
    parts.push(svg('polygon', { class: 'area', points: [`${x(run[0]).toFixed(1)},${HEIGHT}`, ...points, `${x(run.at(-1)).toFixed(1)},${HEIGHT}`].join(' ') }));
    parts.push(svg('polyline', { class: 'line', points: (points.length > 1 ? points : [points[0], points[0]]).join(' ') }));
  }
  const chart = $(`${name}-chart`);
  chart.replaceChildren(...parts);
  const now = values.at(-1);
  $(`${name}-now`).textContent = now === null ? '–' : format(now);
  chart.ariaLabel = known.length === 0 ? `${title}: nothing yet` : `${title}: ${now === null ? 'nothing now' : `${format(now)} now`}, at most ${format(most)} in the last two minutes`;
}

// runs returns the indices of the values, split where one is missing.
function runs(values) {
  const all = [];
  let run = [];
  values.forEach((value, i) => {
    if (value !== null) {
      run.push(i);
    } else if (run.length > 0) {
      all.push(run);
      run = [];
    }
  });
  return run.length > 0 ? [...all, run] : all;
}
