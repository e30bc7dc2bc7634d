import type { StoredPlant } from "./wire.js";

/** The numbers of the errors. A number divided by 100 is the HTTP status. */
export const Code = {
  NotJSON: 40001,
  NotObject: 40002,
  Missing: 40003,
  Type: 40004,
  Range: 40005,
  Parameter: 40006,
  TooManyToSort: 40007,
  NotCSV: 40008,
  IdTaken: 40010,
  NoToken: 40101,
  BadToken: 40102,
  TokenExpired: 40103,
  Scope: 40301,
  Grant: 40302,
  NoPath: 40401,
  NoPlant: 40402,
  NoSuchToken: 40403,
  NoWebhook: 40404,
  Method: 40501,
  Timeout: 40801,
  LastToken: 40901,
  TooMany: 40902,
  Disabled: 40903,
  Gone: 41001,
  Precondition: 41201,
  TooLarge: 41301,
  MediaType: 41501,
  Rate: 42901,
  Headers: 43101,
  Internal: 50001,
  Unavailable: 50301,
} as const;

/**
 * A call that failed. `code` is the number of the error, see {@link Code}, or 0 if the
 * server has sent none. `status` is the HTTP status, or 0 if there was no response. The
 * message never contains the token.
 */
export class PlantstoreError extends Error {
  readonly code: number;
  readonly status: number;

  constructor(message: string, code = 0, status = Math.floor(code / 100)) {
    super(message);
    this.code = code;
    this.status = status;
    Object.defineProperty(this, "name", { value: new.target.name, enumerable: false });
  }
}

/** The token is missing, unknown, revoked or expired. */
export class UnauthorizedError extends PlantstoreError {}

/** The token does not have what the operation needs. */
export class ForbiddenError extends PlantstoreError {}

/** There is no such plant, webhook, token or path. */
export class NotFoundError extends PlantstoreError {}

/** Another plant has the id. */
export class IdTakenError extends PlantstoreError {}

/** The cursor is from another store, or the events after it are no longer kept. */
export class GoneError extends PlantstoreError {}

/** ifMatch or ifNoneMatch does not hold. */
export class PreconditionError extends PlantstoreError {}

/** The server is overloaded, or its store cannot be reached, or too many requests. */
export class UnavailableError extends PlantstoreError {}

/** There was no response, or it was cut off. */
export class TransportError extends PlantstoreError {}

/** The response is not what a Plant Store sends. */
export class ResponseError extends PlantstoreError {}

/**
 * The response to a write with a version as its condition was lost, and the repeated attempt
 * failed: nobody knows whether the first one was applied. `cause` is the error of the last
 * attempt, and `now` the plant after that. If it could not be read, `readError` says why: a
 * NotFoundError if there is no plant.
 */
export class OutcomeError extends PlantstoreError {
  constructor(
    override readonly cause: PlantstoreError, readonly now: StoredPlant | undefined, readonly readError?: unknown,
  ) {
    super(`the outcome is unknown, because a response was lost; after that: ${cause.message}`, cause.code, cause.status);
  }
}

type ErrorClass = new (message: string, code?: number, status?: number) => PlantstoreError;

const byStatus: Record<number, ErrorClass> = {
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  410: GoneError,
  412: PreconditionError,
  429: UnavailableError,
  503: UnavailableError,
};

/**
 * The codes for the statuses of proxies and other servers. A 404 of theirs says nothing
 * about a plant.
 */
const codeOf: Record<number, number> = {
  401: Code.BadToken,
  403: Code.Scope,
  404: Code.NoPath,
  405: Code.Method,
  408: Code.Timeout,
  410: Code.Gone,
  412: Code.Precondition,
  413: Code.TooLarge,
  415: Code.MediaType,
  429: Code.Rate,
  431: Code.Headers,
  500: Code.Internal,
  502: Code.Unavailable,
  503: Code.Unavailable,
  504: Code.Unavailable,
};

/** Returns an error with the class for its code. */
export function serverError(code: number, message: string): PlantstoreError {
  const kind = code === Code.IdTaken ? IdTakenError : byStatus[Math.floor(code / 100)] ?? PlantstoreError;
  return new kind(message, code);
}

/** Returns the error for a response that is not from a Plant Store. */
export function foreignError(status: number, message: string): PlantstoreError {
  const code = codeOf[status];
  return code === undefined ? new ResponseError(message, 0, status) : serverError(code, message);
}

/** Returns the same error with another message. */
export function withMessage(err: PlantstoreError, message: string): PlantstoreError {
  return new (err.constructor as ErrorClass)(message, err.code, err.status);
}

/** A failure that may not recur. */
export class Transient {
  constructor(
    readonly err: PlantstoreError,
    readonly options: {
      /** How long the server asks to wait, in milliseconds. */
      after?: number;
      /** The server may have applied the request. */
      maybeApplied?: boolean;
      /** The attempt achieved something, so that the retries start over. */
      progress?: boolean;
    } = {},
  ) {}
}
