import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { failedFile, find, ignored, openFile, part, plantOf, records, whole } from '../web/file.js';
import { parse } from '../web/json.js';

const latin = (text) => Uint8Array.from(text, (c) => c.charCodeAt(0));
const utf16 = (text, first = 0) => Uint8Array.from(text.split('').flatMap((c) => {
  const bytes = [c.charCodeAt(0) & 0xff, c.charCodeAt(0) >> 8];
  return [bytes[first], bytes[1 - first]];
}));
const encodings = { 'latin1': latin, 'utf-16le': utf16, 'utf-16be': (text) => utf16(text, 1) };

/** inChunks is the file, but its stream has chunks of this size. */
function inChunks(file, size) {
  file.stream = () => {
    let at = 0;
    return new ReadableStream({
      async pull(controller) {
        const chunk = await file.slice(at, at + size).arrayBuffer();
        at += size;
        return chunk.byteLength > 0 ? controller.enqueue(new Uint8Array(chunk)) : controller.close();
      },
    });
  };
  return file;
}

async function read(name, content, size = 7) {
  const file = inChunks(new File([content], name), size);
  const all = [];
  for await (const { line, text } of records(file, (await openFile(file)).format)) {
    all.push(`${line}:${text}`);
  }
  return all;
}

// The server reads these files with the same result.
const { tables } = JSON.parse(readFileSync(new URL('../../plantfile/testdata/files.json', import.meta.url), 'utf8'));
for (const { name, text, encoding, records: want = [], ignored: unused = [], refused } of tables) {
  test(`as the server reads it: ${name}`, { skip: refused !== undefined && 'it has no records' }, async () => {
    const opened = await openFile(new File([encoding ? encodings[encoding](text) : text], 'a.csv'));
    assert.equal(opened.table.chosen, false);
    assert.deepEqual(ignored(opened.table), unused);
    for (const record of want.filter((one) => !/^\d+!/.test(one))) {
      const [, line, json] = /^(\d+):([^]*)$/.exec(record);
      const found = opened.first.find((one) => one.line === Number(line));
      const { id, name: title = '', tag } = plantOf(opened, found.text);
      const wanted = parse(json);
      assert.deepEqual({ id: (id ?? '').trim(), name: title, tag }, { id: wanted.id, name: wanted.name, tag: wanted.tag });
    }
  });
}

test('a file is recognised, and read in chunks of any size', async () => {
  for (const [name, content, want] of [
    ['a.ndjson', '{"id":1}\n\n  {"id":2}\r\n{"id":"a""', ['1:{"id":1}', '2:', '3:  {"id":2}', '4:{"id":"a""']],
    ['a.jsonl', 'x\n{"id":1}\n', ['1:x', '2:{"id":1}']],
    ['a.json', '\uFEFF{"id":1}\n{"id":2}\n', ['1:{"id":1}', '2:{"id":2}']],
    ['a.json', ' [ {"id": 1, "name": "a b"},\n 5 ,[ ], "]" ] \n', ['1:{"id": 1, "name": "a b"}', '2:5', '3:[ ]', '4:"]"']],
    ['a.txt', '["\\"]\\\\",{"a\\\\":"[{,"}]', ['1:"\\"]\\\\"', '2:{"a\\\\":"[{,"}']],
    ['a.json', ' [ ] ', []],
    ['a.json', '[{"id":1},{"id":2', ['1:{"id":1}']],
    ['a.txt', 'name;id\r\n"a\n""b\r\n";1\r\n\r\nc;2', ['1:name;id', '2:"a\n""b\r\n";1', '5:', '6:c;2']],
    ['a.tsv', '[x]\tid\tname\n{\t1\tOak\n', ['1:[x]\tid\tname', '2:{\t1\tOak']],
    ['a.csv', 'id,name\n1,"open\n2', ['1:id,name', '2:1,"open\n2']],
    ['a.json', utf16('\uFEFF[{"id":1,"name":"Ö🌱"},\n{"id":2}]'), ['1:{"id":1,"name":"Ö🌱"}', '2:{"id":2}']],
    ['a.ndjson', utf16('\uFEFF{"id":1}\n', 1), ['1:{"id":1}']],
  ]) {
    for (const size of [1, 2, 3, 1000]) {
      assert.deepEqual(await read(name, content, size), want, `${name} in chunks of ${size}`);
    }
  }
});

test('what is not a text is refused', async () => {
  for (const [name, content, message] of [
    ['a.csv', '', 'a.csv is empty.'],
    ['a.xlsx', 'PK\x03\x04\x14\0', 'a.xlsx is not a text file. Save a spreadsheet as CSV first.'],
  ]) {
    await assert.rejects(openFile(new File([content], name)), { message });
  }
});

test('columns that the header does not name are guessed, and renamed in what is sent', async () => {
  for (const [content, columns, want] of [
    ['Nr;Bezeichnung;Gruppe;x\n1;Oak;tree;\n', { id: 0, name: 1, tag: 2, if_version: -1, error: -1 }, 'id;name;tag;\n1;Oak;tree;\n'],
    ['Plant name,Soil,Plant ID\r\nOak,loam,1\r\n', { id: 2, name: 0, tag: -1, if_version: -1, error: -1 }, 'name,,id\nOak,loam,1\r\n'],
    ['error\ta\tb\nwhy\t1\tOak\n', { id: 1, name: 2, tag: -1, if_version: -1, error: 0 }, 'error\tid\tname\nwhy\t1\tOak\n'],
    ['id,name,id\n1,Oak,2', { id: 0, name: 1, tag: -1, if_version: -1, error: -1 }, 'id,name,\n1,Oak,2'],
    ['\uFEFFsep=|\nKey|"Big\nName"\n1|Oak\n', { id: 0, name: 1, tag: -1, if_version: -1, error: -1 }, 'sep=|\nid|name\n\n1|Oak\n'],
    ['Nr;Pflanze', { id: 0, name: 1, tag: -1, if_version: -1, error: -1 }, 'id;name\n'],
    [latin('Nr;Gr\xf6\xdfe;Name\n1;5;\xd6l'), { id: 0, name: 2, tag: -1, if_version: -1, error: -1 }, 'id;;name\n1;5;\xd6l'],
    [utf16('\uFEFFNr;Name\n1;Ö'), { id: 0, name: 1, tag: -1, if_version: -1, error: -1 }, 'id;name\n1;\xc3\x96'],
  ]) {
    const opened = await openFile(new File([content], 'a.csv'));
    assert.deepEqual(opened.table.columns, columns);
    const sent = await whole(opened);
    assert.equal(sent.type, 'text/csv');
    assert.deepEqual(new Uint8Array(await sent.arrayBuffer()), latin(want));
  }
});

test('a file whose header is understood is sent as it is', async () => {
  const content = utf16('\uFEFFid;name\n1;Ö');
  const sent = await whole(await openFile(new File([content], 'a.csv')));
  assert.deepEqual(new Uint8Array(await sent.arrayBuffer()), content);
});

test('a part of a file is a file, and knows where it was', async () => {
  for (const [name, content, want, line] of [
    ['a.csv', 'Nr;Name\n1;a\n2;b\n3;c\n', 'sep=;\nid;name\n2;b\n3;c\n', 3],
    ['a.json', '[{"id":1}, {"id":2}, {"id":3}]', '[{"id":2},\n{"id":3}]', 1],
    ['a.ndjson', '{"id":1}\n\n{"id":3}\n', '\n{"id":3}\n', 1],
  ]) {
    const opened = await openFile(new File([content], name));
    const some = opened.first.slice(1);
    const { body, before } = part(opened, some);
    assert.equal(await body.text(), want);
    assert.equal(line + before, some[0].line);
  }
});

test('a file of failed records can be imported again', async () => {
  const reason = 'a "no", again';
  const rows = [{ reason, now: { id: '1', name: 'a,"b', tag: '' } }, { reason, now: { name: '' , if_version: 'x' } }];
  const want = '"a ""no"", again",1,"a,""b","",\n"a ""no"", again",,"",,"x"\n';
  assert.equal(failedFile(rows), `error,id,name,tag,if_version\n${want.replace(',1,', ',"1",')}`);
  assert.equal(failedFile([], '|'), 'sep=|\nerror|id|name|tag|if_version\n');
  const { first, table } = await openFile(new File([failedFile(rows)], 'failed.csv'));
  assert.deepEqual(first.map(({ text }) => plantOf({ table }, text).id), ['1', undefined]);
  assert.equal(table.columns.error, 0);
});

test('what is not a plant is shown nevertheless', async () => {
  const opened = await openFile(new File(['{"id":1\n{"id":9007199254740993,"name":["a"],"tag":null}\nnull\n'], 'a.ndjson'));
  assert.deepEqual(opened.first.map(({ text }) => plantOf(opened, text)), [
    { name: '{"id":1' }, { id: '9007199254740993', name: '["a"]', tag: 'null', if_version: undefined }, { name: 'null' },
  ]);
});

test('records are found, without the header and blank lines', async () => {
  for (const [name, content, want, nameless] of [
    ['a.csv', 'id,name,if_version\n1,a,\n\n2,"",x\n3,"b\nb",\n4\n', ['2:1,a,', '4:2,"",x', '5:3,"b\nb",', '7:4'], [4, 7]],
    ['a.json', '[{"id":1,"name":""},{"id":2},{"name":" "},7]', ['1:{"id":1,"name":""}', '2:{"id":2}', '3:{"name":" "}', '4:7'], [1, 3]],
  ]) {
    const opened = await openFile(new File([content], name));
    for (const all of [true, false]) {
      assert.deepEqual((await find(opened, () => true, all)).map(({ line, text }) => `${line}:${text}`), want);
      const empty = await find(opened, (_, plant) => plant().name?.trim() === '', all);
      assert.deepEqual(empty.map(({ line }) => line), nameless);
    }
  }
});

test('the condition of a record stays with it', async () => {
  const opened = await openFile(new File(['Nr;Name;if_version\n1;a;0hob2g4qwe72\n'], 'a.csv'));
  assert.equal(plantOf(opened, opened.first[0].text).if_version, '0hob2g4qwe72');
  assert.equal(await (await whole(opened)).text(), 'id;name;if_version\n1;a;0hob2g4qwe72\n');
});
