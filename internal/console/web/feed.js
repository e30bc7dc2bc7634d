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
 * @typedef {object} LogEvent
 * @property {string} cursor
 * @property {string} time
 * @property {string} type
 * @property {any} [plant]
 * @property {any} [token]
 * @property {string} by
 */

/**
 * follow calls take with the events after the cursor or since the time, some at a time,
 * until the signal. It reconnects where it was. If the server no longer has what comes
 * next, it calls lost and ends.
 * @param {{after?: string, since?: string}} from
 * @param {AbortSignal} signal
 * @param {(events: LogEvent[]) => void} take
 * @param {() => void} lost
 * @param {Record<string, string>} [filter] parameters that select events
 */
export async function follow(from, signal, take, lost, filter) {
  let at = from;
  let pause = SOON;
  /** @type {LogEvent[]} */
  let events = [];
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const hand = () => {
    clearTimeout(timer);
    timer = undefined;
    const some = events;
    events = [];
    if (!signal.aborted) {
      take(some);
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
      if (response.ok) {
        pause = SOON;
        const cursor = response.headers.get('Plantstore-Cursor');
        at = cursor ? { after: cursor } : at;
        for await (const { id, data } of messages(response)) {
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
      }
    } catch {
      // The connection is lost, or the user has left.
    }
    await sleep(pause);
    pause = longer(pause);
  }
}

/**
 * readBack returns so many events that match the filter, newest first, the cursor before which
 * there may be more, or '', and the position from which on all newer ones were examined.
 * @param {Record<string, string>} filter
 * @param {string} before the cursor that they come before, or ''
 * @param {number} limit
 * @param {AbortSignal} signal
 * @param {number} [since] milliseconds: older ones do not count
 */
export async function readBack(filter, before, limit, signal, since = -Infinity) {
  /** @type {LogEvent[]} */
  let events = [];
  let start = '';
  /** @type {string | null} */
  let query = `?${new URLSearchParams({ order: 'newest', limit: `${limit}`, ...filter, ...(before && { before }) })}`;
  for (let i = 0; query && events.length < limit && i < SEARCHES; i++) {
    const { items, cursor, next } = await listEvents(query, { signal });
    const recent = items.filter(({ time }) => !(Date.parse(time) < since));
    events = [...events, ...recent];
    start ||= cursor;
    query = recent.length < items.length ? null : next;
  }
  const older = query ? new URLSearchParams(query).get('before') ?? '' : '';
  return events.length > limit ? { events: events.slice(0, limit), older: events[limit - 1].cursor, start } : { events, older, start };
}

/**
 * cursorAt returns the cursor of the first event from a time on, or '' if there is none.
 * @param {number} time milliseconds
 * @param {AbortSignal} signal
 */
export async function cursorAt(time, signal) {
  const { items } = await listEvents(`?${new URLSearchParams({ limit: '1', since: new Date(time).toISOString() })}`, { signal });
  return items[0]?.cursor ?? '';
}

/** messages yields the messages of an event stream. @param {Response} response */
async function* messages(response) {
  const reader = /** @type {ReadableStream<BufferSource>} */ (response.body).pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    text += value;
    const parts = text.split('\n\n');
    text = parts.pop() ?? '';
    for (const part of parts) {
      yield message(part);
    }
  }
}

/** @param {string} text */
export function message(text) {
  const fields = { id: '', data: '' };
  for (const line of text.split('\n')) {
    const [, name, value] = /^(id|data): ?(.*)$/.exec(line) ?? [];
    if (name === 'id' || name === 'data') {
      fields[name] = value;
    }
  }
  return fields;
}
