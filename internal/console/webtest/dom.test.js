import assert from 'node:assert/strict';
import test from 'node:test';

class HTMLElement {}
class HTMLInputElement extends HTMLElement {}
class HTMLButtonElement extends HTMLElement {}
const name = new HTMLInputElement();
Object.assign(globalThis, { HTMLElement, document: { getElementById: (id) => (id === 'name' ? name : null) } });
const { $ } = await import('../web/dom.js');

test('an element is there and of the class that is wanted', () => {
  assert.equal($('name'), name);
  assert.equal($('name', HTMLInputElement), name);
  assert.throws(() => $('name', HTMLButtonElement), { message: '#name must be an HTMLButtonElement, got HTMLInputElement' });
  assert.throws(() => $('tag'), { message: '#tag must be an HTMLElement, got nothing' });
});
