import {
  Code, IdTakenError, NotFoundError, OutcomeError, PlantstoreError, PreconditionError, ResponseError, TransportError,
  Transient, foreignError, serverError, withMessage,
} from "./errors.js";
import { Exchange, hasEnd, retryAfter, sleep } from "./http.js";
import { Json, parse } from "./json.js";
import type { NewToken, Token, TokenConfig } from "./tokens.js";
import type { About, Bucket, Delivery, NewPlant, PlantEvent, PlantPatch, TagCount, Webhook, WebhookWithSecret } from "./types.js";
import { Lines, Upload } from "./upload.js";
import * as wire from "./wire.js";
import type { Id, ImportReport, LineError, StoredPlant } from "./wire.js";

export type { Lines } from "./upload.js";

const json = "application/json";
const ndjson = "application/x-ndjson";
const eventStream = "text/event-stream";
const cursorHeader = "Plantstore-Cursor";

// A server tries to write for 30 s before it gives up, so a response may take a little
// longer than that.
const responseTimeout = 45_000;
const streamTimeout = 600_000;

const minPause = 100;
const maxPause = 5_000;
const maxBody = 64 << 20; // far more than a server sends in one response
const maxErrorBody = 256 << 10;
const maxLine = 64 << 20;
const maxEvent = 16 << 20;
const maxLineErrors = 100;

/** How a client calls its server. */
export interface Options {
  /** The base URL of the server, such as https://plants.example.com. */
  url: string;
  /**
   * The token, usually from the environment. Without one, every call throws an
   * UnauthorizedError that says so.
   */
  token: string | undefined;
  /**
   * How often a failed call is retried. Default: 18; 0 for never. The pauses between
   * attempts double from 0.1 s to 5 s, and each is shortened at random by up to half. A
   * Retry-After of the server is added to the pause.
   */
  retries?: number | undefined;
  /**
   * How long after its first failure a call is retried, in milliseconds. Default: a
   * minute. A Retry-After beyond it ends the call immediately.
   */
  retryTimeout?: number | undefined;
  /** How long the server may send nothing, in milliseconds. Default: 45 s. */
  timeout?: number | undefined;
  /** Called before each retry, with the error of the failed attempt and the pause in milliseconds. */
  retrying?: ((err: PlantstoreError, pause: number) => void) | undefined;
  /** Sends the requests in place of the global fetch. */
  fetch?: typeof globalThis.fetch | undefined;
}

export interface CallOptions {
  /** Ends the call, which throws the signal's reason. */
  signal?: AbortSignal | undefined;
}

/** A plant to write. */
export interface PlantInput {
  id: Id;
  name: string;
  tag?: string | undefined;
}

/** What an import does with each plant: what `create`, `put` or `delete` does. */
export type ImportMode = "create" | "replace" | "delete";

/** A plant to import. */
export interface ImportLine extends PlantInput {
  /** The version that the plant must have: otherwise the line fails with 41201. Not for the mode `create`. */
  ifVersion?: string | undefined;
}

export interface ImportOptions extends CallOptions {
  /** What is done with the plants. Default: `create`. To delete one that is not there counts as unchanged. */
  mode?: ImportMode | undefined;
  /** Writes nothing: the report says what would happen. */
  dryRun?: boolean | undefined;
}

export interface LinesOptions extends ImportOptions {
  /** The media type of the lines: by default NDJSON, or `text/csv` or, for an array, `application/json`. */
  media?: string | undefined;
  /**
   * Whether lines have an `if_version`. The import is then retried only while nothing has
   * been sent: a line that was imported already would fail.
   */
  versions?: boolean | undefined;
}

export interface DetailOptions extends CallOptions {
  /** Whether a plant has its version and times, and an event the version of its plant. */
  details?: boolean | undefined;
}

/**
 * What must hold for a write: otherwise it throws a PreconditionError. If a response was lost
 * and `ifMatch` is not "*", nobody knows why the repeated write fails: it throws an OutcomeError.
 */
export interface Condition extends CallOptions {
  /** The plant must have this ETag, or exist if it is "*". */
  ifMatch?: string | undefined;
  /** The plant must not have this ETag, or not exist if it is "*". */
  ifNoneMatch?: string | undefined;
}

/** An order of plants: by id or by name, or backwards. By name takes a million plants at most. */
export type Order = "id" | "-id" | "name" | "-name";

/** Which plants to read. */
export interface PlantQuery extends DetailOptions {
  /** Only the plants with these ids, 1000 at most. Nothing else that selects plants is then allowed, and a limit is ignored. */
  ids?: Id[] | undefined;
  /** The order of the plants, by default "id". */
  order?: Order | undefined;
  /** Only plants that come after this id in the order. */
  after?: Id | undefined;
  /** In an order by name: only plants that come after this position, the `nextName` of a page. */
  afterName?: string | undefined;
  /**
   * Only plants with exactly this tag, or with any of these, 32 at most. Beside tagPrefix and
   * untagged, a plant is selected if one of the three selects it.
   */
  tag?: string | readonly string[] | undefined;
  /** Plants with a tag that begins with this text. */
  tagPrefix?: string | undefined;
  /** Plants without a tag. */
  untagged?: boolean | undefined;
  /** Only plants whose name contains every word of this text, ignoring case and diacritics. */
  q?: string | undefined;
  /** The maximum number of plants on a page. */
  limit?: number | undefined;
}

export interface TagQuery extends CallOptions {
  /** Only tags that begin with this text. */
  prefix?: string | undefined;
  /** Only tags that contain every word of this text, ignoring case and diacritics. */
  q?: string | undefined;
  /** Only tags that are not before this text, in the order of their bytes. */
  from?: string | undefined;
  /** The maximum number of tags on a page. */
  limit?: number | undefined;
}

/** A page of tags. The next one starts at `next`, unless that is undefined. */
export interface TagPage {
  tags: TagCount[];
  next: string | undefined;
}

/** Which page of plants to read. */
export interface PageQuery extends PlantQuery {
  /** Also count how many plants match. */
  count?: boolean | undefined;
}

/** A number of plants, counted up to 10,000; `more` says that there are more. */
export interface Count {
  plants: number;
  more: boolean;
}

/**
 * A page of plants. The next one is after `next`, or in an order by name after `nextName`, unless
 * that is undefined.
 */
export interface Page<P extends NewPlant = NewPlant> {
  plants: P[];
  next: bigint | undefined;
  nextName?: string | undefined;
  /** How many plants match, if the query asks for that and it is known. */
  count?: Count | undefined;
}

/** Which events to read. */
export interface EventQuery extends DetailOptions {
  /** Only events after this position, a cursor or "latest". */
  after?: string | undefined;
  /** Only events from this time on. It is ignored if `after` is given. */
  since?: Date | string | undefined;
  /** Only events of this plant. */
  id?: Id | undefined;
  /** Only events of these types. */
  types?: PlantEvent["type"][] | undefined;
  /** Only events of changes made by exactly this caller. */
  by?: string | undefined;
  /** Only events of plants whose name contains every word of this text, ignoring case and diacritics. */
  q?: string | undefined;
  /** The maximum number of events on a page. */
  limit?: number | undefined;
  /** The newest event first. */
  newest?: boolean | undefined;
  /** Only events before the one at this position, a cursor. Only with `newest`. */
  before?: string | undefined;
}

/** Which time to divide into how many buckets. */
export interface HistogramQuery extends CallOptions {
  /** When the first bucket begins. */
  since: Date | string;
  /** When the last bucket ends; without it, now. */
  until?: Date | string | undefined;
  /** How many buckets there are. */
  buckets?: number | undefined;
}

/** A page of events. `cursor` is the position at its end. */
export interface EventPage {
  events: PlantEvent[];
  cursor: string;
  more: boolean;
}

/** Which changes a webhook is sent. */
export interface WebhookOptions extends CallOptions {
  /** Which changes to send: all if it is empty or absent. */
  types?: PlantEvent["type"][] | undefined;
  description?: string | undefined;
}

/**
 * Calls one server with one token.
 *
 * Requests that fail in transit, and those to which the server or a proxy responds with
 * 429, 502, 503 or 504, are retried. Every write of a plant can be: creating the same
 * plant again is a success, and so are replacing a plant with what it already is, patching
 * it again and deleting what a lost attempt has deleted. One caveat: if someone else writes
 * the same plant between a lost attempt and its retry, a put, patch or delete without a
 * condition undoes that write. With a version as its condition, it throws an OutcomeError
 * if it is not known whether a lost attempt was applied. What returns a secret is retried only if the server has certainly not
 * applied it. Redirects are refused, because they would carry the token elsewhere.
 */
export class Plantstore {
  readonly #base: string;
  readonly #token: string;
  readonly #options: Required<Pick<Options, "retries" | "retryTimeout" | "timeout">> & Options;

  constructor(options: Options) {
    this.#base = baseURL(options.url);
    this.#token = options.token ?? "";
    if (this.#token !== "") {
      checkToken(this.#token);
    }
    this.#options = {
      ...options,
      retries: options.retries ?? 18,
      retryTimeout: options.retryTimeout ?? 60_000,
      timeout: options.timeout ?? responseTimeout,
    };
  }

  /**
   * Adds a plant. When it returns, the plant is durable. Creating the same plant again
   * succeeds and changes nothing. It throws an IdTakenError if another plant has the id.
   */
  async create(plant: PlantInput, { signal }: CallOptions = {}): Promise<void> {
    await this.#retry(`create plant ${plant.id}`, signal, () => this.#createOnce(plant, signal));
  }

  async #createOnce(plant: PlantInput, signal: AbortSignal | undefined): Promise<void> {
    const body = wire.encodePlant(plant, wire.toId(plant.id));
    (await this.#call(200, "POST", "/plants", { body, signal })).confirm(plant);
  }

  /** Returns the plant with that id, or throws a NotFoundError. With `details` it has its times. */
  async get(id: Id, { details, signal }: DetailOptions = {}): Promise<StoredPlant> {
    const exact = wire.toId(id);
    const target = `/plants/${exact}` + params({ details: details || undefined });
    return this.#retry(`get plant ${exact}`, signal, async () => (await this.#call(200, "GET", target, { signal })).stored(exact));
  }

  /** Creates the plant, or replaces the one with its id. When it returns, the plant is durable. */
  async put(plant: PlantInput, condition: Condition = {}): Promise<void> {
    const { signal } = condition;
    const id = wire.toId(plant.id);
    const body = wire.encodePlant(plant);
    await this.#writeIf(`put plant ${id}`, id, condition, async (headers, maybeApplied) => {
      try {
        (await this.#call(200, "PUT", `/plants/${id}`, { body, headers, signal })).confirm(plant);
      } catch (err) {
        if (!maybeApplied || condition.ifNoneMatch !== "*" || !(err instanceof PreconditionError)) {
          throw err;
        }
        // The existing plant may be the one that an earlier attempt wrote. If so, creating it
        // changes nothing; if not, it is refused.
        await this.#createOnce(plant, signal).catch((refused: unknown) => {
          throw refused instanceof IdTakenError ? err : refused;
        });
      }
    });
  }

  /**
   * Changes a part of the plant with that id, and returns the plant as it is then. What the patch
   * does not mention stays, and a tag of null is removed. It throws a NotFoundError if there is no
   * such plant. When it returns, the change is durable.
   */
  async patch(id: Id, patch: PlantPatch, condition: Condition = {}): Promise<StoredPlant> {
    const exact = wire.toId(id);
    const body = wire.encodePatch(patch);
    return this.#writeIf(`patch plant ${exact}`, exact, condition, async (headers) =>
      (await this.#call(200, "PATCH", `/plants/${exact}`, { body, headers, signal: condition.signal })).stored(exact),
    );
  }

  /**
   * Removes the plant with that id, or throws a NotFoundError. When it returns, that is
   * durable. If an attempt is lost and the next one finds no plant, the lost one is taken
   * to have deleted it.
   */
  async delete(id: Id, condition: Condition = {}): Promise<void> {
    const exact = wire.toId(id);
    const { signal } = condition;
    await this.#writeIf(`delete plant ${exact}`, exact, condition, (headers, maybeApplied) =>
      this.#deleteOnce(`/plants/${exact}`, { headers, signal }, maybeApplied && !isOfVersion(condition) ? Code.NoPlant : undefined),
    );
  }

  /**
   * Returns one page of the plants that match, in the order. It may have fewer than the limit
   * and still not be the last.
   */
  async page(query: PageQuery & { details: true }): Promise<Page<StoredPlant>>;
  async page(query?: PageQuery): Promise<Page>;
  async page(query: PageQuery = {}): Promise<Page> {
    const target = plantsPath(query);
    if (/[?&]id=$/.test(target)) {
      return { plants: [], next: undefined };
    }
    const after = query.after === undefined ? undefined : wire.toId(query.after);
    return this.#retry("list plants", query.signal, async () =>
      (await this.#call(200, "GET", target, query)).page(after, query, plantDecoder(query)),
    );
  }

  /**
   * Yields every plant that matches, in the order, one page at a time. A plant that is written in the meantime may or may not be seen: export reads one
   * snapshot.
   */
  list(query: PlantQuery & { details: true }): AsyncGenerator<StoredPlant, void, undefined>;
  list(query?: PlantQuery): AsyncGenerator<NewPlant, void, undefined>;
  async *list(query: PlantQuery = {}): AsyncGenerator<NewPlant, void, undefined> {
    let { after, afterName } = query;
    do {
      const page: Page = await this.page({ ...query, after, afterName, limit: query.limit ?? 1000 });
      yield* page.plants;
      after = page.next;
      afterName = page.nextName;
    } while (after !== undefined || afterName !== undefined);
  }

  /**
   * Returns one page of the tags that match, in the order of their bytes, with how many
   * plants have each, counted up to 1000. It may have fewer than the limit and still not be
   * the last.
   */
  async tagPage({ prefix, q, from, limit, signal }: TagQuery = {}): Promise<TagPage> {
    const target = "/tags" + params({ prefix: prefix || undefined, q: q || undefined, from: from || undefined, limit });
    return this.#retry("list tags", signal, async () => (await this.#call(200, "GET", target, { signal })).tagPage(from));
  }

  /**
   * Yields every tag that matches, in the order of their bytes, with how many plants have
   * it, counted up to 1000, one page at a time. The counts of a page are of the same moment.
   */
  async *tags(query: TagQuery = {}): AsyncGenerator<TagCount, void, undefined> {
    let from = query.from;
    do {
      const page: TagPage = await this.tagPage({ ...query, from, limit: query.limit ?? 1000 });
      yield* page.tags;
      from = page.next;
    } while (from !== undefined);
  }

  /**
   * Returns every plant that matches, in the order, from one snapshot. An export that is cut off throws, and never ends early without an error.
   */
  async export(query: Omit<PlantQuery, "limit"> & { details: true }): Promise<Export<StoredPlant>>;
  async export(query?: Omit<PlantQuery, "limit">): Promise<Export>;
  async export(query: Omit<PlantQuery, "limit"> = {}): Promise<Export> {
    const target = plantsPath({ ...query, limit: undefined });
    const what = "export plants";
    return this.#retry(what, query.signal, async () => {
      const exchange = new Exchange(query.signal);
      try {
        await this.#send(exchange, "GET", target, { accept: ndjson, timeout: streamTimeout });
        if (exchange.response.status !== 200 || media(exchange.response) !== ndjson) {
          throw await this.#responseError(exchange);
        }
        if (!hasEnd(exchange.response)) {
          const text = "cannot tell whether the response is complete: is there a proxy in between that closes connections?";
          const err = new ResponseError(text, 0, 200);
          // A server that shuts down closes connections, too.
          throw exchange.response.headers.has("Transfer-Encoding") ? new Transient(err) : err;
        }
        const lines = exchange.lines(streamTimeout, maxLine);
        return new Export(exchange, lines, await lines.next(), plantDecoder(query), (err) => this.#fail(what, err));
      } catch (err) {
        exchange.close();
        throw err;
      }
    });
  }

  /**
   * Creates many plants, or with a `mode` replaces or deletes them, each independently of
   * the others. To delete a plant only takes its id. The n-th plant is line n of the report.
   * When it returns, everything that the report counts is durable. After an error some plants
   * may have been imported, and importing the same plants again is safe, except that what
   * has an `ifVersion` may fail then. It is retried only while nothing has been sent. A server
   * may cut off an import that is slower than 1 KiB per second. A browser collects the plants
   * before it sends them.
   */
  async import(plants: Many<Deletion>, options: ImportOptions & { mode: "delete" }): Promise<ImportReport>;
  async import(plants: Many<ImportLine>, options?: ImportOptions): Promise<ImportReport>;
  async import(plants: Many<Deletion>, options: ImportOptions = {}): Promise<ImportReport> {
    const refused: LineError[] = [];
    let line = 0;
    let failed = 0;
    const encode = (plant: Deletion): string => {
      line++;
      upload.versions ||= plant.ifVersion !== undefined && !options.dryRun;
      try {
        return wire.encodeLine(plant, options.mode === "delete") + "\n";
      } catch (err) {
        if (!(err instanceof PlantstoreError)) {
          throw err;
        }
        failed++;
        if (refused.length < maxLineErrors) {
          refused.push({ line, code: err.code, message: err.message });
        }
        return "\n"; // the server skips it, and counts it
      }
    };
    const upload: Upload = new Upload(isAsync(plants) ? mapAsync(plants, encode) : map(plants, encode), { dryRun: options.dryRun });
    const report = await this.#import(upload, options);
    report.failed += failed;
    report.errors = [...report.errors, ...refused].sort((a, b) => a.line - b.line).slice(0, maxLineErrors);
    return report;
  }

  /**
   * Is import for plants that are already encoded, as NDJSON or with another `media`. A text,
   * bytes or a Blob are sent again if the connection is lost, unless lines have `versions`.
   */
  async importLines(lines: Lines, options: LinesOptions = {}): Promise<ImportReport> {
    return this.#import(new Upload(lines, options), options);
  }

  async #import(upload: Upload, { mode, dryRun, media: type = ndjson, signal }: LinesOptions): Promise<ImportReport> {
    const target = "/plants/import" + params({ mode, dry_run: dryRun || undefined });
    return this.#retry("import plants", signal, async () => {
      const exchange = new Exchange(signal);
      try {
        const body = await upload.begin();
        await this.#send(exchange, "POST", target, { accept: json, type, init: body, timeout: streamTimeout });
        const { whole } = upload;
        const report = (await this.#whole(exchange, 200)).decode(wire.decodeReport);
        if (!whole) {
          throw new ResponseError("the server responded before it had read all lines", 0, 200);
        }
        for (const refused of report.errors) {
          refused.message = this.#redact(refused.message);
        }
        return report;
      } catch (err) {
        throw upload.failed(err);
      } finally {
        exchange.close();
      }
    });
  }

  /**
   * Returns one page of the log of changes, in order, or with `newest` the newest first. It
   * may have fewer events than the limit and still not be the last. Pass its cursor as
   * `after` to continue, or as `before` if the newest is first. It throws a GoneError if
   * the events at the position are no longer kept.
   */
  async eventPage(query: EventQuery = {}): Promise<EventPage> {
    const { newest, before, limit } = query;
    const target = "/events" + params({ ...eventParams(query), order: newest ? "newest" : undefined, before, limit });
    return this.#retry("read events", query.signal, async () =>
      (await this.#call(200, "GET", target, query)).eventPage(before ?? query.after),
    );
  }

  /** Returns how many events the log of changes has in each of some buckets of equal length. All events count. */
  async histogram(query: HistogramQuery): Promise<Bucket[]> {
    const { since, until, buckets } = query;
    const end = until === undefined ? undefined : formatTime(until);
    const target = "/events/histogram" + params({ since: formatTime(since), until: end, buckets });
    return this.#retry("count events", query.signal, async () =>
      (await this.#call(200, "GET", target, query)).decode((value) => wire.many(value, wire.decodeBucket)),
    );
  }

  /**
   * Yields every event that matches, in order, and then waits for the next ones. Without
   * `after` and `since` it starts with the oldest event kept; "latest" starts with the
   * next event. It reconnects when its connection is lost, and never skips or repeats an
   * event. To continue later, even in another process, store the cursor of the last event
   * and pass it as `after`. Events of tokens, and of what this version does not know, are
   * skipped. It throws a GoneError if the events after the position are no
   * longer kept.
   */
  async *events(query: Omit<EventQuery, "limit" | "newest" | "before"> = {}): AsyncGenerator<PlantEvent, void, undefined> {
    const what = "follow events";
    const position = { ...query, since: query.since ?? new Date(0) };
    const retries = this.#retries(what, query.signal);
    for (;;) {
      try {
        yield* this.#follow(position);
      } catch (err) {
        if (!(err instanceof Transient)) {
          throw this.#fail(what, err);
        }
        await retries.failed(err);
      }
    }
  }

  /** Opens a connection and yields its events, until that is lost. It moves the position. */
  async *#follow(position: EventQuery): AsyncGenerator<PlantEvent, never, undefined> {
    const exchange = new Exchange(position.signal);
    try {
      // A server responds immediately, and then sends something every 15 s.
      const { timeout } = this.#options;
      await this.#send(exchange, "GET", "/events" + params(eventParams(position)), { accept: eventStream, timeout });
      if (exchange.response.status !== 200 || media(exchange.response) !== eventStream) {
        throw await this.#responseError(exchange);
      }
      if (position.after === "latest") {
        const start = exchange.response.headers.get(cursorHeader);
        if (!start) {
          throw new ResponseError(`the response has no ${cursorHeader}: is there a proxy in between that removes it?`, 0, 200);
        }
        position.after = start;
      }
      const opened = Date.now();
      const start = position.after;
      let lost: PlantstoreError;
      try {
        yield* readEvents(exchange.lines(timeout, maxEvent), position);
        lost = new TransportError("the connection was lost: it was closed");
      } catch (err) {
        if (!(err instanceof Transient)) {
          throw err;
        }
        lost = withMessage(err.err, `the connection was lost: ${err.err.message}`);
      }
      throw new Transient(lost, { progress: position.after !== start || Date.now() - opened >= maxPause });
    } finally {
      exchange.close();
    }
  }

  /**
   * Creates a webhook: changes are sent to the URL, from now on or from the position
   * `after`. It is not retried if the server may have created the webhook.
   */
  async createWebhook(url: string, options: WebhookOptions & { after?: string | undefined } = {}): Promise<WebhookWithSecret> {
    const body = webhookBody(url, options, options.after);
    return this.#secret("create a webhook", 201, "/webhooks", body, wire.decodeWebhookWithSecret, options);
  }

  /** Returns all webhooks, in order of creation. */
  async webhooks(options: CallOptions = {}): Promise<Webhook[]> {
    return this.#value("list webhooks", "GET", "/webhooks", undefined, (value) => wire.many(value, wire.decodeWebhook), options);
  }

  /** Returns the webhook with that id, or throws a NotFoundError. */
  async webhook(id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.#value(`get webhook ${id}`, "GET", webhookPath(id), undefined, wire.decodeWebhook, options);
  }

  /** Sets the URL, the types and the description of a webhook. */
  async replaceWebhook(id: string, url: string, options: WebhookOptions = {}): Promise<Webhook> {
    const body = webhookBody(url, options, undefined);
    return this.#value(`replace webhook ${id}`, "PUT", webhookPath(id), body, wire.decodeWebhook, options);
  }

  /** Removes a webhook, or throws a NotFoundError. */
  async deleteWebhook(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#retry(`delete webhook ${id}`, signal, (maybeApplied) =>
      this.#deleteOnce(webhookPath(id), { signal }, maybeApplied ? Code.NoWebhook : undefined),
    );
  }

  /**
   * Gives a webhook a new secret. For 24 hours the old one signs too. It is not retried if
   * the server may have made a secret already.
   */
  async rotateWebhook(id: string, options: CallOptions = {}): Promise<WebhookWithSecret> {
    const what = `rotate the secret of webhook ${id}`;
    return this.#secret(what, 200, webhookPath(id, "/rotate"), undefined, wire.decodeWebhookWithSecret, options);
  }

  /** Sends a webhook.test now and returns what came back. A failed delivery is not an error. */
  async testWebhook(id: string, options: CallOptions = {}): Promise<Delivery> {
    return this.#value(`test webhook ${id}`, "POST", webhookPath(id, "/test"), undefined, wire.decodeDelivery, options);
  }

  /** Stops a webhook until it is resumed. The error for a disabled one has the code `Disabled`. */
  async pauseWebhook(id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.#value(`pause webhook ${id}`, "POST", webhookPath(id, "/pause"), undefined, wire.decodeWebhook, options);
  }

  /** Sends undelivered events now. The error for a disabled or paused webhook has the code `Disabled`. */
  async retryWebhook(id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.#value(`retry webhook ${id}`, "POST", webhookPath(id, "/retry"), undefined, wire.decodeWebhook, options);
  }

  /** Makes a disabled or paused webhook active again, from where it stood. */
  async resumeWebhook(id: string, options: CallOptions = {}): Promise<Webhook> {
    return this.#value(`resume webhook ${id}`, "POST", webhookPath(id, "/resume"), undefined, wire.decodeWebhook, options);
  }

  /** Moves a webhook: the events after a cursor, or from a time on, are sent, again if they were before. */
  async replayWebhook(
    id: string, from: { after: string } | { since: Date | string }, options: CallOptions = {},
  ): Promise<Webhook> {
    const body = JSON.stringify("after" in from ? { after: from.after } : { since: formatTime(from.since) });
    return this.#value(`replay webhook ${id}`, "POST", webhookPath(id, "/replay"), body, wire.decodeWebhook, options);
  }

  /** Returns the last attempts to deliver to a webhook, the newest first. */
  async deliveries(id: string, options: CallOptions = {}): Promise<Delivery[]> {
    const what = `list the deliveries of webhook ${id}`;
    const decode = (value: Json): Delivery[] => wire.many(value, wire.decodeDelivery);
    return this.#value(what, "GET", webhookPath(id, "/deliveries"), undefined, decode, options);
  }

  /** Returns the token of this client. */
  async token(options: CallOptions = {}): Promise<Token> {
    return this.#value("get the token", "GET", "/token", undefined, wire.decodeToken, options);
  }

  /** Returns what the server is, and the limits that this client meets there. */
  async about(options: CallOptions = {}): Promise<About> {
    return this.#value("get the server's version and limits", "GET", "/about", undefined, wire.decodeAbout, options);
  }

  /** Creates a token. It is not retried if the server may have created the token. */
  async createToken({ name, scopes, expires, rate }: TokenConfig, options: CallOptions = {}): Promise<NewToken> {
    wire.checkText(name, Code.NotJSON, "name");
    const end = expires === undefined || expires === null ? expires : formatTime(expires);
    const body = JSON.stringify({ name, scopes, expires: end, rate });
    return this.#secret("create a token", 201, "/tokens", body, wire.decodeNewToken, options);
  }

  /** Returns all tokens. */
  async tokens(options: CallOptions = {}): Promise<Token[]> {
    return this.#value("list tokens", "GET", "/tokens", undefined, (value) => wire.many(value, wire.decodeToken), options);
  }

  /** Returns the token with that id, or throws a NotFoundError. */
  async getToken(id: string, options: CallOptions = {}): Promise<Token> {
    return this.#value(`get token ${id}`, "GET", `/tokens/${encodeURIComponent(id)}`, undefined, wire.decodeToken, options);
  }

  /** Revokes a token, or throws a NotFoundError. Revoking it again succeeds. */
  async revokeToken(id: string, { signal }: CallOptions = {}): Promise<void> {
    await this.#retry(`revoke token ${id}`, signal, async () => {
      await this.#call(204, "DELETE", `/tokens/${encodeURIComponent(id)}`, { signal });
    });
  }

  async #send(
    exchange: Exchange, method: string, target: string,
    request: { accept: string; type?: string; headers?: Record<string, string>; init?: RequestInit; timeout: number },
  ): Promise<void> {
    if (this.#token === "") {
      throw serverError(Code.NoToken, "no token was given: pass it as token, and check that PLANTSTORE_TOKEN is set if it comes from there");
    }
    const headers: Record<string, string> = {
      ...request.headers, Authorization: `Bearer ${this.#token}`, Accept: request.accept,
    };
    if (request.type !== undefined) {
      headers["Content-Type"] = request.type;
    }
    const send = this.#options.fetch ?? globalThis.fetch;
    await exchange.send(send, this.#base + target, { ...request.init, method, headers }, request.timeout);
  }

  /** Makes one attempt at a call and reads the whole response, which must have the status. */
  async #call(
    status: number, method: string, target: string,
    options: CallOptions & { body?: string | undefined; headers?: Record<string, string> | undefined },
  ): Promise<Whole> {
    const exchange = new Exchange(options.signal);
    try {
      await this.#send(exchange, method, target, {
        accept: json,
        timeout: this.#options.timeout,
        ...(options.headers && { headers: options.headers }),
        ...(options.body !== undefined && { type: json, init: { body: options.body } }),
      });
      return await this.#whole(exchange, status);
    } finally {
      exchange.close();
    }
  }

  async #whole(exchange: Exchange, status: number): Promise<Whole> {
    if (exchange.response.status !== status) {
      throw await this.#responseError(exchange);
    }
    const body = await exchange.text(maxBody, this.#options.timeout);
    if (body === undefined) {
      throw new ResponseError(`the response is larger than the limit of ${maxBody >> 20} MiB`, 0, status);
    }
    return new Whole(exchange.response, body);
  }

  /** Returns the error that a response stands for. */
  async #responseError(exchange: Exchange): Promise<PlantstoreError | Transient> {
    const { response } = exchange;
    let err: PlantstoreError;
    let cut = false;
    try {
      err = new Whole(response, (await exchange.text(maxErrorBody, this.#options.timeout)) ?? "").error();
    } catch (failed) {
      if (!(failed instanceof Transient)) {
        throw failed;
      }
      cut = true;
      err = new TransportError(`the response "${response.status}" was cut off: ${failed.err.message}`);
    }
    switch (response.status) {
      case 502:
      case 503:
      case 504:
        return new Transient(err, { after: retryAfter(response.headers), maybeApplied: true });
      case 429:
        return new Transient(err, { after: retryAfter(response.headers) });
    }
    return cut ? new Transient(err) : err;
  }

  #retries(what: string, signal: AbortSignal | undefined): Retries {
    return new Retries(this.#options, signal, what, (err) => this.#fail(what, err) as PlantstoreError);
  }

  /**
   * Makes attempts until one succeeds or fails permanently. It passes each attempt
   * whether an earlier one may have been applied.
   */
  async #retry<T>(what: string, signal: AbortSignal | undefined, attempt: (maybeApplied: boolean) => Promise<T>): Promise<T> {
    const retries = this.#retries(what, signal);
    for (;;) {
      try {
        return await attempt(retries.maybeApplied);
      } catch (err) {
        if (!(err instanceof Transient)) {
          throw this.#fail(what, err);
        }
        await retries.failed(err);
      }
    }
  }

  /** Makes a call that can be retried and decodes its response. */
  async #value<T>(
    what: string, method: string, target: string, body: string | undefined, decode: (value: Json) => T, { signal }: CallOptions,
  ): Promise<T> {
    return this.#retry(what, signal, async () => (await this.#call(200, method, target, { body, signal })).decode(decode));
  }

  /** Makes a call whose response has a secret. It retries only what the server has not applied. */
  async #secret<T>(
    what: string, status: number, target: string, body: string | undefined, decode: (value: Json) => T, { signal }: CallOptions,
  ): Promise<T> {
    return this.#retry(what, signal, async () => {
      try {
        return (await this.#call(status, "POST", target, { body, signal })).decode(decode);
      } catch (err) {
        if (err instanceof Transient && err.options.maybeApplied) {
          throw withMessage(err.err, `${err.err.message}: it may have taken effect`);
        }
        throw err;
      }
    });
  }

  /** Makes one attempt at a deletion, for which an error with the number `done` is a success, too. */
  async #deleteOnce(
    target: string, options: CallOptions & { headers?: Record<string, string> }, done: number | undefined,
  ): Promise<void> {
    try {
      await this.#call(204, "DELETE", target, options);
    } catch (err) {
      if (!(err instanceof NotFoundError) || err.code !== done) {
        throw err;
      }
    }
  }

  /**
   * Makes a write with a condition. It passes each attempt its headers, and whether an earlier
   * one may have been applied.
   */
  async #writeIf<T>(
    what: string, id: bigint, condition: Condition,
    attempt: (headers: Record<string, string>, maybeApplied: boolean) => Promise<T>,
  ): Promise<T> {
    const { signal } = condition;
    const headers = conditionHeaders(condition);
    let lost = false;
    try {
      return await this.#retry(what, signal, async (maybeApplied) => {
        lost = maybeApplied;
        try {
          return await attempt(headers, maybeApplied);
        } catch (err) {
          lost ||= err instanceof Transient && err.options.maybeApplied === true;
          throw err;
        }
      });
    } catch (err) {
      if (!lost || !isOfVersion(condition) || !(err instanceof PlantstoreError)) {
        throw err;
      }
      const cause = err;
      throw await this.get(id, { details: true, signal }).then(
        (now) => new OutcomeError(cause, now),
        (failed: unknown) => new OutcomeError(cause, undefined, failed),
      );
    }
  }

  #redact(text: string): string {
    return this.#token === "" ? text : text.split(this.#token).join("[token]");
  }

  /**
   * Every error of a call passes through here. It adds what was attempted, unless the
   * server has said what is wrong, and removes the token from the text.
   */
  #fail(what: string, err: unknown): unknown {
    if (!(err instanceof PlantstoreError)) {
      return err; // the reason of a signal, or what an iterator has thrown
    }
    return withMessage(err, this.#redact(err.code === 0 ? `${what}: ${err.message}` : err.message));
  }
}

/** Counts the failed attempts of a call, and pauses between them. */
class Retries {
  maybeApplied = false;
  #attempts = 0;
  #began = 0;
  #pause = minPause;

  constructor(
    private readonly options: { retries: number; retryTimeout: number; retrying?: Options["retrying"] },
    private readonly signal: AbortSignal | undefined,
    private readonly what: string,
    private readonly fail: (err: PlantstoreError) => PlantstoreError,
  ) {}

  /** Waits for the next attempt, or throws the error if there is none. */
  async failed({ err, options }: Transient): Promise<void> {
    this.maybeApplied ||= options.maybeApplied === true;
    if (options.progress) {
      this.#attempts = 0;
      this.#pause = minPause;
    }
    if (this.#attempts === 0) {
      this.#began = Date.now();
    }
    this.#attempts++;
    const wait = (options.after ?? 0) + this.#pause * (1 - Math.random() / 2);
    this.#pause = Math.min(2 * this.#pause, maxPause);
    if (this.#attempts > this.options.retries || Date.now() - this.#began + wait > this.options.retryTimeout) {
      if (this.#attempts === 1) {
        throw this.fail(err);
      }
      const text = `${this.#attempts} attempts failed, the last one: ${err.message}`;
      throw this.fail(withMessage(err, err.code === 0 ? text : `${this.what}: ${text}`));
    }
    this.options.retrying?.(this.fail(err), wait);
    await sleep(wait, this.signal);
  }
}

/** A response that has been read to its end. */
class Whole {
  readonly headers: Headers;

  constructor(private readonly response: Response, private readonly body: string) {
    this.headers = response.headers;
  }

  /** Returns the error in the response, or one made from its status. */
  error(): PlantstoreError {
    const { status } = this.response;
    if (media(this.response) === json) {
      try {
        const err = wire.decodeError(this.#parse());
        if (err.status === status) {
          return err;
        }
      } catch (err) {
        if (err instanceof Transient) {
          throw err;
        }
      }
    }
    return foreignError(status, this.unexpected().message);
  }

  /** Says that the response does not come from a Plant Store. */
  unexpected(): ResponseError {
    const { status, type } = this.response;
    const location = this.headers.get("Location");
    if (location !== null || type === "opaqueredirect") {
      const to = location === null ? "" : ` to ${JSON.stringify(location.slice(0, 40))}`;
      return new ResponseError(`the response is "${status}", a redirect${to}, which is not followed: is the base URL right?`, 0, status);
    }
    const found = this.headers.get("Content-Type") ?? "no Content-Type";
    return new ResponseError(
      `the response is "${status}" with ${found} and not from a Plant Store: is the base URL right, and is there a proxy in between?`,
      0, status,
    );
  }

  decode<T>(decode: (value: Json) => T): T {
    if (media(this.response) !== json) {
      throw this.unexpected();
    }
    try {
      return decode(this.#parse());
    } catch (err) {
      throw err instanceof Transient ? err : this.unexpected();
    }
  }

  #parse(): Json {
    try {
      return parse(this.body);
    } catch (err) {
      if (hasEnd(this.response)) {
        throw err;
      }
      throw new Transient(new TransportError("the response was cut off"), { maybeApplied: true });
    }
  }

  /** Returns the plant, whose id is known. Its ETag is in the header, which a proxy may have made a weak one. */
  stored(id: bigint): StoredPlant {
    const version = (this.headers.get("ETag") ?? "").replace(/^W\/|"/g, "");
    return this.decode((value) => wire.decodeStored(value, { id, version }));
  }

  /** Checks that the response to a write is the plant that was sent. */
  confirm(sent: { name: string; tag?: string | undefined }): void {
    const got = this.decode(wire.decodePlant);
    if (got.name !== sent.name || got.tag !== sent.tag) {
      throw new ResponseError(`the response is "${this.response.status}" with a plant other than the one sent`, 0, 200);
    }
  }

  page(after: bigint | undefined, { order, afterName, count: counts }: PageQuery, decode: (value: Json) => NewPlant): Page {
    const plants = this.decode((value) => wire.many(value, decode));
    const count = counts ? this.count() : undefined;
    const link = nextLink(this.headers.get("Link") ?? "");
    if (link === undefined) {
      return { plants, next: undefined, count };
    }
    const query = new URLSearchParams(link.split("?")[1] ?? "");
    if (order === "name" || order === "-name") {
      const nextName = query.get("after") ?? "";
      if (nextName === "" || nextName === afterName) {
        throw new ResponseError(`the next page starts after ${JSON.stringify(nextName.slice(0, 40))}, as this page did`, 0, 200);
      }
      return { plants, next: undefined, nextName, count };
    }
    const first = query.get("id")?.split(",")[0]; // of the remaining ids, if the plants are selected by their ids
    const text = first ?? query.get("after") ?? "";
    if (!/^-?\d{1,19}$/.test(text)) {
      throw new ResponseError('cannot read "after" in the link to the next page', 0, 200);
    }
    const next = first === undefined ? BigInt(text) : BigInt(text) - 1n;
    if (after !== undefined && (order?.startsWith("-") ? next >= after : next <= after)) {
      throw new ResponseError(`the next page starts after ${next}, but this page already started after ${after}`, 0, 200);
    }
    return { plants, next, count };
  }

  /** Returns the count of a page, or undefined if it is not known. */
  count(): Count | undefined {
    const text = this.headers.get("Plantstore-Count") ?? "";
    if (!/^(\d{1,9}\+?|\?)$/.test(text)) {
      throw new ResponseError("the response has no Plantstore-Count, or one that is no count", 0, 200);
    }
    return text === "?" ? undefined : { plants: parseInt(text, 10), more: text.endsWith("+") };
  }

  tagPage(from: string | undefined): TagPage {
    const tags = this.decode((value) => wire.many(value, wire.decodeTag));
    const link = nextLink(this.headers.get("Link") ?? "");
    if (link === undefined) {
      return { tags, next: undefined };
    }
    const next = new URLSearchParams(link.split("?")[1] ?? "").get("from") ?? "";
    if (next === "" || next === from) {
      const [to, here] = [next, from ?? ""].map((text) => JSON.stringify(text.slice(0, 40)));
      throw new ResponseError(`the next page starts at ${to}, but this page already started at ${here}`, 0, 200);
    }
    return { tags, next };
  }

  eventPage(position: string | undefined): EventPage {
    const cursor = this.headers.get(cursorHeader) ?? "";
    if (cursor === "") {
      throw this.unexpected();
    }
    const events = this.decode((value) => wire.many(value, wire.decodeEvent)).flatMap((event) => event ?? []);
    const more = nextLink(this.headers.get("Link") ?? "") !== undefined;
    if (more && cursor === position) {
      throw new ResponseError(`the next page is at ${position}, but so was this one`, 0, 200);
    }
    return { events, cursor, more };
  }
}

/**
 * An export under way, to be read once: as plants, or as lines of NDJSON. `cursor` is its
 * position in the log of changes: the events after it are exactly the changes that the
 * export does not have.
 */
export class Export<P extends NewPlant = NewPlant> implements AsyncIterable<P> {
  readonly cursor: string;
  readonly #exchange: Exchange;
  readonly #rest: AsyncGenerator<string, void, undefined>;
  readonly #first: IteratorResult<string, void>;
  readonly #decode: (value: Json) => P;
  readonly #fail: (err: unknown) => unknown;

  /** @internal */
  constructor(
    exchange: Exchange, rest: AsyncGenerator<string, void, undefined>, first: IteratorResult<string, void>,
    decode: (value: Json) => P, fail: (err: unknown) => unknown,
  ) {
    this.cursor = exchange.response.headers.get(cursorHeader) ?? "";
    this.#exchange = exchange;
    this.#rest = rest;
    this.#first = first;
    this.#decode = decode;
    this.#fail = fail;
  }

  /** Ends an export that is not read. */
  close(): void {
    this.#exchange.close();
  }

  /** Yields lines with their ends, which importLines takes. */
  async *lines(): AsyncGenerator<string, void, undefined> {
    try {
      for (let line = this.#first; !line.done; line = await this.#rest.next()) {
        yield line.value + "\n";
      }
    } catch (err) {
      throw this.#fail(err instanceof Transient ? err.err : err);
    } finally {
      this.close();
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<P, void, undefined> {
    for await (const line of this.lines()) {
      let plant: P;
      try {
        plant = this.#decode(parse(line));
      } catch (err) {
        throw this.#fail(new ResponseError(`a line of the response is not a plant: ${(err as Error).message}`, 0, 200));
      }
      yield plant;
    }
  }
}

/**
 * Reads server-sent events and moves the position. An event takes effect at the blank
 * line that ends it, and so does an id without data, which says how far the log has been
 * searched.
 */
async function* readEvents(lines: AsyncIterable<string>, position: EventQuery): AsyncGenerator<PlantEvent, void, undefined> {
  let id = "";
  let data = "";
  for await (const ended of lines) {
    const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended;
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "id") {
      id = value;
    } else if (name === "data") {
      data += value + "\n";
      if (data.length > maxEvent) {
        throw new ResponseError(`an event is longer than ${maxEvent >> 20} MiB`, 0, 200);
      }
    } else if (line === "" && data !== "") {
      let event: PlantEvent | undefined;
      try {
        event = wire.decodeEvent(parse(data));
      } catch (err) {
        throw new ResponseError(`the event after ${position.after} cannot be read: ${(err as Error).message}`, 0, 200);
      }
      if (event !== undefined && event.cursor !== id) {
        throw new ResponseError(`the event with the id ${id} has the cursor ${event.cursor}`, 0, 200);
      }
      position.after = id;
      data = "";
      if (event !== undefined) {
        yield event;
      }
    } else if (line === "" && id !== "") {
      position.after = id;
    }
  }
}

function baseURL(text: string): string {
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    // It is refused below.
  }
  if (
    url === undefined || !/^https?:$/.test(url.protocol) || url.hostname === "" || url.username !== "" ||
    url.password !== "" || /[?#]/.test(text)
  ) {
    // The text is not shown: it may contain a password, or be the token.
    throw new TypeError("the base URL must look like https://example.com or https://example.com/path");
  }
  return url.href.replace(/\/+$/, "");
}

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Refuses what cannot be a token. The error never contains it. */
function checkToken(token: string): void {
  if (/[<>…]/.test(token) || (token.startsWith("plt_") && token.includes("..."))) {
    throw new TypeError("the token is a placeholder: put a real one in its place");
  }
  if (!/^[0-9A-Za-z\-._~+/]+=*$/.test(token)) {
    throw new TypeError("the token has characters that are not allowed in a bearer token");
  }
  if (!token.startsWith("plt_")) {
    return;
  }
  if (token.length !== 40) {
    throw new TypeError(`a token that begins with plt_ has 40 characters, this one has ${token.length}`);
  }
  let n = crc32(token.slice(4, 34));
  let sum = "";
  for (let i = 0; i < 6; i++) {
    sum = (base62[n % 62] as string) + sum;
    n = Math.floor(n / 62);
  }
  if (sum !== token.slice(34)) {
    throw new TypeError("the token's checksum is wrong: is it complete?");
  }
}

function crc32(text: string): number {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc ^= text.charCodeAt(i);
    for (let bit = 0; bit < 8; bit++) {
      crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
    }
  }
  return ~crc >>> 0;
}

function media(response: Response): string {
  return ((response.headers.get("Content-Type") ?? "").split(";")[0] as string).trim().toLowerCase();
}

function conditionHeaders({ ifMatch, ifNoneMatch }: Condition): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, tags] of [["If-Match", ifMatch], ["If-None-Match", ifNoneMatch]] as const) {
    if (tags === undefined) {
      continue;
    }
    if (!/^(\*|(W\/)?"[!#-~]*"(, *(W\/)?"[!#-~]*")*)$/.test(tags)) {
      throw serverError(Code.Parameter, `${name} must be * or a list of quoted ETags, got ${JSON.stringify(tags.slice(0, 40))}`);
    }
    headers[name] = tags;
  }
  return headers;
}

/** Whether the condition requires a version. */
function isOfVersion({ ifMatch }: Condition): boolean {
  return ifMatch !== undefined && ifMatch !== "*";
}

/** Returns the query of a URL. What is undefined is left out. */
function params(values: Record<string, string | readonly string[] | number | bigint | boolean | undefined>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined) {
        query.append(name, wire.checkText(String(one), Code.Parameter, name));
      }
    }
  }
  const text = query.toString();
  return text === "" ? "" : `?${text}`;
}

function plantDecoder({ details }: PlantQuery): (value: Json) => NewPlant {
  return details ? (value) => wire.decodeStored(value) : wire.decodeNewPlant;
}

function plantsPath({ ids, order, after, afterName, tag, tagPrefix, untagged, q, limit, details, count }: PageQuery): string {
  const last = after === undefined ? undefined : wire.toId(after);
  const filter = {
    order: order === "id" ? undefined : order,
    tag,
    tag_prefix: tagPrefix,
    untagged: untagged || undefined,
    q: q === "" ? undefined : q,
    details: details || undefined,
    count: count || undefined,
  };
  if (ids === undefined) {
    return "/plants" + params({ after: afterName ?? last, ...filter, limit });
  }
  const rest = ids.map(wire.toId).filter((id) => last === undefined || id > last);
  return "/plants" + params({ ...filter, id: rest.join(",") });
}

function eventParams({ after, since, id, types, by, q, details }: EventQuery): Record<string, string | bigint | boolean | undefined> {
  return {
    after,
    since: after === undefined && since !== undefined ? formatTime(since) : undefined,
    id: id === undefined ? undefined : wire.toId(id),
    type: types === undefined || types.length === 0 ? undefined : types.join(","),
    by,
    q: q || undefined,
    details: details || undefined,
  };
}

function formatTime(time: Date | string): string {
  return typeof time === "string" ? time : time.toISOString().replace(/\.000Z$/, "Z");
}

function webhookPath(id: string, action = ""): string {
  return `/webhooks/${encodeURIComponent(id)}${action}`;
}

function webhookBody(url: string, { types, description }: WebhookOptions, after: string | undefined): string {
  return JSON.stringify({
    url: wire.checkText(url, Code.NotJSON, "url"),
    types: types?.length ? types : undefined,
    description: description ? wire.checkText(description, Code.NotJSON, "description") : undefined,
    after: after || undefined,
  });
}

/** Returns the target of the link with rel="next" (RFC 8288). */
function nextLink(header: string): string | undefined {
  for (const [, target, rest] of header.matchAll(/<([^>]*)>([^<]*)/g)) {
    for (const [, rel] of (rest as string).matchAll(/;\s*rel\s*=\s*"?([^";,]*)/gi)) {
      if ((rel as string).toLowerCase().split(/\s+/).includes("next")) {
        return target;
      }
    }
  }
  return undefined;
}

type Many<T> = Iterable<T> | AsyncIterable<T>;

type Deletion = Pick<ImportLine, "id" | "ifVersion">;

function isAsync<T>(values: Many<T>): values is AsyncIterable<T> {
  return Symbol.asyncIterator in values;
}

function* map<T, U>(values: Iterable<T>, f: (value: T) => U): Generator<U> {
  for (const value of values) {
    yield f(value);
  }
}

async function* mapAsync<T, U>(values: AsyncIterable<T>, f: (value: T) => U): AsyncGenerator<U> {
  for await (const value of values) {
    yield f(value);
  }
}
