import assert from 'node:assert/strict';
import test from 'node:test';

// What api.js wants to know of the page.
globalThis.document = { querySelector: () => ({ content: '' }) };
globalThis.location = { origin: 'http://plants.test' };
const storage = { getItem: () => null, removeItem() {} };
Object.assign(globalThis, { sessionStorage: storage, localStorage: storage, BroadcastChannel: class {} });
const { chosen, countAll, countMatches, criteria, latest, part } = await import('../web/timeline.js');

const { signal } = new AbortController();
const iso = (ms) => new Date(ms).toISOString();

test('a period that is chosen has whole bars, and ends by now', () => {
  assert.equal(chosen({ since: '', until: '' }), null);
  assert.equal(chosen({ since: iso(2000), until: iso(1000) }), null);
  assert.deepEqual(chosen({ since: iso(0), until: iso(5000) }), { since: 0, until: 5000, bars: 5, over: true });
  assert.equal(chosen({ since: iso(0), until: iso(300) }).bars, 1);
  assert.equal(chosen({ since: iso(0), until: iso(86_400_000) }).bars, 60);
  assert.ok(chosen({ since: iso(0), until: iso(Date.now() + 60_000) }).until <= Date.now());
  assert.deepEqual(part({ since: 0, until: 60_000, bars: 60 }, 2, 4), { since: iso(2000), until: iso(5000) });
});

test('bars up to now begin at multiples of their length', () => {
  const { since, until, bars } = latest(60, 15);
  assert.equal(since % 60_000, 0);
  assert.ok(until > Date.now() && until - 60_000 <= Date.now());
  assert.equal((until - since) / bars, 60_000);
});

test('only what selects changes is asked for', () => {
  assert.deepEqual(criteria({ page: 'activity', type: '', plant: '7', q: 'mon', by: '', after: 'x' }), { id: '7', q: 'mon' });
});

test('the clock of the server counts', async () => {
  const asked = [];
  globalThis.fetch = async (address) => {
    asked.push(Date.parse(new URL(address).searchParams.get('until')));
    const headers = { Date: new Date(Date.now() + 3_600_000).toUTCString() };
    return Response.json([{ events: 3 }, { events: 4, partial: true }], { headers });
  };
  const counts = await countAll(() => latest(60, 2), signal);
  assert.deepEqual([counts.values, counts.partial], [[3, 4], [false, true]]);
  assert.equal(asked.length, 2);
  assert.ok(Math.abs(asked[1] - asked[0] - 3_600_000) <= 60_000);
});

/** A log of events at these seconds, newest first if that is asked for, some on a page. */
function serve(log, size) {
  const requests = [];
  globalThis.fetch = async (address) => {
    const url = new URL(address);
    requests.push(url.search);
    const [before, after] = ['before', 'after'].map((name) => url.searchParams.get(name));
    const found = url.searchParams.has('order')
      ? log.filter((second) => before === null || second < Number(before)).reverse()
      : log.filter((second) => second > Number(after ?? -1));
    const events = found.slice(0, size);
    url.searchParams.set('before', events.at(-1));
    const headers = { 'Plantstore-Cursor': String(events.at(-1) ?? after), ...(found.length > size && { Link: `<${url}>; rel="next"` }) };
    return Response.json(events.map((second) => ({ cursor: String(second), time: iso(second * 1000) })), { headers });
  };
  return requests;
}

test('changes that match are read once, and then only newer ones', async () => {
  const log = [1, 11, 12, 35];
  const requests = serve(log, 2);
  const count = countMatches(() => ({ since: 10_000, until: 40_000, bars: 3 }), { id: '7' }, signal);
  assert.deepEqual((await count()).values, [2, 0, 1]);
  assert.equal(requests.length, 2, 'it reads on although what follows is too old');
  log.push(36, 39);
  const { values, partial } = await count();
  assert.deepEqual([values, partial], [[2, 0, 3], [false, false, false]]);
  assert.match(requests.at(-1), /after=35/);
  log.push(39.1, 39.2, 39.3); // more than a page: what is between is not left out
  assert.deepEqual((await count()).values, [2, 0, 6]);
});

test('what was not searched is partial', async () => {
  serve(Array.from({ length: 6000 }, (_, i) => i), 500);
  const { values, partial } = await countMatches(() => ({ since: 0, until: 6_000_000, bars: 6 }), { by: 'x' }, signal)();
  assert.deepEqual(values, [0, 1000, 1000, 1000, 1000, 1000]);
  assert.deepEqual(partial, [true, false, false, false, false, false]);
});
