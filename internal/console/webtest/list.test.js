import assert from 'node:assert/strict';
import test, { afterEach, mock } from 'node:test';

// What api.js wants to know of the page. The server is a function of each test.
globalThis.document = { querySelector: () => ({ content: '' }) };
globalThis.location = { origin: 'http://plants.test' };
const storage = () => {
  const items = new Map();
  return {
    getItem: (key) => items.get(key) ?? null,
    setItem: (key, value) => items.set(key, value),
    removeItem: (key) => items.delete(key),
  };
};
Object.assign(globalThis, { sessionStorage: storage(), localStorage: storage() });
globalThis.BroadcastChannel = class { postMessage() {} };
const { session } = await import('../web/api.js');
session.begin('secret', { scopes: ['plants:read', 'events:read'] }, false);

const { close, freeID, list, loaded, neighbour, reload, show, subscribe } = await import('../web/list.js');
const { extend, select, selectMatches, selectPage, selecting, stopSelecting, toggle } = await import('../web/selection.js');

const encoder = new TextEncoder();
const everything = { q: '', tags: [], untagged: '', order: '', after: '', before: 0 };
const plants = (...ids) => ids.map((id) => ({ id, name: `Plant ${id}`, tag: id % 2 ? 'odd' : 'even' }));
const ids = () => list.plants.map(({ id }) => Number(id));

/** A server of these plants, of which one search examines some at most. send sends events to the stream. */
function serve(store, { examines = Infinity, fails = () => false } = {}) {
  const server = { store, requests: [], send: null };
  globalThis.fetch = async (address, { signal }) => {
    signal?.throwIfAborted();
    const url = new URL(address);
    server.requests.push(url.pathname + url.search);
    if (fails(url)) {
      return new Response('{"message": "the disk is full"}', { status: 507 });
    }
    if (url.pathname === '/about') {
      return Response.json({ plants: server.store.length });
    }
    if (url.pathname === '/events') {
      return new Response(new ReadableStream({
        start(controller) {
          const send = (event) => controller.enqueue(encoder.encode(`id: 1\ndata: ${JSON.stringify(event)}\n\n`));
          server.send = (...events) => events.forEach(send);
          signal.addEventListener('abort', () => controller.error(signal.reason));
        },
      }));
    }
    const { q, order, after, untagged, limit, count } = Object.fromEntries(url.searchParams);
    const tags = url.searchParams.getAll('tag');
    const names = (a, b) => (order?.endsWith('name') ? a.name.localeCompare(b.name, 'en', { sensitivity: 'base' }) : 0);
    const sorted = server.store.toSorted((a, b) => (names(a, b) || a.id - b.id) * (order?.startsWith('-') ? -1 : 1));
    const rest = sorted.slice(sorted.findIndex(({ id }) => `${id}` === after) + 1);
    const selects = (tag) => (tags.length === 0 && !untagged) || (tag === undefined ? Boolean(untagged) : tags.includes(tag));
    const found = ({ name, tag }) => name.includes(q ?? '') && selects(tag);
    const page = rest.slice(0, examines).filter(found).slice(0, Number(limit));
    const last = page.length === Number(limit) ? page.at(-1) : rest[examines - 1];
    url.searchParams.set('after', last?.id);
    const headers = last && last.id !== rest.at(-1).id ? { Link: `<${url}>; rel="next"` } : {};
    const n = server.store.filter(found).length;
    return Response.json(page, { headers: { ...headers, ...(count && { 'Plantstore-Count': n > 10_000 ? '10000+' : `${n}` }) } });
  };
  return server;
}

/** Waits until the condition holds after a change of the list. */
const until = (holds) => new Promise((resolve) => {
  subscribe(() => holds() && resolve());
});

afterEach(() => {
  close();
  mock.timers.reset();
});

test('the rows are there before anything else is asked for', async () => {
  const server = serve(plants(1, 2));
  const drawn = [];
  subscribe(() => drawn.push([server.requests.length, list.plants.length]));
  show(everything);
  await loaded();
  assert.deepEqual(drawn.slice(0, 2), [[1, 0], [1, 2]]);
  assert.equal(server.requests.length, 3);
});

test('a page is loaded, and the next one follows it', async () => {
  serve(plants(...Array.from({ length: 60 }, (_, i) => i + 1)));
  show(everything);
  assert.equal(list.status, 'loading');
  assert.equal(freeID(), '', 'an id is free before the plants are known');
  await loaded();
  assert.deepEqual([ids().length, list.status, list.current], [50, '', '1']);
  assert.equal(freeID(), '', 'the last plant is on another page');
  show({ ...everything, after: '50', before: 50 });
  assert.equal(ids()[0], 1, 'the old page is gone before the next one is there');
  await loaded();
  assert.deepEqual([ids().length, list.next, list.current, freeID()], [10, null, '51', '61']);
  assert.deepEqual([neighbour('60'), neighbour('51')], ['59', '52']);
});

test('a search goes on where the server stopped', async () => {
  const server = serve(plants(...Array.from({ length: 41 }, (_, i) => i + 1)), { examines: 15 });
  const found = [];
  subscribe(() => list.status === 'searching' && found.push([ids().length, list.searched]));
  show({ ...everything, q: 'Plant 4' });
  await loaded();
  assert.deepEqual(ids(), [4, 40, 41]);
  assert.deepEqual(found, [[1, 35], [1, 72]], 'the share of the IDs between the first and the last');
  assert.equal(server.requests.filter((path) => path.includes('q=')).length, 3);
});

test('a page that cannot be loaded says why, but one that is shown stays', async () => {
  let broken = false;
  serve(plants(1, 2), { fails: ({ pathname }) => broken && pathname === '/plants' });
  show(everything);
  await loaded();
  broken = true;
  await reload();
  assert.deepEqual([ids(), list.failure], [[1, 2], null]);
  show({ ...everything, tags: ['odd'] });
  await loaded();
  assert.deepEqual([ids(), list.failure.message], [[], 'the disk is full']);
  broken = false;
  await reload();
  assert.deepEqual([ids(), list.failure], [[1], null]);
});

test('only the last search counts', async () => {
  const server = serve(plants(1, 2, 3));
  show({ ...everything, tags: ['odd'] });
  show({ ...everything, tags: ['even'] });
  await loaded();
  assert.deepEqual([ids(), list.status], [[2], '']);
  assert.equal(server.requests.filter((path) => path === '/about').length, 1);
});

test('the selection lasts as long as its plants and its search', async () => {
  const server = serve(plants(1, 2, 3));
  show(everything);
  await loaded();
  toggle('1');
  toggle('2');
  toggle('3');
  toggle('3');
  assert.deepEqual([...list.selected.keys()], ['1', '2']);
  server.store = [{ id: 1, name: 'Renamed' }, ...plants(3)];
  await reload();
  assert.deepEqual([...list.selected.values()], [{ id: '1', name: 'Renamed' }]);
  select(list.plants);
  assert.equal(list.selected.size, 2);
  show({ ...everything, q: 'Plant' });
  assert.equal(list.selected.size, 0);
});

test('changes of others are merged without moving anything', async () => {
  const server = serve(plants(10, 20, 30));
  show({ ...everything, q: 'Plant' });
  await loaded();
  select(list.plants.slice(0, 2));
  server.send(
    { type: 'plant.replaced', plant: { id: 10, name: 'A renamed one' } },
    { type: 'plant.deleted', plant: { id: 20 } },
    { type: 'plant.replaced', plant: server.store[2] },
    { type: 'plant.created', plant: { id: 5, name: 'Plánt before all' } },
    { type: 'plant.created', plant: { id: 6, name: 'Another name' } },
    { type: 'plant.created', plant: { id: 7, name: 'plant that is gone again' } },
    { type: 'plant.deleted', plant: { id: 7 } },
    { type: 'token.created', token: { id: 'x' } },
  );
  await until(() => list.changed.size > 0);
  assert.deepEqual(list.plants.map(({ id, name }) => [id, name]), [['10', 'A renamed one'], ['20', 'Plant 20'], ['30', 'Plant 30']]);
  assert.deepEqual([[...list.changed], [...list.deleted], [...list.created]], [['10'], ['20'], ['5']]);
  assert.equal(list.selected.get('10').name, 'A renamed one');
  server.send({ type: 'plant.created', plant: { id: 20, name: 'Plant 20', tag: 'even' } });
  await until(() => list.deleted.size === 0);
  assert.ok(list.changed.has('20'));
});

test('a change is marked for ten seconds', async () => {
  serve(plants(1, 2));
  show(everything);
  await loaded();
  mock.timers.enable({ apis: ['setTimeout'] });
  await reload({ changed: '2' });
  mock.timers.tick(9_999);
  assert.deepEqual([...list.changed], ['2']);
  mock.timers.tick(1);
  assert.equal(list.changed.size, 0);
});

test('a range is selected, extended and shortened', async () => {
  serve(plants(1, 2, 3, 4, 5, 6));
  show(everything);
  await loaded();
  const selected = () => [...list.selected.keys()].sort().join('');
  toggle('5', true);
  assert.equal(selected(), '5', 'a range begins somewhere');
  toggle('2', true);
  assert.equal(selected(), '2345');
  toggle('3', true);
  assert.equal(selected(), '45', 'the range is no longer selected');
  select([]);
  extend('2', '3');
  extend('3', '4');
  extend('4', '3');
  assert.equal(selected(), '23');
  extend('3', '2');
  extend('2', '1');
  assert.equal(selected(), '12');
  selectPage(true);
  assert.equal(selected(), '123456');
});

test('all matches are selected, on all pages, up to 100,000', async () => {
  const server = serve(plants(...Array.from({ length: 12_000 }, (_, i) => i + 1)));
  show({ ...everything, tags: ['odd'] });
  await loaded();
  await selectMatches();
  assert.deepEqual([list.selected.size, list.selected.has('11999'), list.selected.has('2'), selecting()], [6000, true, false, null]);
  show({ ...everything, tags: ['odd'], after: '99', before: 50 });
  await loaded();
  show({ ...everything, tags: ['odd'], order: '-name' });
  await loaded();
  assert.equal(list.selected.size, 6000, 'another page and another order of the same search');
  show(everything);
  await loaded();
  assert.equal(list.selected.size, 0);
  const stopped = selectMatches();
  stopSelecting();
  await assert.rejects(stopped, { name: 'AbortError' });
  assert.deepEqual([list.selected.size, selecting()], [0, null]);
  server.store = plants(...Array.from({ length: 100_500 }, (_, i) => i + 1));
  await selectMatches();
  assert.equal(list.selected.size, 100_000);
  const other = selectMatches();
  show({ ...everything, q: '7' });
  await other;
  assert.equal(list.selected.size, 0, 'the filters have changed meanwhile');
});

test('the server counts the matches that are not all here', async () => {
  const counted = async (n, wanted) => {
    close();
    serve(plants(...Array.from({ length: n }, (_, i) => i + 1)));
    show({ ...everything, ...wanted });
    await until(() => list.matches);
    return `${list.matches.n}${list.matches.more ? '+' : ''}`;
  };
  assert.equal(await counted(20, { q: 'Plant' }), '20');
  assert.equal(await counted(60, { q: 'Plant' }), '60');
  assert.equal(await counted(60, { q: 'Plant', after: '50', before: 50 }), '60');
  assert.equal(await counted(60, { q: 'Plant', after: '50', before: null }), '60');
  assert.equal(await counted(20_002, { tags: ['odd'] }), '10000+');
  assert.equal(await counted(200, { tags: ['odd', 'even'] }), '200');
});

test('a plant is announced if it belongs to the page', async () => {
  const store = ['Beech', 'cedar', 'Éclair', 'fir', 'Gum'].map((name, i) => ({ id: 10 * (i + 1), name, tag: 'tree' }));
  const announced = async (wanted, { page = store, next = null } = {}) => {
    close();
    const server = serve(page);
    show({ ...everything, ...wanted });
    await loaded();
    list.next = next;
    server.send(
      { type: 'plant.created', plant: { id: 5, name: 'Acer', tag: 'tree' } },
      { type: 'plant.created', plant: { id: 25, name: 'eclair' } },
      { type: 'plant.created', plant: { id: 26, name: 'Dogwood', tag: 'shrub' } },
      { type: 'plant.created', plant: { id: 55, name: 'Hazel', tag: 'tree' } },
      { type: 'plant.deleted', plant: { id: 20 } },
    );
    await until(() => list.deleted.size > 0);
    return [...list.created].join();
  };
  assert.equal(await announced({}), '5,25,26,55');
  assert.equal(await announced({}, { next: '?' }), '5,25,26');
  assert.equal(await announced({ after: '10' }, { next: '?' }), '25,26');
  assert.equal(await announced({ order: '-id' }, { next: '?' }), '25,26,55');
  assert.equal(await announced({ order: 'name' }, { next: '?' }), '5,25,26');
  assert.equal(await announced({ order: 'name', after: '10' }, { next: '?' }), '25,26');
  assert.equal(await announced({ order: '-name' }, { next: '?' }), '25,26,55');
  assert.equal(await announced({ tags: ['tree', 'shrub'] }, { next: '?' }), '5,26');
  assert.equal(await announced({ tags: ['tree'], untagged: 'true' }), '5,25,55');
  const untagged = store.map(({ id, name }) => ({ id, name }));
  assert.equal(await announced({ untagged: 'true' }, { page: untagged }), '25');
});
