import { fromBase64, verifyHmac } from "./crypto.js";
import { PlantstoreError } from "./errors.js";

const tolerance = 300;

/** The headers of a request: a Headers, or an object as Node has it. */
export type HeadersLike = Headers | Record<string, string | string[] | undefined>;

function header(headers: HeadersLike, name: string): string {
  if (typeof (headers as Headers).get === "function") {
    return (headers as Headers).get(name) ?? "";
  }
  for (const [key, value] of Object.entries(headers as Record<string, string | string[] | undefined>)) {
    if (key.toLowerCase() === name && value !== undefined) {
      return typeof value === "string" ? value : value.join(" ");
    }
  }
  return "";
}

/**
 * Throws a PlantstoreError unless a message to a webhook is authentic: unless it was
 * signed with the secret, as Standard Webhooks defines it, less than five minutes ago.
 * The body must be exactly as it was received. While the secret is rotated, a message is
 * signed with the old one and the new one, and either will do.
 *
 * The same event may arrive more than once. The header webhook-id is the same then.
 */
export async function verifyWebhook(headers: HeadersLike, body: string | Uint8Array, secret: string): Promise<void> {
  const [id, at, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) =>
    header(headers, name),
  ) as [string, string, string];
  if (id === "" || at === "" || signatures === "") {
    throw new PlantstoreError("the request must have the headers webhook-id, webhook-timestamp and webhook-signature");
  }
  if (!/^(0|-?[1-9]\d{0,14})$/.test(at)) {
    throw new PlantstoreError(`webhook-timestamp must be a number of seconds, got ${JSON.stringify(at.slice(0, 40))}`);
  }
  const key = fromBase64(secret.startsWith("whsec_") ? secret.slice(6) : secret);
  if (key === undefined || key.length === 0) {
    throw new PlantstoreError("the secret must be whsec_ and base64");
  }
  const now = Math.floor(Date.now() / 1000);
  if (Math.abs(now - Number(at)) > tolerance) {
    throw new PlantstoreError(`webhook-timestamp ${at} is more than ${tolerance} s from now, ${now}`);
  }
  const encoder = new TextEncoder();
  const head = encoder.encode(`${id}.${at}.`);
  const text = typeof body === "string" ? encoder.encode(body) : body;
  const signed = new Uint8Array(head.length + text.length);
  signed.set(head);
  signed.set(text, head.length);
  const candidates = signatures
    .split(/\s+/)
    .filter((signature) => signature.startsWith("v1,"))
    .flatMap((signature) => fromBase64(signature.slice(3)) ?? []);
  if (!(await verifyHmac(key, candidates, signed))) {
    throw new PlantstoreError(
      "no signature in webhook-signature matches: is it the right secret, and the body as it was received?",
    );
  }
}
