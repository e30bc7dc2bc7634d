import assert from 'node:assert/strict';
import test from 'node:test';

import { share, ticks, totals } from '../web/chart.js';

test('a bar is the sum of its series, and unknown only if all of them are', () => {
  assert.deepEqual(totals([{ class: 'a', values: [1, null, null, 0] }, { class: 'b', values: [2, 3, null, 0] }]), [3, 3, null, 0]);
});

test('a linear scale is proportional', () => {
  assert.equal(share(5, 10), 0.5);
  assert.equal(share(10, 10), 1);
  assert.equal(share(0, 0), 0);
  assert.deepEqual(ticks(1000), []);
});

test('one import does not flatten a logarithmic scale', () => {
  assert.equal(share(500_000, 500_000, 'log'), 1);
  assert.equal(share(0, 500_000, 'log'), 0);
  assert.ok(share(900, 500_000, 'log') > 0.5);
  assert.ok(share(1, 500_000, 'log') > 0.05);
});

test('the lines of a logarithmic scale are powers of ten below the peak, at most three', () => {
  assert.deepEqual(ticks(0, 'log'), []);
  assert.deepEqual(ticks(10, 'log'), []);
  assert.deepEqual(ticks(11, 'log'), [10]);
  assert.deepEqual(ticks(1000, 'log'), [10, 100]);
  assert.deepEqual(ticks(500_000, 'log'), [100, 10_000]);
  assert.deepEqual(ticks(5_000_000, 'log'), [100, 10_000, 1_000_000]);
});
