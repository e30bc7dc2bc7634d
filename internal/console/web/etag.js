// The ETag of a plant, derived from its name and tag as the server does it: so a plant of a list
// is changed only if it still is as it was listed, without getting it first. SHA-256 is written
// out, because a page without TLS has no crypto.subtle. It touches no DOM.

/** @type {number[]} */
const primes = [];
for (let n = 2; primes.length < 64; n++) {
  if (primes.every((prime) => n % prime)) {
    primes.push(n);
  }
}
const fraction = (/** @type {number} */ root) => (/** @type {number} */ n) => (n ** (1 / root) * 2 ** 32) | 0; // its first 32 bits
const START = primes.slice(0, 8).map(fraction(2));
const ROUNDS = primes.map(fraction(3));

/** turn returns the exclusive or of a word rotated to the right by so many bits each. @param {number} x @param {...number} by */
const turn = (x, ...by) => by.reduce((sum, n) => sum ^ (x >>> n) ^ (x << (32 - n)), 0);

/** etag returns the ETag of a plant. @param {{name: string, tag?: string}} plant */
export function etag(plant) {
  const [name, tag] = [plant.name, plant.tag].map((text) => new TextEncoder().encode(text));
  const length = 9 + name.length + tag.length;
  const bytes = new Uint8Array((length + 72) & -64);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(name.length));
  bytes[8] = plant.tag === undefined ? 0 : 1;
  bytes.set(name, 9);
  bytes.set(tag, 9 + name.length);
  bytes[length] = 0x80;
  view.setBigUint64(bytes.length - 8, BigInt(8 * length));
  const hash = Int32Array.from(START);
  const w = new Int32Array(64);
  for (let at = 0; at < bytes.length; at += 64) {
    let [a, b, c, d, e, f, g, h] = hash;
    ROUNDS.forEach((round, i) => {
      w[i] = i < 16
        ? view.getInt32(at + 4 * i)
        : w[i - 16] + w[i - 7] + (turn(w[i - 15], 7, 18) ^ (w[i - 15] >>> 3)) + (turn(w[i - 2], 17, 19) ^ (w[i - 2] >>> 10));
      const t = h + turn(e, 6, 11, 25) + ((e & f) ^ (~e & g)) + round + w[i];
      const u = turn(a, 2, 13, 22) + ((a & b) ^ (a & c) ^ (b & c));
      [a, b, c, d, e, f, g, h] = [(t + u) | 0, a, b, c, (d + t) | 0, e, f, g];
    });
    [a, b, c, d, e, f, g, h].forEach((word, i) => { hash[i] += word; });
  }
  hash.forEach((word, i) => view.setInt32(4 * i, word));
  return `"${btoa(String.fromCharCode(...bytes.slice(0, 15))).replaceAll('+', '-').replaceAll('/', '_')}"`;
}
