// Whether events arrive at a webhook. It touches no DOM.

const ALARM = 5 * 60_000;

/**
 * @typedef {object} Webhook
 * @property {string} id
 * @property {string} url
 * @property {string[]} types
 * @property {string} description
 * @property {string} state
 * @property {string} [reason]
 * @property {string} created
 * @property {string} [by]
 * @property {string} [delivered] when an event last arrived
 * @property {{since: string, attempts: string, error: string}} [failing]
 * @property {string} [pending] events that did not arrive yet, counted up to 1,000
 * @property {string} [lag_ms]
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

/**
 * condition says in a word how a webhook does: active, failing or disabled.
 * @param {Pick<Webhook, 'state' | 'failing'>} webhook
 */
export const condition = ({ state, failing }) => (state === 'active' && failing ? 'failing' : state);

/** succeeded reports whether the receiver accepted a delivery. @param {Pick<Delivery, 'status'>} delivery */
export const succeeded = ({ status }) => /^2..$/.test(status);

/** waiting shows how many events wait. @param {string} [pending] */
export const waiting = (pending = '–') => (pending === '1000' ? '1,000+' : pending);

/** alarm names what is wrong with a webhook since a time, so that users can dismiss just that. @param {Webhook} webhook */
export const alarm = ({ id, failing }) => `${id} ${failing?.since ?? ''}`;

/**
 * alarming returns the webhooks that need attention: those that are disabled, and those that
 * have failed for 5 minutes, except for what was dismissed today.
 * @template {Webhook} W
 * @param {W[]} all
 * @param {number} now
 * @param {Record<string, string>} dismissed days by alarm
 * @returns {W[]}
 */
export const alarming = (all, now, dismissed) => all.filter((webhook) => {
  const { state, failing } = webhook;
  if (state === 'disabled') {
    return true;
  }
  return failing !== undefined && now - Date.parse(failing.since) >= ALARM && dismissed[alarm(webhook)] !== day(now);
});

/** day names the user's day. @param {number} now */
export const day = (now) => new Date(now).toDateString();

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
