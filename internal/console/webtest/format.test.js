import assert from 'node:assert/strict';
import test from 'node:test';

import {
  ago, count, differences, exact, figure, hasWords, hue, marks, plural, restoreBreaks, sentence, shorten, size, span, time,
} from '../web/format.js';

test('counts, sizes and sentences', () => {
  assert.equal(count(10_000_000), '10,000,000');
  assert.equal(count(9223372036854775807n), '9,223,372,036,854,775,807');
  assert.deepEqual([plural(1, 'plant'), plural(0n, 'plant'), plural(2, 'plant')], ['1 plant', '0 plants', '2 plants']);
  assert.deepEqual([figure(0), figure(0.25), figure(12.3), figure(12_345)], ['0', '0.3', '12', '12.3K']);
  assert.deepEqual([size(999), size(1500), size(2_000_000)], ['999 bytes', '1.50 kB', '2.00 MB']);
  assert.equal(shorten('abc', 2), 'ab…');
  assert.ok(shorten('a\u{1F331}', 2).isWellFormed());
  assert.deepEqual([sentence('it failed'), sentence('why?'), sentence('')], ['It failed.', 'Why?', '.']);
});

test('a name has every word of a search', () => {
  for (const [name, q] of [
    ['Monstera deliciosa', ''], ['Monstera deliciosa', ' deliciosa  MON '], ['\u00d1andubay', 'nandubay'],
    ['n\u0303andubay', '\u00d1A'], ['\u212aiwi', 'kiwi'], ['\u017falvia', 'SALVIA'],
    ['\u1f48\u0394\u03a5\u03a3\u03a3\u0395\u038e\u03a3', '\u03bf\u03b4\u03c5\u03c3\u03c3\u03b5\u03c5\u03c2'],
    ['a.b*[c]\\/', '[C]\\/ .b*'], ['\u304b\u3099', '\u304c'],
  ]) {
    assert.ok(hasWords(name, q), `${q} in ${name}`);
  }
  const different = [
    ['Monstera', 'monstera vera'], ['Monstera', 'm.n'], ['stra\u00dfe', 'strasse'], ['\u304b', '\u304c'], ['\u00f8re', 'ore'],
  ];
  for (const [name, q] of different) {
    assert.ok(!hasWords(name, q), `${q} in ${name}`);
  }
});

test('times are local, name their zone, and are as short as they can be', () => {
  const now = Date.parse('2026-11-16T12:00:00Z');
  assert.equal(time('2026-11-16T08:09:10.123456Z', now, 'UTC', 'en-GB'), '08:09:10 UTC');
  assert.equal(time('2026-11-16T08:09:10Z', now, 'Asia/Tokyo', 'en-GB'), '17:09:10 GMT+9');
  assert.equal(time('2026-11-15T08:09:10Z', now, 'UTC', 'en-GB'), 'yesterday, 08:09:10 UTC');
  assert.equal(time('2026-01-02T08:09:10Z', now, 'UTC', 'en-GB'), '2 Jan, 08:09:10 UTC');
  assert.equal(time('2025-01-02T08:09:10Z', now, 'UTC', 'en-GB'), '2 Jan 2025');
  assert.equal(time('2026-11-15T08:09:10Z', now, 'Europe/Berlin', 'en-GB'), 'yesterday, 09:09:10 CET');
  assert.match(time('2026-11-16T20:09:10Z', now, 'UTC', 'en-US'), /^8:09:10\sPM UTC$/);
});

test('a time is so long ago, and a date before that', () => {
  const now = Date.parse('2026-11-16T12:00:00Z');
  const shown = (seconds) => ago(now - seconds * 1000, now, 'UTC', 'en-GB');
  assert.deepEqual([-9, 0, 9.9].map(shown), ['just now', 'just now', 'just now']);
  assert.deepEqual([10, 59.9, 60, 119].map(shown), ['10 seconds ago', '59 seconds ago', '1 minute ago', '1 minute ago']);
  assert.deepEqual([3600, 86_399, 86_400, 29 * 86_400].map(shown), ['1 hour ago', '23 hours ago', '1 day ago', '29 days ago']);
  assert.deepEqual([30 * 86_400, 365 * 86_400].map(shown), ['17 Oct 2026', '16 Nov 2025']);
  assert.deepEqual([-90, -90 * 86_400].map(shown), ['in 1 minute', '14 Feb 2027']);
  assert.equal(exact('2026-11-16T08:09:10.123456Z', 'Asia/Tokyo', 'en-GB'), 'Mon, 16 Nov 2026, 17:09:10.123 GMT+9');
});

test('what cannot be seen is marked', () => {
  const signs = (text, part) => marks(text, part).map((piece) => piece.sign ?? piece.text).join('');
  assert.equal(signs('Aloe vera'), 'Aloe vera');
  assert.equal(signs('a\u0000b'), 'aU+0000b');
  assert.equal(signs('a\nb\r\nc\rd\te'), 'a↵bCR↵cCRd→e');
  assert.equal(signs(' a  b '), '·a··b·');
  assert.equal(signs(' a  b ', true), ' a··b ');
  assert.equal(signs('\u202Egnol'), 'U+202Egnol');
  for (const text of ['', ' ', '\r\n\r\n', 'x\u0000\ufeff  y']) {
    assert.equal(marks(text).map((piece) => piece.text).join(''), text);
  }
});

test('line breaks survive an edit', () => {
  const edit = (original, f) => restoreBreaks(original, f(original.replace(/\r\n|\r/g, '\n')));
  for (const text of ['', 'a', 'a\nb', 'a\r\nb', 'a\rb\r\nc\nd', '\r\n', 'a\r\n']) {
    assert.equal(edit(text, (same) => same), text);
  }
  assert.equal(edit('a\r\nb\nc', (text) => text.replace('a', 'a!')), 'a!\r\nb\nc');
  assert.equal(edit('a\r\nb\nc', (text) => text.replace('c', 'c!')), 'a\r\nb\nc!');
  assert.equal(edit('a\r\nb', (text) => `${text}\nc`), 'a\r\nb\r\nc');
  assert.equal(edit('a\r\nb', (text) => `0\n${text}`), '0\r\na\r\nb');
  assert.equal(edit('a\r\nb', () => 'x'), 'x');
  assert.equal(edit('a\nb', (text) => `${text}\nc`), 'a\nb\nc');
});

test('the words that differ are found', () => {
  const [mine, theirs] = differences('the tall oak', 'the small oak tree');
  const marked = (pieces) => pieces.map(({ text, same }) => (same ? text : `[${text}]`)).join('');
  assert.equal(marked(mine), 'the [tall oak]');
  assert.equal(marked(theirs), 'the [small oak tree]');
  assert.equal(marked(differences('a b c', 'a x b c')[1]), 'a [x ]b c');
  assert.equal(marked(differences('a a', 'a a a')[1]), 'a a[ a]');
  assert.deepEqual(differences('same', 'same'), [[{ text: 'same', same: true }], [{ text: 'same', same: true }]]);
  assert.deepEqual(differences('', 'new'), [[], [{ text: 'new', same: false }]]);
});

test('a span of time has one unit, of which there are at least two', () => {
  assert.equal(span(-5), '0 seconds');
  assert.equal(span(1), '1 second');
  assert.equal(span(119.9), '119 seconds');
  assert.equal(span(120), '2 minutes');
  assert.equal(span(86_400), '24 hours');
  assert.equal(span(30 * 86_400), '30 days');
});

test('a tag always has the same colour', () => {
  assert.equal(hue('tropical'), hue('tropical'));
  assert.equal(new Set(['tropical', 'tree', 'herb', 'shade', ''].map(hue)).size > 2, true);
  assert.equal(['', '🌱', 'a'.repeat(1000)].every((tag) => hue(tag) >= 0 && hue(tag) < 8), true);
});
