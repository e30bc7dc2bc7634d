// Whether events arrive at a webhook. It touches no DOM.

const ALARM = 5 * 60_000;
const WINDOW = 60_000; // that an estimate looks back
const LEAST = 4000;
const MANY = 1000; // events, up to which the server counts them

/**
 * @typedef {object} Webhook
 * @property {string} id
 * @property {string} url
 * @property {string[]} types
 * @property {string} description
 * @property {string} state
 * @property {string} [reason]
 * @property {'healthy' | 'catching_up' | 'failing' | 'paused' | 'disabled'} health
 * @property {string} created
 * @property {string} [by]
 * @property {string} [delivered] when an event last arrived
 * @property {{since: string, attempts: string, error: string}} [failing]
 * @property {string} [pending] events that did not arrive yet, counted up to 1,000
 * @property {string} [lag_ms]
 * @property {string} [next_attempt]
 * @property {{url: string, time: string, error: string}} [last_error]
 *
 * @typedef {object} Delivery
 * @property {string} event
 * @property {string} type
 * @property {string} attempt
 * @property {string} time
 * @property {string} status
 * @property {string} duration_ms
 * @property {string} [error]
 * @property {string} [response]
 */

/** condition says in words whether events arrive. @param {Pick<Webhook, 'health'>} webhook */
export const condition = ({ health }) => health.replace('_', ' ');

/** succeeded reports whether the receiver accepted a delivery. @param {Pick<Delivery, 'status'>} delivery */
export const succeeded = ({ status }) => /^2..$/.test(status);

/** waiting shows how many events wait. @param {string} [pending] */
export const waiting = (pending = '–') => (Number(pending) === MANY ? '1,000+' : pending);

/** alarm names what is wrong with a webhook, so that users can dismiss just that. @param {Webhook} webhook */
export const alarm = ({ id, health, failing, reason }) => `${id} ${health} ${failing?.since ?? reason ?? ''}`;

/**
 * alarming returns the webhooks that need attention: those that are disabled, and those that
 * have failed for 5 minutes, except for what was dismissed.
 * @param {Webhook[]} all
 * @param {number} now
 * @param {string[]} dismissed alarms
 */
export const alarming = (all, now, dismissed) => all.filter((webhook) => {
  const { health, failing } = webhook;
  const late = health === 'failing' && failing && now - Date.parse(failing.since) >= ALARM;
  return (late || health === 'disabled') && !dismissed.includes(alarm(webhook));
});

/**
 * pace returns a function that remembers how far behind webhooks are, and estimates when one that
 * catches up has no more to send: it goes on as in the last minute. What counts is the number of
 * events, or if there are too many to count, the age of the oldest. It returns null while nobody
 * can tell.
 */
export function pace() {
  /** @type {Map<string, {at: number, lag: number, pending: number}[]>} */
  const looks = new Map();
  return (/** @type {Webhook} */ { id, health, lag_ms: age, pending: events }, /** @type {number} */ now) => {
    if (health !== 'catching_up') {
      looks.delete(id);
      return null;
    }
    const last = { at: now, lag: Number(age), pending: Number(events) };
    const known = (looks.get(id) ?? []).filter(({ at }) => at >= now - WINDOW);
    looks.set(id, [...known, last]);
    const [first] = known;
    if (!first || now - first.at < LEAST) {
      return null;
    }
    const what = first.pending < MANY && last.pending < MANY ? 'pending' : 'lag';
    const done = first[what] - last[what];
    return done > 0 ? now + (last[what] * (now - first.at)) / done : null;
  };
}

/**
 * tally counts the deliveries that arrived and those that failed, in n bars of equal length from
 * the oldest one until now.
 * @param {Delivery[]} deliveries
 * @param {number} n
 * @param {number} now
 */
export function tally(deliveries, n, now) {
  const times = deliveries.map(({ time }) => Date.parse(time));
  const start = Math.min(now - 1, ...times);
  const arrived = Array(n).fill(0);
  const failed = Array(n).fill(0);
  for (const [i, delivery] of deliveries.entries()) {
    const bar = Math.max(0, Math.min(n - 1, Math.floor(((times[i] - start) / (now - start)) * n)));
    (succeeded(delivery) ? arrived : failed)[bar]++;
  }
  return { start, arrived, failed };
}
