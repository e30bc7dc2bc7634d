// The log of changes as it grows: server-sent events, read with fetch, because EventSource
// cannot send the token in a header.

import { EVENTS, listEvents, request } from './api.js';
import { parse } from './json.js';
import { longer, sleep } from './wait.js';

const SOON = 1000;
const TOGETHER = 250; // events that arrive within this time are handed over at once
const MANY = 2000; // and no more than so many
const SEARCHES = 10; // requests for one page: each gives up after a while if little matches

/**
 * @typedef {{cursor: string, time: string, type: string, plant?: any, token?: any, by: string}} LogEvent
 * @typedef {{events: LogEvent[], older: string, start: string}} Read
 */

// follow calls take with the events after the cursor or since the time, some at a time,
// until the signal. It reconnects where it was. If the server no longer has what comes
// next, it calls lost and ends. A filter has parameters that select events.
/**
 * @param {{after?: string, since?: string}} from
 * @param {AbortSignal} signal
 * @param {(events: LogEvent[]) => void} take
 * @param {() => void} lost
 * @param {Record<string, string>} [filter]
 */
export async function follow(from, signal, take, lost, filter) {
  let at = from;
  let pause = SOON;
  const events = /** @type {LogEvent[]} */ ([]);
  let timer = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  const hand = () => {
    clearTimeout(timer);
    timer = undefined;
    if (!signal.aborted) {
      take(events.splice(0));
    }
  };
  while (!signal.aborted) {
    try {
      const url = `${EVENTS}?${new URLSearchParams({ details: 'true', ...filter, ...at })}`;
      const response = await request('GET', url, { headers: { Accept: 'text/event-stream' }, signal });
      if (response.status === 410) {
        lost();
        return;
      }
      if (response.status === 401 || response.status === 403) {
        return;
      }
      const cursor = response.headers.get('Plantstore-Cursor');
      at = cursor ? { after: cursor } : at;
      pause = response.ok ? SOON : pause;
      for await (const { id, data } of response.ok ? messages(response) : []) {
        at = id ? { after: id } : at;
        if (data) {
          const event = parse(data);
          events.push(event.plant ? { ...event, plant: { ...event.plant, version: event.version, updated: event.time } } : event);
          timer ??= setTimeout(hand, TOGETHER);
        }
        if (events.length >= MANY) {
          hand();
        }
        if (signal.aborted) {
          return;
        }
      }
    } catch {
      // The connection is lost, or the user has left.
    }
    await sleep(pause);
    pause = longer(pause);
  }
}

// readBack returns so many events that match the filter, newest first, of those before a cursor, if
// there is one, and since a time in milliseconds; the cursor before which there may be more, or '';
// and the position from which on all newer ones were examined.
/** @type {(filter: Record<string, string>, before: string, limit: number, signal: AbortSignal, since?: number) => Promise<Read>} */
export async function readBack(filter, before, limit, signal, since = -Infinity) {
  const events = /** @type {LogEvent[]} */ ([]);
  let start = '';
  /** @type {string | null} */
  let query = `?${new URLSearchParams({ order: 'newest', limit: `${limit}`, ...filter, ...(before && { before }) })}`;
  for (let i = 0; query && events.length < limit && i < SEARCHES; i++) {
    const { items, cursor, next } = await listEvents(query, { signal });
    const recent = items.filter(({ time }) => !(Date.parse(time) < since));
    events.push(...recent);
    start ||= cursor;
    query = recent.length < items.length ? null : next;
  }
  const older = query ? new URLSearchParams(query).get('before') ?? '' : '';
  return events.length > limit ? { events: events.slice(0, limit), older: events[limit - 1].cursor, start } : { events, older, start };
}

// cursorAt returns the cursor of the first event from a time on, or '' if there is none.
export async function cursorAt(/** @type {number} */ time, /** @type {AbortSignal} */ signal) { // in milliseconds
  const { items } = await listEvents(`?${new URLSearchParams({ limit: '1', since: new Date(time).toISOString() })}`, { signal });
  return items[0]?.cursor ?? '';
}

/** messages yields the messages of an event stream. @param {Response} response */
async function* messages(response) {
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    const parts = (text + value).split('\n\n');
    text = parts.pop() ?? '';
    yield* parts.map(message);
  }
}

/** message returns the id and the data of a message. A line ends only with a line feed. @param {string} text */
export function message(text) {
  const field = (/** @type {string} */ name) => new RegExp(`(?:^|\\n)${name}: ?([^\\n]*)`).exec(text)?.[1] ?? '';
  return { id: field('id'), data: field('data') };
}
