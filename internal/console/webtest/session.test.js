import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createSession } from '../web/session.js';

const DAY = 86_400_000;
const TOKEN = { id: 'a', name: 'me', scopes: ['plants:read'], created: '2026-11-01T00:00:00Z', expires: null };

/** storage returns a Storage. */
function storage() {
  const items = new Map();
  return {
    items,
    getItem: (name) => items.get(name) ?? null,
    setItem: (name, text) => items.set(name, text),
    removeItem: (name) => items.delete(name),
  };
}

let runs = 0;

/** browser returns a browser whose tabs have a clock in common. */
function browser(t) {
  const run = ++runs;
  const device = storage();
  const clock = { now: Date.parse('2026-11-18T08:00:00Z') };
  const open = (tab = storage(), store = '/v1') => {
    const channel = new BroadcastChannel(`${run} ${store}`);
    t.after(() => channel.close());
    return { tab, session: createSession(store, tab, device, channel, () => clock.now) };
  };
  return { clock, device, open };
}

/** changed returns a promise of the next change by another tab. */
const changed = (session) => new Promise((resolve) => {
  session.follow(() => resolve('joined'), () => resolve('left'));
});

test('a new tab is signed in where another one is', async (t) => {
  const { device, open } = browser(t);
  const first = open().session;
  assert.equal(await first.join(), false);
  first.begin('plt_1', TOKEN, false);
  const second = open().session;
  assert.equal(await second.join(), true);
  assert.equal(second.secret(), 'plt_1');
  assert.deepEqual(second.token(), TOKEN);
  assert.equal(device.items.size, 0);
});

test('a sign-in reaches the tabs that wait, and not those of another store', async (t) => {
  const { open } = browser(t);
  const [one, other, elsewhere] = [open().session, open().session, open(storage(), '/v2').session];
  const joined = changed(other);
  one.begin('plt_1', TOKEN, true);
  assert.equal(await joined, 'joined');
  assert.equal(other.secret(), 'plt_1');
  assert.equal(await elsewhere.join(), false);
  assert.equal(await open(storage(), '/v2').session.join(), false);
});

test('signing out signs out every tab, and the device forgets the token', async (t) => {
  const { device, open } = browser(t);
  const one = open().session;
  one.begin('plt_1', TOKEN, true);
  const [other, asleep] = [open(), open()];
  assert.equal(other.session.secret(), 'plt_1');
  const left = changed(other.session);
  one.end();
  assert.equal(await left, 'left');
  assert.equal(other.session.secret(), '');
  assert.equal(await open().session.join(), false);
  assert.ok(!JSON.stringify([...device.items]).includes('plt_'));

  // A tab that the browser had put to sleep still has its storage, and is loaded again.
  asleep.tab.setItem('/v1', JSON.stringify({ secret: 'plt_1', token: TOKEN, since: Date.parse('2026-11-18T08:00:00Z') }));
  assert.equal(open(asleep.tab).session.secret(), '');
  one.begin('plt_2', TOKEN, false);
  assert.equal(one.secret(), 'plt_2');
});

test('the device keeps a token for 30 days, or until it expires', (t) => {
  const { clock, open } = browser(t);
  open().session.begin('plt_1', TOKEN, true);
  clock.now += 30 * DAY - 1;
  assert.equal(open().session.secret(), 'plt_1');
  clock.now += 1;
  assert.equal(open().session.secret(), '');

  open().session.begin('plt_2', { ...TOKEN, expires: new Date(clock.now + DAY).toISOString() }, true);
  clock.now += DAY - 1;
  assert.equal(open().session.secret(), 'plt_2');
  clock.now += 1;
  assert.equal(open().session.secret(), '');
});

test('a token that is refused is no longer kept, and no other tab brings it back', async (t) => {
  const { open } = browser(t);
  const one = open().session;
  one.begin('plt_1', TOKEN, true);
  const other = open().session;
  other.refuse();
  assert.equal(other.secret(), '');
  assert.equal(await other.join(), false);
  one.refuse();
  assert.equal(open().session.secret(), '');

  one.begin('plt_2', TOKEN, true);
  const third = open();
  one.begin('plt_3', TOKEN, true);
  third.session.refuse(); // plt_2
  assert.equal(open().session.secret(), 'plt_3');
});

test('what is no sign-in signs nobody in, and is no obstacle', async (t) => {
  const broken = ['{"secret":"plt_1","since":1}', '{"secret":1,"token":{"scopes":[]},"since":1}'];
  for (const text of ['', '{', '5', '"plt_1"', '[]', '{}', ...broken]) {
    const { device, open } = browser(t);
    device.setItem('/v1', text);
    const { tab, session } = open();
    assert.equal(session.secret(), '', text);
    assert.equal(device.items.size, 0, text);
    tab.setItem('/v1', text);
    assert.deepEqual(session.token().scopes, [], text);
    assert.equal(await session.join(), false, text);
    session.begin('plt_1', TOKEN, true);
    assert.equal(session.secret(), 'plt_1', text);
  }
});

test('a message that is no sign-in is ignored', async (t) => {
  const { open } = browser(t);
  const { tab, session } = open();
  const forger = new BroadcastChannel(`${runs} /v1`);
  t.after(() => forger.close());
  const joined = changed(session);
  for (const message of [null, 5, 'x', {}, { secret: 'plt_1', since: 1 }, { secret: 'plt_1', token: TOKEN, since: Infinity }]) {
    forger.postMessage(message);
  }
  forger.postMessage({ secret: 'plt_2', token: TOKEN, since: 1 });
  assert.equal(await joined, 'joined');
  assert.equal(JSON.parse(tab.getItem('/v1')).secret, 'plt_2');
});

test('a sign-out with a clock that was ahead does not prolong what the device keeps', (t) => {
  const { clock, device, open } = browser(t);
  const { session } = open();
  clock.now += 365 * DAY;
  session.end();
  clock.now -= 365 * DAY;
  session.begin('plt_1', TOKEN, true);
  assert.equal(session.secret(), 'plt_1');
  assert.equal(JSON.parse(device.getItem('/v1')).until, clock.now + 30 * DAY);
});
