import assert from 'node:assert/strict';
import { test } from 'node:test';

import { alarm, alarming, condition, pace, tally, waiting } from '../web/deliveries.js';

const NOW = Date.parse('2026-11-18T12:00:00Z');
const failing = (id, minutes) => ({
  id,
  state: 'active',
  health: 'failing',
  failing: { since: new Date(NOW - minutes * 60_000).toISOString(), attempts: '3', error: 'the endpoint responded 500' },
});

test('the condition is the health in words', () => {
  assert.equal(condition(failing('a', 0)), 'failing');
  assert.equal(condition({ health: 'catching_up' }), 'catching up');
});

test('a webhook needs attention after 5 minutes, unless that was dismissed', () => {
  const ids = (all, dismissed = []) => alarming(all, NOW, dismissed).map(({ id }) => id).join();
  const old = failing('old', 5);
  const off = { id: 'off', health: 'disabled', reason: 'it is gone' };
  assert.equal(ids([{ id: 'fine', health: 'healthy' }, failing('new', 4.9), old, off]), 'old,off');
  assert.equal(ids([{ ...old, health: 'paused' }]), '');
  assert.equal(ids([old, off], [alarm(old), alarm(off)]), '');
  assert.equal(ids([failing('old', 60)], [alarm(old)]), 'old'); // it fails since another time
  assert.equal(ids([{ ...off, reason: 'it refuses' }, { ...old, health: 'disabled' }], [alarm(old), alarm(off)]), 'off,old');
});

test('deliveries are counted over time', () => {
  const at = (seconds, status) => ({ time: new Date(NOW - seconds * 1000).toISOString(), status });
  const all = [at(0, '204'), at(1, '500'), at(99, '0'), at(100, '200')];
  assert.deepEqual(tally(all, 2, NOW), { start: NOW - 100_000, arrived: [1, 1], failed: [1, 1] });
  assert.deepEqual(tally([], 2, NOW), { start: NOW - 1, arrived: [0, 0], failed: [0, 0] });
});

test('a count that ends says so', () => {
  assert.equal(waiting('999'), '999');
  assert.equal(waiting('1000'), '1,000+');
});

test('the number of events or the age of the oldest says when a webhook has caught up', () => {
  const caughtUp = pace();
  const look = (seconds, lag, health = 'catching_up', pending = '1000') => (
    caughtUp({ id: 'a', health, lag_ms: String(lag * 1000), pending }, NOW + seconds * 1000));
  assert.equal(look(0, 600), null); // one look tells nothing
  assert.equal(look(2, 590), null); // nor do two that are close
  assert.equal(look(10, 500), NOW + 60_000); // 10 s of lag a second
  assert.equal(look(20, 600), null); // it is not getting better
  assert.equal(look(90, 300), null); // what was long ago does not count
  assert.equal(look(100, 200), NOW + 120_000);
  assert.equal(look(101, 0, 'healthy'), null);
  assert.equal(look(110, 100), null); // it has started anew
  assert.equal(look(120, 110, 'catching_up', '500'), null);
  assert.equal(look(190, 120, 'catching_up', '400'), null);
  assert.equal(look(200, 130, 'catching_up', '300'), NOW + 230_000); // the events came together
});
