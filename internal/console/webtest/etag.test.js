import assert from 'node:assert/strict';
import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { test } from 'node:test';

import { etag } from '../web/etag.js';

test('the ETag is the one that the server derives', () => {
  // The values are those of TestETagNeverChanges.
  assert.equal(etag({ name: 'Monstera', tag: 'tropical' }), '"C_k6PXdL1QteDcVoFnkH"');
  assert.equal(etag({ name: '' }), '"PnB3_S9m1ongzuanz1s3"');
  assert.equal(etag({ name: '', tag: '' }), '"KuHBnAy9N45GySep82EZ"');
});

test('the hash of a text of any length is SHA-256', () => {
  for (let n = 0; n < 200; n++) {
    const name = '日本é'.repeat(n).slice(0, n);
    const head = Buffer.alloc(9);
    head.writeBigUInt64BE(BigInt(Buffer.byteLength(name)));
    const want = createHash('sha256').update(head).update(name).digest().subarray(0, 15).toString('base64url');
    assert.equal(etag({ name }), `"${want}"`);
  }
});
