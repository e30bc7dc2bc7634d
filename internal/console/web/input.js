// The bytes of a file and its lines, read as a stream. It touches no DOM.

export const MAX_RECORD = 16 * 1024 * 1024;
const HEAD = 64 * 1024; // is enough to recognise the format
const LF = 10;
const QUOTE = 34;

const encoder = new TextEncoder();
const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const lenient = new TextDecoder('utf-8', { ignoreBOM: true });

/**
 * Input buffers a stream as UTF-8. It keeps no more than what was not skipped. What is not
 * valid UTF-16 becomes U+FFFD.
 */
export class Input {
  #reader;
  #buffer = new Uint8Array(256 * 1024);
  #start = 0;
  #end = 0;
  /** @type {TextDecoder | null} */
  #utf16 = null;
  read = 0; // bytes of the stream

  /** @param {ReadableStream<Uint8Array>} stream */
  constructor(stream) {
    this.#reader = stream.getReader();
  }

  /** open reads the beginning of a stream, and skips its byte order mark. @param {ReadableStream<Uint8Array>} stream */
  static async open(stream) {
    const input = new Input(stream);
    while (input.size < HEAD && await input.more()) {
      // until there is enough
    }
    const mark = input.bytes.subarray(0, 3).join();
    if (mark === '239,187,191') {
      input.skip(3);
    } else if (mark.startsWith('255,254') || mark.startsWith('254,255')) {
      input.#utf16 = new TextDecoder(mark.startsWith('255') ? 'utf-16le' : 'utf-16be');
      const head = input.bytes.slice();
      input.skip(head.length);
      input.#add(head);
    }
    return input;
  }

  get size() {
    return this.#end - this.#start;
  }

  /** bytes is valid until the next call of more. */
  get bytes() {
    return this.#buffer.subarray(this.#start, this.#end);
  }

  get head() {
    return lenient.decode(this.bytes.subarray(0, HEAD));
  }

  /** @param {number} count */
  skip(count) {
    this.#start += count;
  }

  /** more reads on. It returns false at the end of the stream. */
  async more() {
    const { done, value } = await this.#reader.read();
    if (!done) {
      this.read += value.length;
      this.#add(value);
      return true;
    }
    const before = this.size;
    this.#add(encoder.encode(this.#utf16?.decode()), true); // of half a character at the end
    return this.size > before;
  }

  /** @param {Uint8Array} value @param {boolean} [decoded] */
  #add(value, decoded = !this.#utf16) {
    const bytes = decoded ? value : encoder.encode(this.#utf16?.decode(value, { stream: true }));
    if (this.#end + bytes.length > this.#buffer.length) {
      const old = this.bytes;
      if (old.length + bytes.length > this.#buffer.length / 2) {
        this.#buffer = new Uint8Array(2 * (old.length + bytes.length));
      }
      this.#buffer.set(old);
      this.#start = 0;
      this.#end = old.length;
    }
    this.#buffer.set(bytes, this.#end);
    this.#end += bytes.length;
  }

  /**
   * text decodes a part of the bytes. It names the encoding if they are not valid in it.
   * @param {Uint8Array} bytes
   */
  text(bytes) {
    try {
      const text = strict.decode(bytes);
      return { text, invalid: this.#utf16 && text.includes('\ufffd') ? 'UTF-16' : '' };
    } catch {
      return { text: lenient.decode(bytes), invalid: 'UTF-8' };
    }
  }

  /** @returns {Promise<void>} */
  async cancel() {
    await this.#reader.cancel();
  }
}

/**
 * @typedef {object} Row
 * @property {number} line where it begins
 * @property {Uint8Array} bytes without the line feed; valid until the next row
 * @property {boolean} tooLong
 * @property {boolean} open whether a quote is not closed
 */

/**
 * rows yields the lines of the input. If quotes count, a line feed within quotes does not end
 * a row.
 * @param {Input} input
 * @param {boolean} quotes
 * @returns {AsyncGenerator<Row, void, void>}
 */
export async function* rows(input, quotes) {
  try {
    for (let next = 1, found = true; found;) {
      const line = next;
      let at = 0;
      let open = false;
      let tooLong = false;
      found = false;
      do {
        if (at > MAX_RECORD) {
          tooLong = true;
          input.skip(at);
          at = 0;
        }
        const { bytes } = input;
        if (quotes) {
          for (; at < bytes.length && !found; at++) {
            if (bytes[at] === QUOTE) {
              open = !open;
            } else if (bytes[at] === LF) {
              next++;
              found = !open;
            }
          }
        } else {
          const end = bytes.indexOf(LF, at);
          found = end >= 0;
          next += found ? 1 : 0;
          at = found ? end + 1 : bytes.length;
        }
      } while (!found && await input.more());
      if (found || at > 0 || tooLong) {
        const bytes = input.bytes.subarray(0, found ? at - 1 : at);
        input.skip(at);
        yield { line, bytes, tooLong: tooLong || bytes.length > MAX_RECORD, open };
      }
    }
  } finally {
    await input.cancel();
  }
}
