import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import process from 'node:process';
import { test } from 'node:test';

import { ignored } from '../web/csv.js';
import { sentence } from '../web/format.js';
import { refusal } from '../web/json.js';
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
const utf16 = (text, first = 0) => Uint8Array.from(text.split('').flatMap((c) => {
  const bytes = [c.charCodeAt(0) & 0xff, c.charCodeAt(0) >> 8];
  return [bytes[first], bytes[1 - first]];
}));
const encodings = { 'latin1': latin, 'utf-16le': utf16, 'utf-16be': (text) => utf16(text, 1) };

// The tests of the command read these cases, too, so that both read a file the same way.
const shared = JSON.parse(readFileSync(new URL('../../plantfile/testdata/files.json', import.meta.url), 'utf8'));
for (const { name, text, encoding, records, ignored: unused = [], refused: message } of shared.tables) {
  test(`as the command: ${name}`, async () => {
    const content = encoding ? encodings[encoding](text) : text;
    if (message) {
      await assert.rejects(openFile(file('a.csv', content)), (err) => err instanceof FileProblem && err.message === sentence(message));
      return;
    }
    for (const chunk of [1, 2, 3, 7, 64 * 1024]) {
      assert.deepEqual(await read('a.csv', content, chunk), records, `in chunks of ${chunk}`);
    }
    const { table } = await openFile(file('a.csv', content));
    assert.deepEqual(ignored(table), unused);
  });
}
for (const { json, problem } of shared.plants) {
  test(`refusal: ${json}`, () => assert.equal(refusal(json), problem));
}

test('columns are mapped by hand where the headings are not ours', async () => {
  for (const [content, columns, want] of [
    ['Nr;Bezeichnung;Gruppe\n1;Oak;tree\n', { id: 0, name: 1, tag: 2 }, '2:{"id":1,"name":"Oak","tag":"tree"}'],
    ['Plant name,Soil,Plant ID\nOak,loam,1\n', { id: 2, name: 0, tag: -1 }, '2:{"id":1,"name":"Oak"}'],
    ['error\ta\tb\nwhy\t1\tOak\n', { id: 1, name: 2, tag: -1 }, '2:{"id":1,"name":"Oak"}'],
    ['ID;Pflanze\n1;Oak\n', { id: 0, name: 1, tag: -1 }, '2:{"id":1,"name":"Oak"}'],
    ['id,name,id\n1,Oak,2\n', { id: 0, name: 1, tag: -1 }, '2:{"id":1,"name":"Oak"}'],
  ]) {
    const { table } = await openFile(file('a.csv', content));
    assert.ok(table.problem, content);
    assert.deepEqual(table.columns, columns, content);
    assert.deepEqual(await read('a.csv', content), [want]);
  }
  const opened = await openFile(file('a.csv', 'id,name,kind\n1,Oak,tree\n'), { id: 0, name: 2, tag: 1 });
  assert.deepEqual(ignored(opened.table), []);
  const { value } = await opened.records.next();
  assert.equal(value.json, '{"id":1,"name":"tree","tag":"Oak"}');
});

const cases = {
  'lines': ['a.ndjson', '{"id":1}\n\n  {"id":2}\r\n{"id":3', ['1:{"id":1}', '3:{"id":2}', '4:{"id":3']],
  'lines that are not JSON are left to the server': ['a.jsonl', 'x\n{"id":1}\n', ['1:x', '2:{"id":1}']],
  'lines with a byte order mark': ['a.ndjson', '\uFEFF{"id":1}\n', ['1:{"id":1}']],
  'lines in a file named json': ['a.json', '{"id":1}\n{"id":2}\n', ['1:{"id":1}', '2:{"id":2}']],
  'a line that is not UTF-8': ['a.ndjson', latin('{"id":1,"name":"\xff"}\n{"id":2}'), ['1!the line is not valid UTF-8', '2:{"id":2}']],
  'line separators within a line': ['a.ndjson', '{"id":1,"name":"\u2028\u0085"}', ['1:{"id":1,"name":"\u2028\u0085"}']],
  'an array': ['a.json', ' [ {"id": 1, "name": "a b"},\n 5 ,[ ] ] \n', ['1:{"id": 1, "name": "a b"}', '2:5', '3:[ ]']],
  'an array of many lines': [
    'a.json',
    '[\n  {\n    "id": 9007199254740993,\r\n    "name": "a\\n  ]},[{ b"\n  },\n  {"id": -9223372036854775808}\n]\n',
    ['1:{"id": 9007199254740993,"name": "a\\n  ]},[{ b"}', '2:{"id": -9223372036854775808}'],
  ],
  'an array in a file of another name': ['a.txt', '\uFEFF[{"id":1},{"id":2}]', ['1:{"id":1}', '2:{"id":2}']],
  'an array whose elements only the server validates': [
    'a.json', '[{"id":1,"id":2},{"id":9007199254740993.0}]', ['1:{"id":1,"id":2}', '2:{"id":9007199254740993.0}'],
  ],
  'an element that is not UTF-8': ['a.json', latin('[{"name":"\xff"},{"id":2}]'), ['1!the element is not valid UTF-8', '2:{"id":2}']],
  'an empty array': ['a.json', ' [ ] ', []],
  'quotes in an array': ['a.json', '["\\"]\\\\",{"a\\\\":"[{"}]', ['1:"\\"]\\\\"', '2:{"a\\\\":"[{"}']],
  'a table in a file of another name': ['a.txt', 'name,id\nOak,9223372036854775807', ['2:{"id":9223372036854775807,"name":"Oak"}']],
  'a table with semicolons in a file of another name': ['a.txt', 'name;id\nOak;1', ['2:{"id":1,"name":"Oak"}']],
  'a table with a separator line in a file of another name': ['a.txt', 'sep=|\r\nname|id\r\nOak|1', ['3:{"id":1,"name":"Oak"}']],
  'a table whose first field looks like JSON': ['a.tsv', '[x]\tid\tname\n{\t1\tOak', ['2:{"id":1,"name":"Oak"}']],
  'lines in UTF-16': ['a.ndjson', utf16('\uFEFF{"id":1,"name":"Ö🌱"}\r\n'), ['1:{"id":1,"name":"Ö🌱"}']],
  'an array in UTF-16': ['a.json', utf16('\uFEFF[{"id":1},\n{"id":2}]'), ['1:{"id":1}', '2:{"id":2}']],
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
  'a PNG': [
    'photo.png', latin('\x89PNG\r\n\x1a\n\0\0\0\rIHDR'),
    'photo.png is not a text file: choose a file of plants as NDJSON, JSON or CSV.',
  ],
  'a JPEG named like a table': [
    'a.csv', latin('\xff\xd8\xff\xe0\0\x10JFIF'),
    'a.csv is not a text file: choose a file of plants as NDJSON, JSON or CSV.',
  ],
  'a GIF named like lines': [
    'a.ndjson', latin('GIF89a\x01\0\x01\0'),
    'a.ndjson is not a text file: choose a file of plants as NDJSON, JSON or CSV.',
  ],
  'a spreadsheet': ['a.xlsx', latin('PK\x03\x04\x14\0'), 'a.xlsx is not a text file: choose a file of plants as NDJSON, JSON or CSV.'],
  'a drawing': [
    'a.svg', '<svg/>',
    'a.svg does not look like plants: choose a file with one JSON object per line, a JSON array, '
      + 'or CSV whose header names the columns id and name.',
  ],
  'an object of many lines': ['a.json', '{\n  "id": 1\n}\n', 'a.json must be a JSON array of plants, or have one plant per line.'],
  'a table of one column': [
    'a.csv', 'id|name\n1|Oak\n',
    'The header must name the columns id and name, and may name tag; with the separator comma it has "id|name"; '
      + 'for another separator, put a line such as sep=| before the header.',
  ],
  'a separator line and nothing else': [
    'a.csv', 'sep=;',
    'The header must name the columns id and name, and may name tag; with the separator semicolon it has "".',
  ],
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
  const chunk = new TextEncoder().encode(`{"id":1,"name":"${'x'.repeat(980)}"}\n`.repeat(75));
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
    if (line % 1000 === 0) {
      peak = Math.max(peak, process.memoryUsage().arrayBuffers - before);
    }
  }
  assert.equal(count, 30_000);
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
  const { table, noun, format } = await openFile(file('a.csv', 'id,Colour,name,"a ""b"""\n'));
  const want = { ignored: ['"Colour"', String.raw`"a \"b\""`], noun: 'line', format: 'csv' };
  assert.deepEqual({ ignored: ignored(table), noun, format }, want);
});

test('failed records keep their text and get a reason', () => {
  for (const [source, want] of [
    ['{"id":9007199254740993,"name":"a, \\"b"}', '{"error":"line 1: no","id":9007199254740993,"name":"a, \\"b"}'],
    ['{ "error" : "line 7: old", "id": 1, "x": {"error": [1, 2]} }', '{"error":"line 1: no", "id": 1, "x": {"error": [1, 2]} }'],
    ['{}', '{"error":"line 1: no"}'],
    ['[1,9007199254740993]', '{"error":"line 1: no","source":[1,9007199254740993]}'],
    ['not "JSON', '{"error":"line 1: no","source":"not \\"JSON"}'],
    [null, '{"error":"line 1: no"}'],
  ]) {
    assert.equal(failedRecord({}, source, 'line 1: no'), want);
  }
  const table = { separator: ';' };
  assert.equal(failedRecord({ table }, '1;"Oak"', 'a "b"; c'), '"a ""b""; c";1;"Oak"');
  assert.equal(failedRecord({ table }, null, 'no'), '"no"');
});

test('a file of failed records can be imported again', async () => {
  for (const [name, content] of [
    ['a.csv', 'id,name\n1,"a,""b"\n2,c\n'],
    ['a.csv', '\uFEFFid;name\r\n1;"a;""b"\r\n2;c\r\n'],
    ['a.csv', 'sep=|\nid|name\n1|"a|""b"\n2|c\n'],
    ['a.json', '[{"id":1,"name":"a"},\n{"id":2}]'],
    ['a.ndjson', '{"id":1,"name":"a"}\n{"id":2}\n'],
  ]) {
    const opened = await openFile(file(name, content));
    const failed = [];
    const want = [];
    for await (const { json, source, line } of opened.records) {
      want.push(JSON.parse(json));
      failed.push(failedRecord(opened, source, `${opened.noun} ${line}: "no", again`));
    }
    const again = await read(name, failedFile(opened, failed).join(''));
    assert.deepEqual(again.map((text) => {
      const { error, ...plant } = JSON.parse(text.slice(text.indexOf(':') + 1));
      assert.ok(name === 'a.csv' || error.startsWith(opened.noun));
      return plant;
    }), want);
  }
});
