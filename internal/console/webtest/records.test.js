import assert from 'node:assert/strict';
import process from 'node:process';
import { test } from 'node:test';

import { FileProblem, failedFile, failedRecord, openFile } from '../web/records.js';

const MAX = 16 * 1024 * 1024;

/**
 * file is a File whose stream has chunks of the given size.
 * @param {string} name
 * @param {string | Uint8Array} content
 */
function file(name, content, chunk = 64 * 1024) {
  const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
  let at = 0;
  return {
    name,
    stream: () => new ReadableStream({
      pull(controller) {
        if (at >= bytes.length) {
          controller.close();
          return;
        }
        controller.enqueue(bytes.slice(at, at + chunk));
        at += chunk;
      },
    }),
  };
}

/** read returns all records as "line:json" or "line!problem". */
async function read(name, content, chunk) {
  const { records } = await openFile(file(name, content, chunk));
  const all = [];
  for await (const { line, json, problem } of records) {
    all.push(problem ? `${line}!${problem}` : `${line}:${json}`);
  }
  return all;
}

const latin = (text) => Uint8Array.from(text, (c) => c.charCodeAt(0));

const cases = {
  'lines': ['a.ndjson', '{"id":1}\n\n  {"id":2}\r\n{"id":3', ['1:{"id":1}', '3:{"id":2}', '4:{"id":3']],
  'lines that are not JSON are left to the server': ['a.jsonl', 'x\n{"id":1}\n', ['1:x', '2:{"id":1}']],
  'lines with a byte order mark': ['a.ndjson', '\uFEFF{"id":1}\n', ['1:{"id":1}']],
  'lines in a file named json': ['a.json', '{"id":1}\n{"id":2}\n', ['1:{"id":1}', '2:{"id":2}']],
  'a line that is not UTF-8': ['a.ndjson', latin('{"id":1,"name":"\xff"}\n{"id":2}'), ['1!the line is not valid UTF-8', '2:{"id":2}']],
  'line separators within a line': ['a.ndjson', '{"id":1,"name":"\u2028\u0085"}', ['1:{"id":1,"name":"\u2028\u0085"}']],
  'an array': ['a.json', ' [ {"id": 1, "name": "a b"},\n 5 ,[ ] ] \n', ['1:{"id": 1, "name": "a b"}', '2:5', '3:[ ]']],
  'an array of many lines': ['a.json', '[\n  {\n    "id": 9007199254740993,\r\n    "name": "a\\n  ]},[{ b"\n  },\n  {"id": -9223372036854775808}\n]\n', ['1:{"id": 9007199254740993,"name": "a\\n  ]},[{ b"}', '2:{"id": -9223372036854775808}']],
  'an array in a file of another name': ['a.txt', '\uFEFF[{"id":1},{"id":2}]', ['1:{"id":1}', '2:{"id":2}']],
  'an array whose elements only the server validates': ['a.json', '[{"id":1,"id":2},{"id":9007199254740993.0}]', ['1:{"id":1,"id":2}', '2:{"id":9007199254740993.0}']],
  'an element that is not UTF-8': ['a.json', latin('[{"name":"\xff"},{"id":2}]'), ['1!the element is not valid UTF-8', '2:{"id":2}']],
  'an empty array': ['a.json', ' [ ] ', []],
  'quotes in an array': ['a.json', '["\\"]\\\\",{"a\\\\":"[{"}]', ['1:"\\"]\\\\"', '2:{"a\\\\":"[{"}']],
  'a table': ['a.csv', 'id,name,tag\n1,Oak,tree\n-2, Elm ,\n', ['2:{"id":1,"name":"Oak","tag":"tree"}', '3:{"id":-2,"name":" Elm "}']],
  'a table from a spreadsheet': ['a.csv', '\uFEFFTag;x,Name , ID\r\na,Oak,7\r\n', ['2:{"id":7,"name":"Oak"}']],
  'a table in a file of another name': ['a.txt', 'name,id\nOak,9223372036854775807', ['2:{"id":9223372036854775807,"name":"Oak"}']],
  'a table without records': ['a.csv', 'id,name', []],
  'quotes': ['a.csv', 'id,name,tag\n1,"a,""b""\r\nc",""\n2,,"x"\n', ['2:{"id":1,"name":"a,\\"b\\"\\r\\nc","tag":""}', '4:{"id":2,"name":"","tag":"x"}']],
  'an invalid id is left to the server': ['a.csv', 'id,name\nsix,a\n1e2,b\n,c\n007,d\n', ['2:{"id":"six","name":"a"}', '3:{"id":1e2,"name":"b"}', '4:{"id":"","name":"c"}', '5:{"id":"007","name":"d"}']],
  'records that cannot be sent': ['a.csv', latin('id,name\n1\n2,"a"b\n3,\xff\n\n4,ok\n5,a"b"\n6,"open\n7,in it'), [
    '2!the record has 1 fields, but the header has 2',
    '3!unexpected text after a closing quote',
    '4!the record is not valid UTF-8',
    '6:{"id":4,"name":"ok"}',
    '7!a quote in an unquoted field: quote the field and double the quote',
    '8!unclosed quote',
  ]],
  'a table of failed records': ['a.csv', 'error,id,name\n"line 2: ""id"", taken",1,Oak\n,2,Elm\n', ['2:{"id":1,"name":"Oak"}', '3:{"id":2,"name":"Elm"}']],
  'U+0000': ['a.csv', 'id,name\n1,\0\n', ['2:{"id":1,"name":"\\u0000"}']],
};
for (const [name, [fileName, content, want]] of Object.entries(cases)) {
  test(`records: ${name}`, async () => {
    for (const chunk of [1, 2, 3, 7, 64 * 1024]) {
      assert.deepEqual(await read(fileName, content, chunk), want, `in chunks of ${chunk}`);
    }
  });
}

const refused = {
  'an empty file': ['a.ndjson', '', 'a.ndjson is empty.'],
  'a blank file': ['a.csv', '\uFEFF \r\n', 'a.csv is empty.'],
  'a PNG': ['photo.png', latin('\x89PNG\r\n\x1a\n\0\0\0\rIHDR'), 'photo.png is not a text file: choose a file of plants as NDJSON, JSON or CSV.'],
  'a JPEG named like a table': ['a.csv', latin('\xff\xd8\xff\xe0\0\x10JFIF'), 'a.csv is not a text file: choose a file of plants as NDJSON, JSON or CSV.'],
  'a GIF named like lines': ['a.ndjson', latin('GIF89a\x01\0\x01\0'), 'a.ndjson is not a text file: choose a file of plants as NDJSON, JSON or CSV.'],
  'a spreadsheet': ['a.xlsx', latin('PK\x03\x04\x14\0'), 'a.xlsx is not a text file: choose a file of plants as NDJSON, JSON or CSV.'],
  'a drawing': ['a.svg', '<svg/>', 'a.svg does not look like plants: choose a file with one JSON object per line, a JSON array, or CSV whose header names the columns id and name.'],
  'an object of many lines': ['a.json', '{\n  "id": 1\n}\n', 'a.json must be a JSON array of plants, or have one plant per line.'],
  'a table without the columns': ['a.csv', 'a,b\n1,2\n', 'The header must name the columns id and name, and may name tag, got "a,b".'],
  'a header with an open quote': ['a.csv', 'id,"name\n1,2\n', 'Malformed header: unclosed quote.'],
};
for (const [name, [fileName, content, message]] of Object.entries(refused)) {
  test(`refused: ${name}`, async () => {
    await assert.rejects(openFile(file(fileName, content)), (err) => err instanceof FileProblem && err.message === message);
  });
}

test('a broken array ends the import where it is broken', async () => {
  for (const [content, good, message] of [
    ['[{"id":1},', 1, /^Element 2 is not JSON: the file ends too early\.$/],
    ['[{"id":1},{"id":2', 1, /^Element 2 is not JSON: the file ends too early\.$/],
    ['[{"id":1}] 5', 1, /^Unexpected data after the JSON array\.$/],
    ['[{"id":1},]', 1, /^Element 2 is not JSON: /],
    ['[{"id":1},{"id":01}]', 1, /^Element 2 is not JSON: /],
    ['[{"id":1} {"id":2}]', 0, /^Element 1 is not JSON: /],
    ['[', 0, /^Element 1 is not JSON: /],
  ]) {
    const { records } = await openFile(file('a.json', content));
    let read = 0;
    await assert.rejects(async () => {
      for await (const record of records) {
        read += record.line > 0 ? 1 : 0;
      }
    }, (err) => err instanceof FileProblem && message.test(err.message), content);
    assert.equal(read, good, content);
  }
});

test('a record that is too long is skipped', async () => {
  const long = 'x'.repeat(MAX + 1);
  assert.deepEqual(await read('a.ndjson', `${long}\n{"id":2}\n`), [`1!the line is longer than ${MAX} bytes`, '2:{"id":2}']);
  assert.deepEqual(await read('a.csv', `id,name\n1,${long}\n2,b\n`), [`2!the record is longer than ${MAX} bytes`, '3:{"id":2,"name":"b"}']);
  assert.deepEqual(await read('a.json', `["${long}",2]`), [`1!the element is longer than ${MAX} bytes`, '2:2']);
});

test('memory does not grow with the file', async () => {
  const chunk = new TextEncoder().encode('{"id":1,"name":"Monstera deliciosa"}\n'.repeat(2000));
  let left = 400; // 30 MB
  const stream = () => new ReadableStream({
    pull(controller) {
      left--;
      if (left < 0) {
        controller.close();
      } else {
        controller.enqueue(chunk.slice());
      }
    },
  }, { highWaterMark: 0 });
  const { records, read: bytes } = await openFile({ name: 'a.ndjson', stream });
  const before = process.memoryUsage().arrayBuffers;
  let peak = 0;
  let count = 0;
  for await (const { line } of records) {
    count = line;
    if (line % 100_000 === 0) {
      peak = Math.max(peak, process.memoryUsage().arrayBuffers - before);
    }
  }
  assert.equal(count, 800_000);
  assert.equal(bytes(), 400 * chunk.length);
  assert.ok(peak < 16e6, `${peak} bytes`);
});

test('a file that is no longer wanted is closed', async () => {
  let cancelled = false;
  const stream = () => new ReadableStream({
    pull: (controller) => controller.enqueue(new TextEncoder().encode('{"id":1}\n')),
    cancel() {
      cancelled = true;
    },
  });
  const { records } = await openFile({ name: 'a.ndjson', stream });
  for await (const { line } of records) {
    if (line === 3) {
      break;
    }
  }
  assert.ok(cancelled);
});

test('unknown columns are named', async () => {
  const { ignored, noun, format } = await openFile(file('a.csv', 'id,Colour,name,"a ""b"""\n'));
  assert.deepEqual({ ignored, noun, format }, { ignored: ['"Colour"', String.raw`"a \"b\""`], noun: 'line', format: 'csv' });
});

test('failed records keep their text and get a reason', () => {
  for (const [format, source, want] of [
    ['ndjson', '{"id":9007199254740993,"name":"a, \\"b"}', '{"error":"line 1: no","id":9007199254740993,"name":"a, \\"b"}'],
    ['ndjson', '{ "error" : "line 7: old", "id": 1, "x": {"error": [1, 2]} }', '{"error":"line 1: no", "id": 1, "x": {"error": [1, 2]} }'],
    ['ndjson', '{}', '{"error":"line 1: no"}'],
    ['ndjson', '[1,9007199254740993]', '{"error":"line 1: no","source":[1,9007199254740993]}'],
    ['ndjson', 'not "JSON', '{"error":"line 1: no","source":"not \\"JSON"}'],
    ['ndjson', null, '{"error":"line 1: no"}'],
    ['csv', '1,"Oak"', 'line 1: no,1,"Oak"'],
    ['csv', null, 'line 1: no'],
  ]) {
    assert.equal(failedRecord(format, source, 'line 1: no'), want);
  }
  assert.equal(failedRecord('csv', '1,a', 'a "b", c'), '"a ""b"", c",1,a');
});

test('a file of failed records can be imported again', async () => {
  for (const [name, content] of [
    ['a.csv', 'id,name\n1,"a,""b"\n2,c\n'],
    ['a.json', '[{"id":1,"name":"a"},\n{"id":2}]'],
    ['a.ndjson', '{"id":1,"name":"a"}\n{"id":2}\n'],
  ]) {
    const opened = await openFile(file(name, content));
    const failed = [];
    const want = [];
    for await (const { json, source, line } of opened.records) {
      want.push(JSON.parse(json));
      failed.push(failedRecord(opened.format, source, `${opened.noun} ${line}: "no", again`));
    }
    const again = await read(name, failedFile(opened, failed).join(''));
    assert.deepEqual(again.map((text) => {
      const { error, ...plant } = JSON.parse(text.slice(text.indexOf(':') + 1));
      assert.ok(name === 'a.csv' || error.startsWith(opened.noun));
      return plant;
    }), want);
  }
});
