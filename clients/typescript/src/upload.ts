import { isNode } from "./crypto.js";
import { PlantstoreError, Transient, withMessage } from "./errors.js";

/**
 * Lines of NDJSON or of another format. A text, bytes or a Blob can be sent again if the connection is lost;
 * a stream or an iterator cannot.
 */
export type Lines =
  | string
  | Uint8Array
  | Blob
  | ReadableStream<Uint8Array>
  | Iterable<string | Uint8Array>
  | AsyncIterable<string | Uint8Array>;

const buffer = 64 << 10;

/** The lines of an import, sent in one attempt or several. */
export class Upload {
  readonly #lines: Lines;
  readonly #again: boolean;
  #sent = false;
  #err: unknown;
  whole = false;
  /** Whether a line that was imported already would fail. */
  versions: boolean;
  readonly #dryRun: boolean;

  constructor(lines: Lines, { versions = false, dryRun = false }: { versions?: boolean | undefined; dryRun?: boolean | undefined }) {
    this.versions = versions && !dryRun;
    this.#dryRun = dryRun;
    this.#again = typeof lines === "string" || lines instanceof Uint8Array || lines instanceof Blob;
    this.#lines = lines;
  }

  /** Returns the body of the next attempt, which sends the lines from their beginning. */
  async begin(): Promise<RequestInit> {
    this.#sent = this.whole = false;
    if (isNode) {
      return { body: this.#stream(), duplex: "half" } as RequestInit;
    }
    // Browsers cannot stream a request over HTTP/1.1.
    const parts: BlobPart[] = [];
    for await (const part of this.#blocks()) {
      parts.push(new Uint8Array(part)); // a Blob takes no shared memory
    }
    this.#sent = this.whole = true;
    return { body: new Blob(parts) };
  }

  /** Returns the failure of an attempt, permanent if the lines cannot be sent again. */
  failed(err: unknown): unknown {
    if (this.#err !== undefined) {
      return this.#err;
    }
    if (!(err instanceof Transient) || !this.#sent || (this.#again && !this.versions)) {
      return err;
    }
    const again = this.versions ? "those with a version fail if they are imported again" : "importing the same lines again is safe";
    const text = this.#dryRun ? "nothing was written, because it was a dry run" : `some lines may have been imported, and ${again}`;
    return withMessage(err.err, `${err.err.message}: ${text}`) as PlantstoreError;
  }

  #stream(): ReadableStream<Uint8Array> {
    const blocks = this.#blocks();
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            const { done, value } = await blocks.next();
            if (done) {
              this.whole = true;
              controller.close();
              return;
            }
            this.#sent = true;
            controller.enqueue(value);
          } catch (err) {
            this.#err = err;
            controller.error(err);
          }
        },
        cancel: async () => {
          await blocks.return();
        },
      },
      { highWaterMark: 0 },
    );
  }

  async *#blocks(): AsyncGenerator<Uint8Array, void, undefined> {
    const lines = this.#lines;
    if (typeof lines === "string") {
      yield* slices(new TextEncoder().encode(lines));
    } else if (lines instanceof Uint8Array) {
      yield* slices(lines);
    } else if (lines instanceof Blob) {
      yield* parts(lines.stream());
    } else if (lines instanceof ReadableStream) {
      yield* parts(lines);
    } else {
      yield* joined(lines);
    }
  }
}

function* slices(bytes: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += buffer) {
    yield bytes.slice(at, at + buffer);
  }
}

async function* parts(stream: ReadableStream<Uint8Array>): AsyncGenerator<Uint8Array> {
  const reader = stream.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      yield part.value;
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}

/** Collects lines into blocks. A slow iterator must not look like a disconnected client. */
async function* joined(
  lines: Iterable<string | Uint8Array> | AsyncIterable<string | Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const encoder = new TextEncoder();
  let text = "";
  let written = Date.now();
  const source = Symbol.asyncIterator in lines ? lines : sync(lines as Iterable<string | Uint8Array>);
  for await (const line of source) {
    if (typeof line !== "string") {
      if (text !== "") {
        yield encoder.encode(text);
        text = "";
      }
      yield line;
      continue;
    }
    text += line;
    if (text.length >= buffer || Date.now() - written >= 1000) {
      yield encoder.encode(text);
      text = "";
      written = Date.now();
    }
  }
  if (text !== "") {
    yield encoder.encode(text);
  }
}

/** Passes short texts on in blocks: awaiting every line would cost more than sending it. */
function* sync(lines: Iterable<string | Uint8Array>): Generator<string | Uint8Array> {
  let text = "";
  for (const line of lines) {
    if (typeof line !== "string") {
      if (text !== "") {
        yield text;
        text = "";
      }
      yield line;
      continue;
    }
    text += line;
    if (text.length >= buffer) {
      yield text;
      text = "";
    }
  }
  if (text !== "") {
    yield text;
  }
}
