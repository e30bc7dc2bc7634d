import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import test from 'node:test';

const web = new URL('../web/', import.meta.url);

test('no module imports itself, not even through others', () => {
  const scripts = readdirSync(web).filter((name) => name.endsWith('.js'));
  const imports = new Map(scripts.map((name) => {
    const text = readFileSync(new URL(name, web), 'utf8');
    return [name, [...text.matchAll(/^(?:import|export)\b[^;]*?'\.\/([^']+)';$/gm)].map(([, other]) => other)];
  }));
  assert.ok(imports.get('console.js').includes('plants.js'), 'the imports are not recognised');
  const clear = new Set();
  const follow = (name, path) => {
    assert.ok(!path.includes(name), `an import cycle: ${[...path, name].join(' → ')}`);
    if (!clear.has(name)) {
      imports.get(name).forEach((other) => follow(other, [...path, name]));
      clear.add(name);
    }
  };
  scripts.forEach((name) => follow(name, []));
});
