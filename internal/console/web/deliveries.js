// Whether events arrive at a webhook. It touches no DOM.

const ALARM = 5 * 60_000;
const WINDOW = 60_000; // that an estimate looks back
const LEAST = 4000;
const MANY = 1000; // events, up to which the server counts them

/**
 * @typedef {{
 *   id: string, url: string, types: string[], description: string, created: string, by?: string,
 *   state: string, health: 'healthy' | 'catching_up' | 'failing' | 'paused' | 'disabled', reason?: string,
 *   failing?: {since: string, attempts: string, error: string}, last_error?: {url: string, time: string, error: string},
 *   pending?: string, lag_ms?: string, delivered?: string, next_attempt?: string,
 * }} Webhook of which pending events, those that did not arrive yet, are counted up to 1,000
 *
 * @typedef {{
 *   event: string, type: string, attempt: string, time: string, status: string, duration_ms: string,
 *   error?: string, response?: string,
 * }} Delivery
 */

/** condition says in words whether events arrive. @param {Pick<Webhook, 'health'>} webhook */
export const condition = ({ health }) => health.replace('_', ' ');

/** succeeded reports whether the receiver accepted a delivery. @param {Pick<Delivery, 'status'>} delivery */
export const succeeded = ({ status }) => /^2..$/.test(status);

/** waiting shows how many events wait. @param {string} [pending] */
export const waiting = (pending = '–') => (Number(pending) === MANY ? '1,000+' : pending);

/** alarm names what is wrong with a webhook, so that users can dismiss just that. @param {Webhook} webhook */
export const alarm = ({ id, health, failing, reason }) => `${id} ${health} ${failing?.since ?? reason ?? ''}`;

// alarming returns the webhooks that need attention: those that are disabled, and those that
// have failed for 5 minutes, except for what was dismissed.
/** @type {(all: Webhook[], now: number, dismissed: string[]) => Webhook[]} */
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
  const looks = /** @type {Map<string, {at: number, lag: number, pending: number}[]>} */ (new Map());
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

// tally counts the deliveries that arrived and those that failed, in n bars of equal length from
// the oldest one until now.
export function tally(/** @type {Delivery[]} */ deliveries, /** @type {number} */ n, /** @type {number} */ now) {
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
