import assert from 'node:assert/strict';
import { test } from 'node:test';

import { indent, parse, plantJSON } from '../web/json.js';

test('indent keeps every number and string', () => {
  for (const [text, want] of [
    ['[{"id":9007199254740993,"name":"a, {\\"b\\"}: [","tag":""},{"id":-9223372036854775808,"x":[1.50,1e400,true,null,[ ],{}]}]\n', `[
  {
    "id": 9007199254740993,
    "name": "a, {\\"b\\"}: [",
    "tag": ""
  },
  {
    "id": -9223372036854775808,
    "x": [
      1.50,
      1e400,
      true,
      null,
      [],
      {}
    ]
  }
]`],
    ['  9007199254740993', '9007199254740993'],
    ['"a\u2028\\\\"', '"a\u2028\\\\"'],
    ['{}\n', '{}'],
    ['{"id":1}\n{"id":2}\n', '{"id":1}\n{"id":2}\n'],
    ['<html>', '<html>'],
    ['', ''],
  ]) {
    assert.equal(indent(text), want);
  }
});

test('indent is what JSON.stringify gives for safe numbers', () => {
  const value = { a: [1, [2, []], { b: {}, c: { d: 'x:[,]{}"\\' } }], '': null };
  assert.equal(indent(JSON.stringify(value)), JSON.stringify(value, null, 2));
});

test('a plant goes through JSON unchanged', () => {
  for (const id of ['0', '-1', '9007199254740993', '-9007199254740993', '9223372036854775807', '-9223372036854775808']) {
    for (const name of ['', 'Oak', '"12"', '\u0000\r\n\u2028 9007199254740993', '日本']) {
      assert.deepEqual(parse(plantJSON({ id, name, tag: name })), { id, name, tag: name });
      assert.deepEqual(parse(plantJSON({ id, name })), { id, name });
    }
  }
});

test('what is not a number is sent as a text, for the server to refuse', () => {
  assert.equal(plantJSON({ id: 'six', name: '' }), '{"id":"six","name":""}');
  assert.equal(plantJSON({ id: '+007', name: '' }), '{"id":7,"name":""}');
  assert.equal(plantJSON({ id: '1.5', name: '' }), '{"id":1.5,"name":""}');
  assert.equal(plantJSON({ name: '' }), '{"name":""}');
});
