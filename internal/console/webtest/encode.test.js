import assert from 'node:assert/strict';
import { test } from 'node:test';

import { encode } from '../web/encode.js';

const LINES = [
  '{"id":-9223372036854775808,"name":"a, \\"b\\"\\n","tag":""}',
  '{"id":9007199254740993,"name":"=1+1","tag":"@é🌱"}',
  '{"id":9007199254740994,"name":""}',
];

/** written returns the file that is made of NDJSON which arrives in chunks of this size. */
async function written(format, text, chunk) {
  const bytes = new TextEncoder().encode(text);
  let at = 0;
  const stream = new ReadableStream({
    pull(controller) {
      if (at >= bytes.length) {
        controller.close();
        return;
      }
      controller.enqueue(bytes.slice(at, at + chunk));
      at += chunk;
    },
  });
  const file = await new Response(stream.pipeThrough(encode(format))).arrayBuffer();
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(file);
}

test('an export has what the command writes', async () => {
  const all = LINES.map((line) => `${line}\n`).join('');
  const header = 'id,name,tag\n';
  for (const [format, want, none] of [
    ['ndjson', all, ''],
    ['json', `[\n${LINES.join(',\n')}\n]\n`, '[]\n'],
    ['csv', `${header}-9223372036854775808,"a, ""b""\n",""\n9007199254740993,=1+1,@é🌱\n9007199254740994,,\n`, header],
    ['spreadsheet',
      `\ufeff${header}-9223372036854775808,"a, ""b""\n",""\n9007199254740993,'=1+1,'@é🌱\n9007199254740994,,\n`, `\ufeff${header}`],
  ]) {
    for (const chunk of [1, 7, 64 * 1024]) {
      assert.equal(await written(format, all, chunk), want, `${format} in chunks of ${chunk}`);
    }
    assert.equal(await written(format, '', 1), none, format);
  }
});

test('an export that is cut off fails', async () => {
  for (const format of ['json', 'csv', 'spreadsheet']) {
    await assert.rejects(written(format, `${LINES[0]}\n${LINES[1].slice(0, 20)}`, 64));
  }
});
