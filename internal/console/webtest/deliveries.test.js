import assert from 'node:assert/strict';
import { test } from 'node:test';

import { alarm, alarming, condition, day, tally, waiting } from '../web/deliveries.js';

const NOW = Date.parse('2026-11-18T12:00:00Z');
const failing = (id, minutes) => ({
  id,
  state: 'active',
  failing: { since: new Date(NOW - minutes * 60_000).toISOString(), attempts: '3', error: 'the endpoint responded 500' },
});

test('a webhook that fails is not active', () => {
  assert.equal(condition({ state: 'active' }), 'active');
  assert.equal(condition(failing('a', 0)), 'failing');
  assert.equal(condition({ ...failing('a', 9), state: 'disabled' }), 'disabled');
});

test('a webhook needs attention after 5 minutes, unless that was dismissed today', () => {
  const ids = (all, dismissed = {}, now = NOW) => alarming(all, now, dismissed).map(({ id }) => id).join();
  const old = failing('old', 5);
  assert.equal(ids([{ id: 'fine', state: 'active' }, failing('new', 4.9), old, { id: 'off', state: 'disabled' }]), 'old,off');
  const dismissed = { [alarm(old)]: day(NOW) };
  assert.equal(ids([old], dismissed), '');
  assert.equal(ids([old], dismissed, NOW + 86_400_000), 'old');
  assert.equal(ids([failing('old', 60)], dismissed), 'old'); // it fails since another time
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
