import assert from 'node:assert/strict';
import test from 'node:test';

import { format, parse, wholeNumber } from '../web/state.js';

test('a hash and its state are two forms of the same', () => {
  const hashes = [
    '#/plants', '#/plants/1', '#/plants/new', '#/plants/-9223372036854775808', '#/plants?tag=tropical&q=mon',
    '#/plants?tag=&tag=tree&untagged=true&order=-name&after=7.QmVlY2g',
    '#/plants/9007199254740993?q=%26%3D%25&after=50', '#/activity?type=plant.created&range=1h',
    '#/activity?plant=-7&by=https%3A%2F%2Fid.example+alice', '#/webhooks/a%2Fb',
  ];
  for (const hash of hashes) {
    assert.equal(format(parse(hash)), hash);
  }
  for (const text of ['a & b = c', '100 %', '#?/', 'صبار', '\u0000\r\n', ' x ']) {
    const state = { ...parse(''), q: text, tags: [text, ''] };
    assert.deepEqual(parse(format(state)), state);
  }
});

test('what a hash says wrongly is ignored', () => {
  assert.deepEqual(parse(''), parse('#/plants'));
  assert.equal(parse('#/plants/one').id, '');
  assert.equal(parse('#/plants/9223372036854775808').id, '');
  assert.equal(parse('#/plants?after=x').after, '');
  assert.equal(parse('#/plants?order=tag').order, '');
  assert.deepEqual(parse('#/plants?tag=a&tag=b&tag=a').tags, ['a', 'b']);
  assert.equal(parse('#/activity?plant=x').plant, '');
  assert.equal(parse('#/%E0%A4').page, '%E0%A4');
  assert.equal(parse('#/plants?q=a?b').q, 'a?b');
});

test('ids are exact', () => {
  assert.equal(wholeNumber(' 9007199254740993 '), '9007199254740993');
  assert.equal(wholeNumber('+007'), '7');
  assert.equal(wholeNumber('-9223372036854775808'), '-9223372036854775808');
  for (const text of ['', '-', '1.5', '1e3', '9223372036854775808', '-9223372036854775809', '1 2', '0x10', '9'.repeat(1000)]) {
    assert.equal(wholeNumber(text), '', text);
  }
});
