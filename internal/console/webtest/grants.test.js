import assert from 'node:assert/strict';
import { test } from 'node:test';

import { isOver, landing, lifetimes, menu, ordered, presets } from '../web/grants.js';

const NOW = Date.parse('2026-11-16T05:00:00.123Z');

test('a token that never expires can give any lifetime', () => {
  assert.deepEqual(lifetimes(null, NOW), [
    { label: '7 days', expires: '2026-11-23T05:00:00Z', usual: false },
    { label: '30 days', expires: '2026-12-16T05:00:00Z', usual: false },
    { label: '90 days', expires: '2027-02-14T05:00:00Z', usual: true },
    { label: '1 year', expires: '2027-11-16T05:00:00Z', usual: false },
    { label: 'Never', expires: null, usual: false },
  ]);
});

test('nobody can give a lifetime longer than their own', () => {
  const own = '2026-12-01T00:00:00Z';
  assert.deepEqual(lifetimes(own, NOW), [
    { label: '7 days', expires: '2026-11-23T05:00:00Z', usual: false },
    { label: 'When my token expires', expires: own, usual: true },
  ]);
});

test('a token is over when it is revoked or has expired', () => {
  assert.equal(isOver({ expires: null }, NOW), false);
  assert.equal(isOver({ expires: '2026-11-16T05:00:01Z' }, NOW), false);
  assert.equal(isOver({ expires: '2026-11-16T05:00:00Z' }, NOW), true);
  assert.equal(isOver({ expires: null, revoked: '2026-01-01T00:00:00Z' }, NOW), true);
});

test('the menu has what the token may use', () => {
  const names = (...scopes) => menu(scopes).map(({ name }) => name).join();
  assert.equal(names('plants:write'), 'plants,overview');
  assert.equal(names('tokens:read'), 'overview,tokens');
  assert.equal(names('webhooks:read', 'plants:read'), 'plants,overview,webhooks');
  assert.equal(names(), 'overview');
});

test('a token begins with the first page that it can read', () => {
  assert.equal(landing(['tokens:read', 'plants:read']), 'plants');
  assert.equal(landing(['plants:write']), 'overview');
  assert.equal(landing(['events:read']), 'overview');
  assert.equal(landing([]), 'overview');
});

test('presets are those that the token can give, and reading comes first', () => {
  const names = (...scopes) => presets(scopes).map(([name]) => name).join();
  assert.equal(names('plants:read'), 'Read only');
  assert.equal(names('plants:write', 'plants:read', 'events:read'), 'Read only,Read and write,Follower');
  assert.equal(names('tokens:write'), '');
  assert.equal(ordered(['new:scope', 'ops:read', 'plants:write', 'plants:read']).join(), 'plants:read,plants:write,ops:read,new:scope');
});
