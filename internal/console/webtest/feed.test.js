import assert from 'node:assert/strict';
import test from 'node:test';

// What api.js wants to know of the page.
globalThis.document = { querySelector: () => ({ content: '' }) };
globalThis.location = { origin: 'http://plants.test' };
const storage = { getItem: () => null, removeItem() {} };
Object.assign(globalThis, { sessionStorage: storage, localStorage: storage, BroadcastChannel: class {} });
const { message, readBack } = await import('../web/feed.js');

/** A log of so many events, of which one request examines some. It returns the requests. */
function serve(events, examines) {
  const requests = [];
  globalThis.fetch = async (address) => {
    const url = new URL(address);
    requests.push(url.search);
    const before = Number(url.searchParams.get('before') ?? events + 1);
    const oldest = Math.max(1, before - examines);
    const some = Array.from({ length: before - oldest }, (_, i) => before - 1 - i).filter((n) => n % 10 === 0);
    url.searchParams.set('before', oldest);
    const headers = { 'Plantstore-Cursor': String(before - 1), ...(oldest > 1 && { Link: `<${url}>; rel="next"` }) };
    return Response.json(some.map((n) => ({ cursor: String(n) })), { headers });
  };
  return requests;
}

const read = async (before, limit) => {
  const { events, older, start } = await readBack({ id: '7' }, before, limit, new AbortController().signal);
  return { cursors: events.map(({ cursor }) => cursor), older, start };
};

test('the log is read back until there are enough events', async () => {
  const requests = serve(100, 25);
  assert.deepEqual(await read('', 3), { cursors: ['100', '90', '80'], older: '76', start: '100' });
  assert.deepEqual(requests, ['?order=newest&limit=3&id=7']);
  assert.deepEqual(await read('76', 3), { cursors: ['70', '60', '50'], older: '50', start: '75' });
});

test('the log is read back to its end', async () => {
  serve(30, 25);
  assert.deepEqual(await read('', 200), { cursors: ['30', '20', '10'], older: '', start: '30' });
});

test('a search that finds little says how far it has come', async () => {
  const requests = serve(1000, 5);
  assert.deepEqual(await read('', 200), { cursors: ['1000', '990', '980', '970', '960'], older: '951', start: '1000' });
  assert.equal(requests.length, 10);
});

test('a message has its id and its data, whatever is in them', () => {
  assert.deepEqual(message('id: a1\ndata: {"name":"x\u2028y"}'), { id: 'a1', data: '{"name":"x\u2028y"}' });
  assert.deepEqual(message('data:1'), { id: '', data: '1' });
  assert.deepEqual(message(': nothing for a while'), { id: '', data: '' });
});
