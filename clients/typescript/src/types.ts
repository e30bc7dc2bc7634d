// Generated from openapi.yaml: go -C e2e test ./clients -run TypesAreCurrent -update
//
// An id is a bigint, because a number loses integers above 2^53. Other integers are
// numbers. The schemas Error and Event have other names here: those are JavaScript's.

export type Plant = {
  /** The name of the plant */
  name: string;
  /** Tag that specifies the type of the plant */
  tag?: string;
};

/** What `details=true` adds to a plant */
export type PlantDetails = {
  /** The version of the plant, an opaque text. In quotes it is the plant's ETag. */
  version?: string;
  /** When the plant was created; absent if a release before 0.3.0 did that */
  created?: string;
  /** When the plant was last changed; absent if a release before 0.3.0 did that */
  updated?: string;
};

export type PlantPatch = {
  /** The new name of the plant */
  name?: string;
  /** The new tag of the plant; `null` removes it */
  tag?: string | null;
};

export type NewPlant = Plant & {
  /** Identification number of the plant */
  id: bigint;
};

export type TagCount = {
  /** The tag */
  tag: string;
  /** The number of plants with the tag, counted up to 1,000 */
  plants: number;
  /** Whether there are more plants than were counted; absent means no */
  more?: boolean;
};

export type Bucket = {
  /** When the bucket begins */
  time: string;
  /** The number of events in the bucket */
  events: number;
  /** Whether the bucket begins before the oldest event kept; absent means no */
  partial?: boolean;
};

export type ErrorBody = {
  /**
   * Numeric error code: the HTTP status times 100, plus a number. Codes are never
   * reused.
   *
   * 40001 the body is not JSON · 40002 the body is not an object, or an array where one is imported ·
   * 40003 a field is missing · 40004 a field has the wrong type ·
   * 40005 the id is outside int64 · 40006 a parameter is invalid · 40007 too many plants to sort by name · 40008 the body is not CSV ·
   * 40010 the id is taken by another plant · 40101 no token ·
   * 40102 the token is unknown, malformed or revoked · 40103 the token has
   * expired · 40301 the token lacks the scope ·
   * 40302 the token would have more rights than its creator ·
   * 40401 no such path · 40402 no such plant · 40403 no such token ·
   * 40404 no such webhook · 40501 the method is not allowed ·
   * 40801 the request arrived too slowly · 40901 the last token that can create others ·
   * 40902 too many · 40903 the webhook is disabled or paused · 41001 the cursor is gone ·
   * 41201 the precondition does not hold ·
   * 41301 the body is too large · 41501 the body has the wrong media type ·
   * 42901 too many requests · 43101 the header is too large ·
   * 50001 the server failed · 50301 overloaded, or the store is unavailable
   */
  error: number;
  /** Text describing the error */
  message: string;
};

/**
 * One change, of the kind that `type` names. Later versions may add types: ignore those that you
 * do not know, and take their `cursor` like any other.
 */
export type LogEvent = PlantEvent | TokenEvent;

/** A change to a plant */
export type PlantEvent = {
  /** The position after this event */
  cursor: string;
  /** When the change was committed */
  time: string;
  /** What happened */
  type: "plant.created" | "plant.replaced" | "plant.deleted";
  /** The plant after the change, or before a deletion */
  plant: NewPlant;
  /** The public id of the token that made the change, or the issuer and subject of an identity provider's token */
  by: string;
  /** The version of the plant after the change, with `details=true` */
  version?: string;
};

/** A change to a token, only for readers with the scope `tokens:read` */
export type TokenEvent = {
  /** The position after this event */
  cursor: string;
  /** When the change was committed */
  time: string;
  /** What happened */
  type: "token.created" | "token.revoked";
  /** The token after the change, without its secret and without `last_used` */
  token: Token;
  /** Who made the change, as in a PlantEvent, or `operator` if it was made on the database itself */
  by: string;
};

/** A token of the store, which has an id and a name, or of an identity provider, which has an issuer and a subject. */
export type Token = {
  /** The public id of the token */
  id?: string;
  /** The name of the token */
  name?: string;
  /** The identity provider */
  issuer?: string;
  /** The caller, as the identity provider names them */
  subject?: string;
  /** The rights of the token on this server */
  scopes: Scope[];
  /** The rate limit of the token, such as `200/s,burst=400`; absent if it is the server's default */
  rate?: string;
  created: string;
  /** When the token expires; null for never */
  expires: string | null;
  /** When the token was revoked, if it was */
  revoked?: string;
  /** When the token was last used, if ever, to within about ten seconds, or longer while more than a hundred tokens are in use */
  last_used?: string;
  /** The secret, only in the response that creates the token */
  token?: string;
};

/** A right of a token. Later releases may add more */
export type Scope = "plants:write" | "plants:read" | "events:read" | "tokens:read" | "tokens:write" | "webhooks:read" | "webhooks:write" | "ops:read";

export type NewToken = {
  /** The name of the token, in at most 200 bytes */
  name: string;
  /** The rights of the token */
  scopes: Scope[];
  /**
   * When the token expires. If this is absent, it expires in 90 days, or with your own token if
   * that is sooner; null means never, if your own never expires.
   */
  expires?: string | null;
  /**
   * The rate limit of the token, such as 200/s, 200/s,burst=400 or 30/m. If this is absent or
   * null, it is the rate of your own token, or the server's default if yours has none. It is at
   * most your own rate limit, the server's default included.
   */
  rate?: string | null;
};

export type About = {
  /** The release of the server */
  version: string;
  /** The version of this interface */
  interface: string;
  /** Where the plants are stored */
  store: "sqlite" | "postgres";
  /** The number of plants; absent if your token may not read them */
  plants?: number;
  limits: Limits;
  /** When this server started */
  started?: string;
  /** The size of the store on disk: of the SQLite file and its write-ahead log, or of the PostgreSQL database */
  bytes?: number;
  log?: AboutLog;
  search_index?: SearchIndex;
};

/** The part of the log of changes that is kept */
export type AboutLog = {
  /** The number of events kept */
  events: number;
  /** Their size */
  bytes: number;
  /** When the oldest of them was committed; absent if there is none */
  oldest?: string;
};

/** The index of names, with which a search need not examine all plants */
export type SearchIndex = {
  /** `ready` if searches use it. While it is `building`, and when it is `off`, they examine all plants. */
  state: "off" | "building" | "ready";
  /** The number of plants that it has; while it is being built, approximately */
  plants: number;
};

export type Limits = {
  /** The largest body of a request, or line of an import, in bytes */
  max_body: number;
  /** The largest header of a request, in bytes */
  max_header: number;
  /** The largest number of items on a page */
  max_page_size: number;
  /** The longest name of a token, in bytes */
  max_token_name: number;
  /** The largest number of active tokens; revoked and expired ones do not count */
  max_tokens: number;
  /** The largest number of webhooks */
  max_webhooks: number;
  /** The rate limit of your token, such as `200/s,burst=400`; null for none */
  rate_limit: string | null;
  /** How long events are kept, in seconds; null for no limit */
  log_keep_seconds: number | null;
  /** The approximate size of the log of changes at which the oldest events are removed; null for no limit */
  log_max_bytes: number | null;
};

export type ImportReport = {
  /** Plants that are new */
  created: number;
  /** Plants that were replaced; absent without `mode` and `dry_run` */
  replaced?: number;
  /** Plants that were deleted; absent without `mode` and `dry_run` */
  deleted?: number;
  /** Plants that already existed, exactly as sent, or were not there to be deleted */
  unchanged: number;
  /** Lines or elements that were refused */
  failed: number;
  /** The first of those that were refused, in order */
  errors: (ErrorBody & {
    /** Number of the line of the body, from 1; in an array, of the element; in CSV, of the line where the record begins */
    line: number;
  })[];
  /** The first lines or elements of each outcome, in order; absent without `dry_run` */
  first?: {
    created: FirstLines;
    replaced: FirstLines;
    deleted: FirstLines;
    unchanged: FirstLines;
  };
};

export type FirstLines = number[];

export type WebhookConfig = {
  /** The URL to send changes to */
  url: string;
  /** Which changes to send: all if it is empty or absent */
  types?: ("plant.created" | "plant.replaced" | "plant.deleted")[];
  /** The purpose of the webhook: at most 1024 bytes */
  description?: string;
};

export type NewWebhook = {
  /** The URL to send changes to */
  url: string;
  /** Which changes to send: all if it is empty or absent */
  types?: ("plant.created" | "plant.replaced" | "plant.deleted")[];
  /** The purpose of the webhook: at most 1024 bytes */
  description?: string;
  /** A cursor, or `latest`. Changes after that position are sent. The default is `latest` */
  after?: string;
};

export type Webhook = {
  /** Identifies the webhook */
  id: string;
  /** The URL that changes are sent to */
  url: string;
  /** Which changes are sent */
  types: ("plant.created" | "plant.replaced" | "plant.deleted")[];
  /** The purpose of the webhook */
  description: string;
  /** Whether changes are sent. A webhook is disabled if it was paused, if an event could not be delivered for 3 days, if the receiver responds with 410, or if the events after its position are no longer kept */
  state: "active" | "disabled";
  /** Why it is disabled; `paused` if it was paused */
  reason?: string;
  /** When it was created */
  created: string;
  /** Who created it, as in a PlantEvent. Absent if the webhook was created by an older release */
  by?: string;
  /** When an event was last delivered; absent if none has been */
  delivered?: string;
  failing?: Failing;
  /** The number of undelivered events of its types, counted up to 1,000. Only the next 1,000 events of the log after those that were sent are examined: events beyond them do not count */
  pending: number;
  /** The age of the oldest of these events, in milliseconds; 0 if there is none */
  lag_ms: number;
  /** Whether events arrive: `healthy`; `catching_up` if they do and the oldest undelivered one is older than 10 s; `failing` if the last attempt failed; `paused`; `disabled` for another reason */
  health: "healthy" | "catching_up" | "failing" | "paused" | "disabled";
  /** When the next attempt at an event that has failed is due; absent if none has, and while the webhook is disabled */
  next_attempt?: string;
  last_error?: WebhookError;
};

/** The oldest undelivered event that has failed. Present only while the last attempt, at the present URL, is one that failed; absent after a resumption until the next attempt */
export type Failing = {
  /** When the first attempt at it failed, or the first one since the webhook was resumed or its URL changed */
  since: string;
  /** The number of failed attempts at it */
  attempts: number;
  /** The reason for the last failure, of this event or another of the webhook: at most 200 bytes */
  error: string;
};

/** Why an attempt last failed. It stays after deliveries have succeeded and after the URL has changed; absent if no attempt has failed */
export type WebhookError = {
  /** The URL that was called */
  url: string;
  /** When the attempt began */
  time: string;
  /** The reason for the failure: at most 200 bytes */
  error: string;
};

export type WebhookWithSecret = Webhook & {
  /** The secret that signs messages: `whsec_` and base64 */
  secret: string;
};

export type Replay = {
  /** A cursor, or `latest`. Events after that position are sent */
  after?: string;
  /** Events from this time on are sent. A time more than a minute in the future is refused */
  since?: string;
};

export type Delivery = {
  /** The cursor of the event; empty for a test */
  event: string;
  /** The type of the event, or `webhook.test` */
  type: string;
  /** The number of attempts at this event so far, including this one */
  attempt: number;
  /** When the attempt began */
  time: string;
  /** The status of the response, or 0 if there was none */
  status: number;
  /** The duration of the attempt, in milliseconds */
  duration_ms: number;
  /** Why there was no response; absent if there was one */
  error?: string;
  /** The start of the body of the response */
  response?: string;
};

/** The message about a change, as Standard Webhooks defines it */
export type Message = {
  /** What happened */
  type: "plant.created" | "plant.replaced" | "plant.deleted";
  /** When the change was committed */
  timestamp: string;
  data: NewPlant;
};

export type TestMessage = {
  type: "webhook.test";
  timestamp: string;
  data: {
    /** The id of the webhook */
    webhook: string;
  };
};
