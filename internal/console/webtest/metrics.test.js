import assert from 'node:assert/strict';
import test from 'node:test';

import { percentile, rates, sample } from '../web/metrics.js';

const BEFORE = `# HELP plantstore_commit_batch_size Writes that were committed together.
plantstore_commit_batch_size_sum 10
plantstore_commit_duration_seconds_sum 1
plantstore_commit_duration_seconds_count 5
plantstore_http_requests_total{operation="createPlant",status="200"} 8
plantstore_http_requests_total{operation="replacePlant",status="200"} 2
`;
const AFTER = `plantstore_commit_batch_size_sum 10030
plantstore_commit_duration_seconds_sum 1.5
plantstore_commit_duration_seconds_count 15
plantstore_http_requests_total{operation="createPlant",status="200"} 18
plantstore_http_requests_total{operation="createPlant",status="400"} 7
plantstore_http_requests_total{operation="createPlant",status="503"} 3
plantstore_http_requests_total{operation="listEvents",status="500"} 1
plantstore_http_requests_total{operation="replacePlant",status="200"} 12
plantstore_http_requests_total{operation="deletePlant",status="204"} 10
`;

test('rates are those between two samples', () => {
  assert.deepEqual(rates(sample(BEFORE, 1000), sample(AFTER, 3000)), { creates: 5000, errors: 2, commit: 50 });
});

test('a server that has started again has no negative rates', () => {
  assert.deepEqual(rates(sample(AFTER, 1000), sample(BEFORE, 3000)), { creates: 0, errors: 0, commit: null });
});

// histogram returns metrics in which so many requests of an operation took at most 1 ms, 2 ms
// and any time.
const LIMITS = ['0.001', '0.002', '+Inf'];
const histogram = (...operations) => sample(operations.map(([operation, ...counts]) => LIMITS.map(
  (le, i) => `plantstore_http_request_duration_seconds_bucket{operation="${operation}",le="${le}"} ${counts[i]}\n`,
).join('')).join(''), 0);

test('a percentile is read from the histogram of all operations', () => {
  const none = histogram();
  assert.equal(percentile(none, none, 0.99), null);
  assert.equal(percentile(none, histogram(['getPlant', 100, 100, 100]), 0.5), 0.5);
  assert.equal(percentile(none, histogram(['getPlant', 50, 50, 50], ['createPlant', 0, 50, 50]), 0.75), 1.5);
  assert.equal(percentile(none, histogram(['getPlant', 0, 0, 5]), 0.99), 2);
});

test('a percentile counts only what was served in between, and no streams', () => {
  const before = histogram(['getPlant', 0, 0, 1000], ['listEvents', 0, 0, 0]);
  const after = histogram(['getPlant', 10, 10, 1010], ['listEvents', 0, 0, 50]);
  assert.equal(percentile(before, after, 1), 1);
  assert.equal(percentile(after, before, 1), null);
});
