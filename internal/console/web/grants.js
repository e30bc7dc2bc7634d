// What a token may do and for how long, and the pages that it may open. It touches no DOM.

/** @type {Record<string, string>} */
const SCOPES = {
  'plants:read': 'read plants',
  'plants:write': 'create, change and delete plants',
  'events:read': 'read the log of changes',
  'tokens:read': 'list tokens',
  'tokens:write': 'create and revoke tokens',
  'webhooks:read': 'list webhooks and deliveries',
  'webhooks:write': 'create, change and delete webhooks',
  'ops:read': 'read metrics',
};

/** meaning says what a scope allows, or '' if that is not known. @param {string} scope */
export const meaning = (scope) => SCOPES[scope] ?? '';

/**
 * PRESETS are the usual sets of scopes for a new token.
 * @type {[string, string[]][]}
 */
const PRESETS = [
  ['Read only', ['plants:read']],
  ['Read and write', ['plants:read', 'plants:write']],
  ['Follower', ['plants:read', 'events:read']],
  ['Operator', ['events:read', 'tokens:read', 'tokens:write', 'webhooks:read', 'webhooks:write', 'ops:read']],
];

/** presets returns the sets of scopes that a token with these scopes can give. @param {string[]} own */
export const presets = (own) => PRESETS.filter(([, scopes]) => scopes.every((scope) => own.includes(scope)));

/** ordered returns scopes in their usual order, in which reading comes first. @param {string[]} scopes */
export function ordered(scopes) {
  const known = Object.keys(SCOPES);
  const at = (/** @type {string} */ scope) => (known.includes(scope) ? known.indexOf(scope) : known.length);
  return [...scopes].sort((a, b) => at(a) - at(b));
}

const DAY = 86_400_000;
const LIFETIMES = /** @type {[string, number][]} */ ([['7 days', 7], ['30 days', 30], ['90 days', 90], ['1 year', 365]]);

// lifetimes returns the choices for a new token, as a label and the value of its member
// expires. Nobody can grant more than they have.
/** @type {(own: string | null, now: number) => {label: string, expires: string | null, usual: boolean}[]} */
export function lifetimes(own, now) {
  const end = own === null ? Infinity : Date.parse(own);
  const choices = LIFETIMES.filter(([, days]) => now + days * DAY < end).map(([label, days]) => ({
    label,
    expires: /** @type {string | null} */ (new Date(now + days * DAY).toISOString().replace(/\.\d+/, '')),
    usual: days === 90,
  }));
  const longest = own === null ? 'Never' : 'When my token expires';
  return [...choices, { label: longest, expires: own, usual: !choices.some(({ usual }) => usual) }];
}

// isOver says whether a token is revoked or has expired.
/** @type {(token: {revoked?: string, expires: string | null}, now: number) => boolean} */
export const isOver = ({ revoked, expires }, now) => revoked !== undefined || (expires !== null && Date.parse(expires) <= now);

/**
 * MENU has the pages of the console in their order. A token needs one of the scopes of a page,
 * if it has any: pages that it cannot use are not shown.
 * @typedef {{name: string, label: string, scopes: string[]}} Entry
 * @type {Entry[]}
 */
export const MENU = [
  { name: 'plants', label: 'Plants', scopes: ['plants:read', 'plants:write'] },
  { name: 'overview', label: 'Overview', scopes: [] },
  { name: 'activity', label: 'Activity', scopes: ['events:read'] },
  { name: 'webhooks', label: 'Webhooks', scopes: ['webhooks:read', 'webhooks:write'] },
  { name: 'tokens', label: 'Tokens', scopes: ['tokens:read', 'tokens:write'] },
];

// landing returns the page to begin with: the first one that a token with these scopes can read.
export const landing = (/** @type {string[]} */ scopes) => (
  /** @type {Entry} */ (MENU.find((entry) => entry.scopes.every((scope) => !scope.endsWith(':read') || scopes.includes(scope)))).name);

/** menu returns the entries for a token with these scopes. @param {string[]} scopes */
export const menu = (scopes) => MENU.filter((entry) => entry.scopes.length === 0 || entry.scopes.some((scope) => scopes.includes(scope)));
