export { Export, Plantstore } from "./client.js";
export type {
  CallOptions,
  Condition,
  Count,
  DetailOptions,
  EventPage,
  EventQuery,
  HistogramQuery,
  ImportLine,
  ImportMode,
  ImportOptions,
  Lines,
  LinesOptions,
  Options,
  Order,
  Page,
  PageQuery,
  PlantInput,
  PlantQuery,
  TagPage,
  TagQuery,
  WebhookOptions,
} from "./client.js";
export {
  Code,
  ForbiddenError,
  GoneError,
  IdTakenError,
  NotFoundError,
  OutcomeError,
  PlantstoreError,
  PreconditionError,
  ResponseError,
  TransportError,
  UnauthorizedError,
  UnavailableError,
} from "./errors.js";
export { parse, stringify } from "./json.js";
export type { Json } from "./json.js";
export type { NewToken, Token, TokenConfig } from "./tokens.js";
export type {
  About,
  AboutLog,
  Bucket,
  Delivery,
  Failing,
  Limits,
  NewPlant,
  Plant,
  PlantEvent,
  PlantPatch,
  SearchIndex,
  TagCount,
  Webhook,
  WebhookError,
  WebhookWithSecret,
} from "./types.js";
export { verifyWebhook } from "./webhooks.js";
export type { HeadersLike } from "./webhooks.js";
export type { Id, ImportReport, LineError, StoredPlant } from "./wire.js";
