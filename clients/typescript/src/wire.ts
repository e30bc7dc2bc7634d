import { Code, PlantstoreError, serverError } from "./errors.js";
import { Json } from "./json.js";
import type { About, AboutLog, Bucket, Delivery, Failing, NewPlant, Plant, PlantEvent, PlantPatch, SearchIndex, TagCount, Webhook, WebhookError, WebhookWithSecret } from "./types.js";
import type { NewToken, Token } from "./tokens.js";

/** An id: a bigint, or a number that is a safe integer. */
export type Id = bigint | number;

const minId = -(2n ** 63n);
const maxId = 2n ** 63n - 1n;

/** Returns an id as a bigint. */
export function toId(id: Id): bigint {
  if (typeof id === "bigint") {
    if (id < minId || id > maxId) {
      throw serverError(Code.Range, `"id" must be from ${minId} to ${maxId}, got ${id}`);
    }
    return id;
  }
  if (!Number.isSafeInteger(id)) {
    throw new TypeError(`an id must be a bigint or a safe integer, got ${String(id)}: write it as 123n`);
  }
  return BigInt(id);
}

/** Checks that text has no unpaired surrogate, which JSON and URLs cannot express. */
export function checkText(text: string, code: number, name: string): string {
  if (typeof text !== "string") {
    throw new TypeError(`${JSON.stringify(name)} must be a string, got ${typeof text}`);
  }
  if (/\p{Surrogate}/u.test(text)) {
    throw serverError(code, `${JSON.stringify(name)} must be valid Unicode, without unpaired surrogates`);
  }
  return text;
}

export function encodePlant(plant: { name: string; tag?: string | undefined }, id?: bigint): string {
  const name = JSON.stringify(checkText(plant.name, Code.NotJSON, "name"));
  const tag = plant.tag === undefined ? "" : `,"tag":${JSON.stringify(checkText(plant.tag, Code.NotJSON, "tag"))}`;
  return `{${id === undefined ? "" : `"id":${id},`}"name":${name}${tag}}`;
}

/** Returns a line of an import: if only its id counts, without the rest of the plant. */
export function encodeLine(
  line: { id: Id; name?: string; tag?: string | undefined; ifVersion?: string | undefined },
  onlyId: boolean,
): string {
  const id = toId(line.id);
  const plant = onlyId ? `{"id":${id}}` : encodePlant(line as { name: string }, id);
  if (line.ifVersion === undefined) {
    return plant;
  }
  return `${plant.slice(0, -1)},"if_version":${JSON.stringify(checkText(line.ifVersion, Code.NotJSON, "ifVersion"))}}`;
}

export function encodePatch({ name, tag }: PlantPatch): string {
  return JSON.stringify({
    name: name === undefined ? undefined : checkText(name, Code.NotJSON, "name"),
    tag: tag === undefined || tag === null ? tag : checkText(tag, Code.NotJSON, "tag"),
  });
}

/** Text that is not what the interface says. */
export class Malformed extends Error {}

type Members = { [name: string]: Json };

export function toObject(value: Json | undefined): Members {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new Malformed("not an object");
  }
  return value;
}

function text(members: Members, name: string): string {
  const value = members[name];
  if (typeof value !== "string") {
    throw new Malformed(`"${name}" is missing or not a string`);
  }
  return value;
}

function integer(members: Members, name: string): number {
  const value = members[name];
  if (!Number.isSafeInteger(value)) {
    throw new Malformed(`"${name}" is missing or not an integer`);
  }
  return value as number;
}

function id64(members: Members): bigint {
  const value = members["id"];
  if (typeof value === "bigint" && value >= minId && value <= maxId) {
    return value;
  }
  return BigInt(integer(members, "id"));
}

/** Returns an object without the members that are undefined. */
function given<T extends object>(members: T): T {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as T;
}

function optional(members: Members, name: string): string | undefined {
  return members[name] === undefined || members[name] === null ? undefined : text(members, name);
}

function optionalTime(members: Members, name: string): Date | undefined {
  const value = optional(members, name);
  const time = value === undefined ? undefined : new Date(value);
  if (Number.isNaN(time?.getTime())) {
    throw new Malformed(`"${name}" is not a time`);
  }
  return time;
}

function optionalInteger(members: Members, name: string): number | undefined {
  return members[name] === undefined || members[name] === null ? undefined : integer(members, name);
}

function flag(members: Members, name: string): boolean | undefined {
  const value = members[name] ?? undefined;
  if (value !== undefined && typeof value !== "boolean") {
    throw new Malformed(`"${name}" is not a boolean`);
  }
  return value;
}

export function many<T>(value: Json | undefined, decode: (value: Json) => T): T[] {
  if (!Array.isArray(value)) {
    throw new Malformed("not an array");
  }
  return value.map(decode);
}

function texts(members: Members, name: string): string[] {
  return many(members[name], (value) => text({ value }, "value"));
}

export function decodePlant(value: Json): Plant {
  const members = toObject(value);
  const plant: Plant = { name: text(members, "name") };
  if (members["tag"] !== undefined) {
    plant.tag = text(members, "tag");
  }
  return plant;
}

export function decodeNewPlant(value: Json | undefined): NewPlant {
  const members = toObject(value);
  return { id: id64(members), ...decodePlant(members) };
}

/** A plant with its version, of which the ETag is what a condition takes. */
export type StoredPlant = NewPlant & {
  version: string;
  etag: string;
  /** When it was created, if the server knows and `details` were asked for. */
  created?: Date;
  /** When it was last changed, if the server knows and `details` were asked for. */
  updated?: Date;
};

/** Reads a plant with its details: without its id and version if they are known. */
export function decodeStored(value: Json, known?: { id: bigint; version: string }): StoredPlant {
  const members = toObject(value);
  const { id, version } = known ?? { id: id64(members), version: text(members, "version") };
  const times = { created: optionalTime(members, "created"), updated: optionalTime(members, "updated") };
  return given({ id, ...decodePlant(members), version, etag: `"${version}"`, ...times }) as StoredPlant;
}

export function decodeTag(value: Json): TagCount {
  const members = toObject(value);
  return given({ tag: text(members, "tag"), plants: integer(members, "plants"), more: flag(members, "more") }) as TagCount;
}

export function decodeError(value: Json): PlantstoreError {
  const members = toObject(value);
  return serverError(integer(members, "error"), text(members, "message"));
}

/** Why one line of an import failed. The first line is 1. */
export interface LineError {
  line: number;
  code: number;
  message: string;
}

/**
 * How many lines of an import created, replaced or deleted a plant, left it unchanged or failed.
 * `replaced` and `deleted` are 0 without a mode. `errors` says why the first lines failed, 100 at
 * most.
 */
export interface ImportReport {
  created: number;
  replaced: number;
  deleted: number;
  unchanged: number;
  failed: number;
  errors: LineError[];
}

export function decodeReport(value: Json): ImportReport {
  const members = toObject(value);
  return {
    created: integer(members, "created"),
    replaced: optionalInteger(members, "replaced") ?? 0,
    deleted: optionalInteger(members, "deleted") ?? 0,
    unchanged: integer(members, "unchanged"),
    failed: integer(members, "failed"),
    errors: many(members["errors"], (value) => {
      const line = toObject(value);
      return { line: integer(line, "line"), code: integer(line, "error"), message: text(line, "message") };
    }),
  };
}

/** Returns an event of a plant, or undefined for one of anything else. */
export function decodeEvent(value: Json): PlantEvent | undefined {
  const members = toObject(value);
  const type = text(members, "type");
  if (!type.startsWith("plant.")) {
    return undefined;
  }
  return given({
    cursor: text(members, "cursor"),
    time: text(members, "time"),
    type: type as PlantEvent["type"],
    plant: decodeNewPlant(members["plant"]),
    by: text(members, "by"),
    version: optional(members, "version"),
  }) as PlantEvent;
}

export function decodeBucket(value: Json): Bucket {
  const members = toObject(value);
  return given({ time: text(members, "time"), events: integer(members, "events"), partial: flag(members, "partial") }) as Bucket;
}

export function decodeWebhook(value: Json): Webhook {
  const members = toObject(value);
  return given({
    id: text(members, "id"),
    url: text(members, "url"),
    types: texts(members, "types"),
    description: text(members, "description"),
    state: text(members, "state"),
    reason: optional(members, "reason"),
    created: text(members, "created"),
    by: optional(members, "by"),
    delivered: optional(members, "delivered"),
    failing: members["failing"] === undefined ? undefined : decodeFailing(members["failing"]),
    pending: optionalInteger(members, "pending") ?? 0, // as of an older server
    lag_ms: optionalInteger(members, "lag_ms") ?? 0,
    health: optional(members, "health") ?? olderHealth(members),
    next_attempt: optional(members, "next_attempt"),
    last_error: members["last_error"] === undefined ? undefined : decodeWebhookError(members["last_error"]),
  }) as Webhook;
}

/** The health of a webhook for a server before 0.3.0, which does not send it. */
function olderHealth(members: Members): Webhook["health"] {
  if (members["state"] === "disabled") return "disabled";
  return members["failing"] === undefined ? "healthy" : "failing";
}

function decodeWebhookError(value: Json): WebhookError {
  const members = toObject(value);
  return { url: text(members, "url"), time: text(members, "time"), error: text(members, "error") };
}

function decodeFailing(value: Json): Failing {
  const members = toObject(value);
  return { since: text(members, "since"), attempts: integer(members, "attempts"), error: text(members, "error") };
}

export function decodeWebhookWithSecret(value: Json): WebhookWithSecret {
  return { ...decodeWebhook(value), secret: text(toObject(value), "secret") };
}

export function decodeDelivery(value: Json): Delivery {
  const members = toObject(value);
  return given({
    event: text(members, "event"),
    type: text(members, "type"),
    attempt: integer(members, "attempt"),
    time: text(members, "time"),
    status: integer(members, "status"),
    duration_ms: integer(members, "duration_ms"),
    error: optional(members, "error"),
    response: optional(members, "response"),
  }) as Delivery;
}

export function decodeToken(value: Json): Token {
  const members = toObject(value);
  return given({
    id: optional(members, "id"),
    name: optional(members, "name"),
    scopes: texts(members, "scopes"),
    rate: optional(members, "rate"),
    created: optional(members, "created"),
    expires: optional(members, "expires") ?? null,
    issuer: optional(members, "issuer"),
    subject: optional(members, "subject"),
  }) as Token;
}

export function decodeNewToken(value: Json): NewToken {
  return { ...decodeToken(value), token: text(toObject(value), "token") };
}

function decodeAboutLog(value: Json): AboutLog {
  const members = toObject(value);
  return given({ events: integer(members, "events"), bytes: integer(members, "bytes"), oldest: optional(members, "oldest") }) as AboutLog;
}

function decodeSearchIndex(value: Json): SearchIndex {
  const members = toObject(value);
  return { state: text(members, "state") as SearchIndex["state"], plants: integer(members, "plants") };
}

export function decodeAbout(value: Json): About {
  const members = toObject(value);
  const limits = toObject(members["limits"]);
  return given({
    version: text(members, "version"),
    interface: text(members, "interface"),
    store: text(members, "store") as About["store"],
    plants: optionalInteger(members, "plants"),
    started: optional(members, "started"),
    bytes: optionalInteger(members, "bytes"),
    log: members["log"] === undefined ? undefined : decodeAboutLog(members["log"]),
    search_index: members["search_index"] === undefined ? undefined : decodeSearchIndex(members["search_index"]),
    limits: {
      max_body: integer(limits, "max_body"),
      max_header: integer(limits, "max_header"),
      max_page_size: integer(limits, "max_page_size"),
      max_token_name: integer(limits, "max_token_name"),
      max_tokens: integer(limits, "max_tokens"),
      max_webhooks: integer(limits, "max_webhooks"),
      rate_limit: optional(limits, "rate_limit") ?? null,
      log_keep_seconds: optionalInteger(limits, "log_keep_seconds") ?? null,
      log_max_bytes: optionalInteger(limits, "log_max_bytes") ?? null,
    },
  }) as About;
}
