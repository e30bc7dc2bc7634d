/** A token without its secret. Times are as in RFC 3339. */
export interface Token {
  id?: string;
  name?: string;
  scopes: string[];
  /** How many requests it may make, such as 200/s,burst=400. Without it, the server's default. */
  rate?: string;
  created?: string;
  /** When it expires, or null for never. */
  expires: string | null;
  /** Of an identity provider's token. */
  issuer?: string;
  /** Of an identity provider's token. */
  subject?: string;
}

/** A token with its secret, which is shown once. */
export interface NewToken extends Token {
  token: string;
}

/** What createToken takes. */
export interface TokenConfig {
  name: string;
  scopes: string[];
  /** When it expires: by default after 90 days, or with the caller's own token if that is sooner; null for never. */
  expires?: Date | string | null | undefined;
  /** How many requests it may make, such as 200/s,burst=400: by default as many as the caller's own token. */
  rate?: string | undefined;
}
