// How many changes there were over time, for the bars of a chart. It touches no DOM.

import { histogram, listEvents } from './api.js';
import { cursorAt, readBack } from './feed.js';

const SKEW = 3000; // milliseconds between two clocks, which are ignored
const MOST = 5000; // changes that match and are counted
const BARS = 60; // of a chosen period

let ahead = 0; // milliseconds by which the clock of the server is ahead of that of the browser

const now = () => Date.now() + ahead;

/** @type {Record<string, [number, number, string]>} that end now: the seconds of a bar, how many bars, and what it is called */
export const RANGES = {
  '15m': [15, 60, '15 minutes'], '1h': [60, 60, 'hour'], '24h': [1800, 48, '24 hours'], '7d': [10_800, 56, '7 days'],
};

/**
 * @typedef {{since: number, until: number, bars: number, over?: boolean}} Period in milliseconds; over if it has ended
 * @typedef {Period & {values: number[], partial: boolean[]}} Counts
 */

// latest returns the period up to now. Bars begin at multiples of their length, so that they stay
// the same while time passes; the last one is not over.
/** @type {(seconds: number, bars: number) => Period} */
export function latest(seconds, bars) {
  const length = seconds * 1000;
  const until = (Math.floor(now() / length) + 1) * length;
  return { since: until - bars * length, until, bars };
}

// chosen returns the period that the user has chosen, if there is one.
/** @type {(state: {since: string, until: string}) => Period | null} */
export function chosen(state) {
  const since = Date.parse(state.since);
  const until = Math.min(Date.parse(state.until), now());
  const bars = Math.max(1, Math.min(BARS, Math.round((until - since) / 1000)));
  return until > since ? { since, until, bars, over: true } : null;
}

// part returns these bars of a period, for the URL.
export function part(/** @type {Period} */ { since, until, bars }, /** @type {number} */ first, /** @type {number} */ last) {
  const iso = (/** @type {number} */ bar) => new Date(Math.min(since + (bar * (until - since)) / bars, now())).toISOString();
  return { since: iso(first), until: iso(last + 1) };
}

/** criteria returns the parameters that select events. @param {import('./state.js').State} state */
export const criteria = ({ type, plant: id, q, by }) => (
  /** @type {Record<string, string>} */ (Object.fromEntries(Object.entries({ type, id, q, by }).filter(([, wanted]) => wanted))));

// countAll counts the changes in a period, by the clock of the server.
/** @type {(period: () => Period, signal: AbortSignal) => Promise<Counts>} */
export async function countAll(period, signal) {
  const { since, until, bars, over } = period();
  const { buckets, date } = await histogram({ since, until, buckets: bars }, { signal });
  const drift = Date.parse(date) - now();
  if (Math.abs(drift) > SKEW) {
    ahead += drift;
    return countAll(period, signal);
  }
  const values = buckets.map(({ events }) => Number(events));
  return { since, until, bars, over, values, partial: buckets.map(({ partial }) => partial ?? false) };
}

// countMatches returns a function that counts the changes in a period that match: those before the
// first call once, and then those since the last one. Bars that were not searched are partial.
/** @type {(period: () => Period, filter: Record<string, string>, signal: AbortSignal) => () => Promise<Counts>} */
export function countMatches(period, filter, signal) {
  let times = /** @type {number[]} */ ([]);
  let searched = 0; // from when on all were counted
  let at = '';
  return async () => {
    const { since, until, bars, over } = period();
    if (at && !over) {
      const query = new URLSearchParams({ limit: '1000', after: at, ...filter });
      at = ''; // to read back again if that fails, or there are more
      const { items, cursor, next } = await listEvents(`?${query}`, { signal });
      times = [...items.map(({ time }) => Date.parse(time)).reverse(), ...times.filter((time) => time >= since)];
      at = next ? '' : cursor;
    }
    if (!at) {
      const before = over ? await cursorAt(until, signal) : '';
      const { events, older, start } = await readBack(filter, before, MOST, signal, since);
      times = events.map(({ time }) => Date.parse(time)); // newest first
      searched = older ? times.at(-1) ?? until : 0;
      at = events[0]?.cursor ?? start;
    }
    const values = Array(bars).fill(0);
    const length = (until - since) / bars;
    for (const time of times.filter((time) => time >= since && time < until)) {
      values[Math.floor((time - since) / length)]++;
    }
    return { since, until, bars, over, values, partial: values.map((_, bar) => since + bar * length < searched) };
  };
}
