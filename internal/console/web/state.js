// The state of the console is in the URL, after the #: the page, the plant that is open,
// the search and the position. This module translates between the two. It touches no DOM.

const NOTHING = {
  page: 'plants',
  id: '', // what is open on the page: for plants the exact id in decimal, or new
  q: '', // words in the name
  tags: /** @type {string[]} */ ([]), // of which a plant has one
  untagged: '', // true for plants without a tag, too
  order: '', // of plants: -id, name or -name; by id if it is empty
  after: '', // the position: the last id, or the cursor, before what is shown
  type: '', // a type of event
  range: '', // a period of time
  plant: '', // the id of a plant whose events are shown
  by: '', // whose events are shown
  since: '', // when a chosen period begins, as an RFC 3339 time
  until: '', // when it ends
};
/** @typedef {typeof NOTHING} State */

const PARAMETERS = /** @type {const} */ (['untagged', 'q', 'order', 'after', 'type', 'range', 'plant', 'by', 'since', 'until']);
const ORDERS = ['-id', 'name', '-name'];

// parse returns the state of a hash. Anything it does not know is ignored.
/** @type {(hash: string) => State} */
export function parse(hash) {
  const [path, ...query] = hash.replace(/^#/, '').split('?');
  const [page = NOTHING.page, id = ''] = path.split('/').filter(Boolean).map(decode);
  const parameters = new URLSearchParams(query.join('?'));
  const state = { ...NOTHING, page, id, tags: [...new Set(parameters.getAll('tag'))] };
  for (const name of PARAMETERS) {
    state[name] = parameters.get(name) ?? '';
  }
  if (page === 'plants') {
    state.id = id === 'new' ? id : wholeNumber(id);
    state.order = ORDERS.includes(state.order) ? state.order : '';
    state.untagged = state.untagged && 'true';
    state.after = byName(state) ? state.after : wholeNumber(state.after);
  }
  state.plant = wholeNumber(state.plant);
  return state;
}

/** byName reports whether plants are in an order by name. @param {{order: string}} state */
export const byName = ({ order }) => order.endsWith('name');

/** format returns the hash of a state. What is missing in the state is empty. @param {Partial<State>} state */
export function format(state) {
  const { page, id, tags, ...rest } = { ...NOTHING, ...state };
  const parameters = new URLSearchParams(tags.map((tag) => ['tag', tag]));
  for (const name of PARAMETERS) {
    if (rest[name]) {
      parameters.set(name, rest[name]);
    }
  }
  const query = parameters.toString();
  return `#/${encodeURIComponent(page)}${id && `/${encodeURIComponent(id)}`}${query && `?${query}`}`;
}

function decode(/** @type {string} */ text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone % that someone typed
  }
}

const LIMIT = 2n ** 63n;

// wholeNumber returns the id that a text says, in its shortest form, or '' if it says none.
// It is exact: an id has 64 bits, and a JavaScript number only 53.
export function wholeNumber(/** @type {string} */ text) {
  const [, sign, digits] = /^\s*([+-]?)(\d{1,40})\s*$/.exec(text) ?? [];
  if (!digits) {
    return '';
  }
  const n = sign === '-' ? -BigInt(digits) : BigInt(digits);
  return n >= -LIMIT && n < LIMIT ? n.toString() : '';
}
