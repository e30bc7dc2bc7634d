import { isNode } from "./crypto.js";
import { ResponseError, TransportError, Transient } from "./errors.js";

/** Failures before a request was sent. */
const notSent = new Set([
  "ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT",
]);

/** Failures that would recur: an unknown host, a bad certificate. */
const permanent = /^(ENOTFOUND|CERT_|ERR_TLS_CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO_|ERR_SSL_WRONG)/;

/** The message of Node, without a code, for a port that fetch never connects to. */
const badPort = "bad port";

type Cause = { code?: string; message?: string; errors?: Cause[]; cause?: Cause };

/** Classifies a request that could not be sent, or whose response could not be read. */
export function transportError(err: unknown, what = ""): TransportError | Transient {
  let cause = err as Cause;
  while (cause.cause !== undefined || cause.errors?.[0] !== undefined) {
    cause = (cause.cause ?? cause.errors?.[0]) as Cause;
  }
  const code = cause.code ?? "";
  const texts = [what, (err as Error).message, cause === err ? "" : cause.message || code];
  const failed = new TransportError(texts.filter((text) => text).join(": "));
  return permanent.test(code) || cause.message === badPort ? failed : new Transient(failed, { maybeApplied: !notSent.has(code) });
}

/** Reads the header Retry-After, in milliseconds: seconds, or a date by the server's clock. */
export function retryAfter(headers: Headers): number {
  const text = (headers.get("Retry-After") ?? "").trim();
  if (/^\d{1,9}$/.test(text)) {
    return Number(text) * 1000;
  }
  const at = Date.parse(text);
  if (Number.isNaN(at)) {
    return 0;
  }
  const now = Date.parse(headers.get("Date") ?? "");
  return Math.max(0, at - (Number.isNaN(now) ? Date.now() : now));
}

/**
 * Whether the end of a body can be told from a lost connection. Browsers do not show it.
 * Node does not notice that a chunked body is cut off if the connection was to be closed
 * after it.
 */
export function hasEnd({ headers }: Response): boolean {
  if (!isNode || headers.has("Content-Length")) {
    return true;
  }
  return headers.has("Transfer-Encoding") && !/\bclose\b/i.test(headers.get("Connection") ?? "");
}

/** Sleeps until the time is over, or throws the signal's reason. */
export function sleep(milliseconds: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** An exchange of a request and its response. It ends if nothing arrives for a while. */
export class Exchange {
  response!: Response;
  readonly #controller = new AbortController();
  readonly #signal: AbortSignal | undefined;
  readonly #stop = (): void => this.#controller.abort(this.#signal?.reason);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #idle = false;
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#stop, { once: true });
  }

  /** Sends a request and waits for the start of its response. */
  async send(fetch: typeof globalThis.fetch, url: string, init: RequestInit, timeout: number): Promise<void> {
    this.response = await this.#await(
      () => fetch(url, { ...init, redirect: "manual", cache: "no-store", credentials: "omit", signal: this.#controller.signal }),
      timeout,
    );
    this.#reader = this.response.body?.getReader();
  }

  /** Returns the next part of the body, or undefined at its end. */
  async read(timeout: number): Promise<Uint8Array | undefined> {
    const reader = this.#reader;
    return reader && (await this.#await(() => reader.read(), timeout, "the response was cut off")).value;
  }

  /** Returns the rest of the body as text, or undefined if it is longer than the limit. */
  async text(limit: number, timeout: number): Promise<string | undefined> {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let text = "";
    let size = 0;
    for (let part = await this.read(timeout); part !== undefined; part = await this.read(timeout)) {
      size += part.length;
      if (size > limit) {
        return undefined;
      }
      text += decoder.decode(part, { stream: true });
    }
    return text + decoder.decode();
  }

  /** Yields the lines of the body without their ends. The last one must have an end. */
  async *lines(timeout: number, limit: number): AsyncGenerator<string, void, undefined> {
    const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    let parts: string[] = [];
    let size = 0;
    for (let part = await this.read(timeout); part !== undefined; part = await this.read(timeout)) {
      const lines = decoder.decode(part, { stream: true }).split("\n");
      for (let i = 0; i < lines.length - 1; i++) {
        const line = parts.join("") + lines[i];
        parts = [];
        size = 0;
        yield line;
      }
      const rest = lines[lines.length - 1] as string;
      parts.push(rest);
      size += rest.length;
      if (size > limit) {
        throw new ResponseError(`a line is longer than ${limit >> 20} MiB`, 0, 200);
      }
    }
    if (size > 0) {
      throw new Transient(new TransportError("the response was cut off: the last line has no end"), { maybeApplied: true });
    }
  }


  /** Ends the exchange. The connection is closed unless the body was read to its end. */
  close(): void {
    clearTimeout(this.#timer);
    this.#signal?.removeEventListener("abort", this.#stop);
    this.#reader?.cancel().catch(() => undefined);
    this.#controller.abort();
  }

  async #await<T>(step: () => Promise<T>, timeout: number, what = ""): Promise<T> {
    this.#timer = setTimeout(() => {
      this.#idle = true;
      this.#controller.abort();
    }, timeout);
    try {
      return await step();
    } catch (err) {
      if (this.#signal?.aborted) {
        throw this.#signal.reason;
      }
      if (this.#idle) {
        throw new Transient(new TransportError(`nothing was received for ${timeout / 1000} s`), { maybeApplied: true });
      }
      throw transportError(err, what);
    } finally {
      clearTimeout(this.#timer);
    }
  }
}
