// What the numbers at /metrics mean. It touches no DOM.

/**
 * @typedef {object} Sample of the counters, since the server started
 * @property {number} at in milliseconds
 * @property {number} creates
 * @property {number} errors
 * @property {number} commits
 * @property {number} seconds that the commits took
 * @property {Map<number, number>} requests how many took at most so many seconds
 */

const SERIES = /^(\w+)(?:\{(.*)\})? (\S+)$/gm;
const STREAM = 'listEvents'; // as long as its reader stays

// sample reads the counters. Creates are all committed writes, including imports, except for
// those that replaced or deleted a plant. Errors are responses with a status of 500 or more.
/** @type {(text: string, at: number) => Sample} */
export function sample(text, at) {
  const now = { at, creates: 0, errors: 0, commits: 0, seconds: 0, requests: new Map() };
  for (const [, name, labels = '', value] of text.matchAll(SERIES)) {
    const n = Number(value);
    const label = (/** @type {string} */ key) => new RegExp(`(?:^|,)${key}="([^"]*)"`).exec(labels)?.[1] ?? '';
    switch (name) {
      case 'plantstore_commit_batch_size_sum':
        now.creates += n;
        break;
      case 'plantstore_commit_duration_seconds_count':
        now.commits = n;
        break;
      case 'plantstore_commit_duration_seconds_sum':
        now.seconds = n;
        break;
      case 'plantstore_http_requests_total':
        now.creates -= /^(replace|delete)Plant 20[04]$/.test(`${label('operation')} ${label('status')}`) ? n : 0;
        now.errors += label('status') >= '500' ? n : 0;
        break;
      case 'plantstore_http_request_duration_seconds_bucket':
        if (label('operation') !== STREAM) {
          const limit = label('le') === '+Inf' ? Infinity : Number(label('le'));
          now.requests.set(limit, (now.requests.get(limit) ?? 0) + n);
        }
        break;
    }
  }
  return now;
}

// rates returns what happened between two samples: creates and errors per second, and the mean
// milliseconds of a commit, or null if there was none.
export function rates(/** @type {Sample} */ before, /** @type {Sample} */ after) {
  const seconds = (after.at - before.at) / 1000;
  const commits = after.commits - before.commits;
  return {
    creates: Math.max(0, after.creates - before.creates) / seconds,
    errors: Math.max(0, after.errors - before.errors) / seconds,
    commit: commits > 0 ? ((after.seconds - before.seconds) / commits) * 1000 : null,
  };
}

// percentile returns the milliseconds within which this share of the requests between two
// samples was served, or null if there was none. Within a bucket of the histogram it assumes
// that requests are spread evenly, and it goes no further than the last limit that is finite.
export function percentile(/** @type {Sample} */ before, /** @type {Sample} */ after, /** @type {number} */ part) {
  const limits = [...after.requests.keys()].sort((a, b) => a - b);
  const served = limits.map((limit) => (after.requests.get(limit) ?? 0) - (before.requests.get(limit) ?? 0));
  const total = served.at(-1) ?? 0;
  if (total <= 0) {
    return null;
  }
  const i = served.findIndex((n) => n >= part * total);
  const [low, below] = i > 0 ? [limits[i - 1], served[i - 1]] : [0, 0];
  const high = limits[i] === Infinity ? low : limits[i];
  return (low + (high - low) * ((part * total - below) / (served[i] - below))) * 1000;
}
