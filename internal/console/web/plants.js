// The page of plants: search, filters, table and selection. It draws what the list has, and
// what it shows follows from the URL.

import { allows, listTags } from './api.js';
import { $, STILL_WAITING, h, icon } from './dom.js';
import { renderMessage } from './empty.js';
import { count, plural, shorten } from './format.js';
import { close, filtered, filters, list, loaded, reload, show, subscribe } from './list.js';
import { tell } from './parts.js';
import { cancel, closePlant, editPlant, mayLeave, openID, reloadPlant, showPlant } from './plant.js';
import { go, memory, state } from './route.js';
import { mountRows, move, newPlant, openPlant, renderRows, revealRow } from './rows.js';
import { MOST, select, selectMatches, selectPage, selecting, stopSelecting } from './selection.js';
import { byName, format, wholeNumber } from './state.js';
import { suggestTags } from './suggest.js';
import { askDelete, askTag } from './undo.js';
import { openExport } from './export.js';
import { openImport } from './import.js';

const PAUSE = 200;

const search = () => $('search', HTMLInputElement);
const tagFilter = () => $('tag-filter', HTMLInputElement);
const pickAll = () => $('pick-all', HTMLInputElement);
const button = (/** @type {string} */ id) => $(id, HTMLButtonElement);

/** @type {Record<string, () => boolean>} */
const KEYS = {
  '/'() {
    const shown = search().checkVisibility() && !search().closest('[inert]');
    if (shown) {
      search().focus();
      search().select();
    }
    return shown;
  },
  'n': () => allows('plants:write') && newPlant(),
  'j': () => move(1),
  'k': () => move(-1),
  'e': () => allows('plants:write') && editPlant(state().id || list.current),
  'Escape': cancel,
};

/** @type {import('./console.js').Page} */
export const page = {
  title: 'Plants',
  show(root, now) {
    const loads = show({ ...now, before: before() }); // first, so that the server works while the page is drawn
    if (!root.firstChild) {
      mount(root);
    }
    if (search().value !== now.q) { // otherwise the cursor would move
      search().value = now.q;
    }
    renderFilters(now);
    renderGoto();
    showPlant(now.id);
    if (loads && now.id) {
      loaded().then(() => setTimeout(() => revealRow(now.id))); // once the page is visible
    }
    render();
  },
  refresh() {
    reload();
    reloadPlant();
  },
  leave: mayLeave,
  key: (key) => Object.hasOwn(KEYS, key) && KEYS[key](),
  hide() {
    stopSelecting();
    close();
    closePlant();
  },
};

subscribe((events) => {
  render();
  if (events.some(({ plant }) => plant && plant.id === openID())) {
    reloadPlant();
  }
});

function mount(/** @type {HTMLElement} */ root) {
  root.append($('plants-page', HTMLTemplateElement).content.cloneNode(true));
  let pause = /** @type {ReturnType<typeof setTimeout> | undefined} */ (undefined);
  const [words, tag] = [search(), tagFilter()];
  const start = () => {
    clearTimeout(pause);
    find();
  };
  words.addEventListener('input', () => {
    clearTimeout(pause);
    pause = setTimeout(start, PAUSE);
    renderGoto();
  });
  suggestTags(tag, 'options', () => addTag(tag.value));
  $('untagged').addEventListener('click', () => refine({ untagged: state().untagged ? '' : 'true' }));
  $('filters').addEventListener('submit', (event) => {
    event.preventDefault();
    const id = document.activeElement === words && wholeNumber(words.value);
    if (document.activeElement === tag && tag.value) {
      tell(() => findTag(tag.value));
    } else if (id) {
      clearTimeout(pause);
      openPlant(id, words.value);
    } else {
      start();
    }
  });
  $('goto').addEventListener('click', (event) => {
    event.preventDefault();
    openPlant(wholeNumber(words.value), words.value);
  });
  $('create').addEventListener('click', newPlant);
  $('import').addEventListener('click', openImport);
  $('export').addEventListener('click', () => openExport(filters()));
  ['create', 'import', 'pick-all'].forEach((id) => { $(id).hidden = !allows('plants:write'); });
  $('export').hidden = !allows('plants:read');
  button('next').addEventListener('click', () => turnPage('next'));
  button('previous').addEventListener('click', () => turnPage('previous'));
  mountRows();
  ['id', 'name'].forEach((name) => $(`sort-${name}`).addEventListener('click', () => sort(name)));
  pickAll().addEventListener('change', () => selectPage(pickAll().checked));
  $('pick-matches').addEventListener('click', () => (selecting() === null ? tell(selectMatches) : stopSelecting()));
  $('news').addEventListener('click', () => reload());
  $('clear-chosen').addEventListener('click', () => select([]));
  $('delete-chosen').addEventListener('click', () => askDelete([...list.selected.values()]));
  $('retag-chosen').addEventListener('click', () => askTag([...list.selected.values()]));
}

// refine shows the first page of other plants, with the words in the search field in their name.
const refine = (/** @type {Partial<import('./state.js').State>} */ change, options = {}) => (
  go({ ...state(), q: search().value, after: '', ...change }, options));

// find searches. While the user types, the searches are one entry of the browser's history.
function find() {
  const [last, q] = [state().q, search().value];
  if (q !== last) {
    refine({}, { replace: last !== '' && q !== '' });
  }
}

// findTag adds the tag that was typed to the filters, or the best that contains its words.
async function findTag(/** @type {string} */ text) {
  const [best] = await listTags(text, {});
  addTag(best?.tag ?? text);
}

function addTag(/** @type {string} */ tag) {
  tagFilter().value = '';
  refine({ tags: [...state().tags, tag] });
}

// sort shows plants in the order of a column, or in its reverse if they are in that order.
function sort(/** @type {string} */ column) {
  const order = (state().order || 'id') === column ? `-${column}` : column;
  refine({ order: order === 'id' ? '' : order });
}

// trail is how the user came to this page: the position and the number of plants of each
// page before it. It is empty after a pasted link.
const trail = () => /** @type {{after: string, size: number}[]} */ (memory()?.trail ?? []);

// before returns how many plants are on the pages before this one, or null if that is not known.
function before() {
  const known = trail().length > 0 ? trail()[0].after === '' : state().after === '';
  return known ? trail().reduce((sum, { size }) => sum + size, 0) : null;
}

// turnPage shows the next or the previous page from its top, and moves the focus if the button is now
// disabled. It does nothing while a page is loading.
async function turnPage(/** @type {'next' | 'previous'} */ id) {
  if (list.status) {
    return;
  }
  const [after, pages] = id === 'next'
    ? [new URLSearchParams(list.next ?? '').get('after'), [...trail(), { after: state().after, size: list.plants.length }]]
    : [trail().at(-1)?.after, trail().slice(0, -1)];
  go({ ...state(), after: after ?? '' }, { memory: { trail: pages } });
  await loaded();
  scrollTo(0, 0);
  if (button(id).disabled) {
    $(id === 'next' ? 'previous' : 'next').focus();
  }
}

function render() {
  if (!document.getElementById('plants')) {
    return;
  }
  $('plants').ariaBusy = list.status ? 'true' : null;
  renderRows();
  renderSelection();
  renderPager();
  renderMessage();
  $('total').textContent = total();
  $('news').hidden = list.created.size === 0;
  $('news').textContent = `${plural(list.created.size, 'new plant')}. Show`;
}

function total() {
  const all = list.total === null ? '' : plural(list.total, 'plant');
  if (!filtered() || !list.matches) {
    return all;
  }
  const { n, more } = list.matches;
  return `${count(n)}${more ? '+' : ''} of ${all || 'all plants'}`;
}

function renderSelection() {
  const { selected, plants } = list;
  const found = selecting();
  const here = plants.filter(({ id }) => selected.has(id)).length;
  const all = here > 0 && here === plants.length;
  pickAll().checked = all;
  pickAll().indeterminate = here > 0 && !all;
  $('chosen').hidden = selected.size === 0;
  $('chosen-count').textContent = found !== null
    ? `Selecting… ${count(found)}`
    : `${count(selected.size)} selected${selected.size === MOST ? ', the most at once' : ''}`;
  const more = all ? selected.size === plants.length && (list.next || list.after) : here > 0;
  $('pick-matches').hidden = found === null && !more;
  $('pick-matches').textContent = found !== null ? 'Stop' : filtered() ? 'Select all that match' : 'Select all plants';
  ['retag-chosen', 'delete-chosen'].forEach((id) => { button(id).disabled = found !== null; });
}

function renderPager() {
  const known = list.loaded === list.query;
  if (list.status === 'slow') {
    $('count').textContent = STILL_WAITING;
  } else if (list.status === 'searching') {
    const share = list.searched === null ? '' : `, ${list.searched} % of the IDs searched`;
    $('count').textContent = `Searching… ${count(list.plants.length)} found${share}`;
  } else if (list.plants.length === 0) {
    $('count').textContent = list.status ? 'Loading…' : '';
  } else if (known) {
    $('count').textContent = range();
  }
  if (known && !list.status) {
    button('previous').disabled = !list.after;
    button('next').disabled = !list.next;
    $('turn').hidden = !list.after && !list.next;
  }
  const nothing = list.failure !== null || !list.query || ($('turn').hidden && list.plants.length === 0);
  $('pager').hidden = nothing && !list.status && list.selected.size === 0;
}

function range() {
  const what = filtered() ? 'Matches' : 'Plants';
  if (list.before === null) {
    return byName(list) ? `${what} of a later page` : `${what} after ID ${list.after}`;
  }
  const last = list.before + list.plants.length;
  const known = filtered() ? list.matches : list.total !== null && { n: list.total, more: false };
  const { n, more } = known && known.n >= last ? known : { n: last, more: list.next !== null };
  return `${what} ${count(list.before + 1)}–${count(last)} of ${count(n)}${more ? '+' : ''}`;
}

// renderFilters shows the tags that are filtered by, and the order.
function renderFilters(/** @type {import('./state.js').State} */ { tags, untagged, order }) {
  $('untagged').ariaPressed = String(untagged !== '');
  $('chips').replaceChildren(...tags.map((tag) => {
    const brief = shorten(tag, 60);
    const onclick = () => {
      refine({ tags: tags.filter((other) => other !== tag) });
      tagFilter().focus();
    };
    const text = brief ? h('span', { dir: 'auto' }, brief) : h('span', { class: 'blank' }, 'empty');
    return h('li', {}, h('button', { 'aria-label': `Remove the tag ${brief || 'empty'} from the filters`, onclick }, text, icon('close')));
  }));
  for (const column of ['id', 'name']) {
    const sorted = (order || 'id').replace('-', '') === column;
    const header = $(`sort-${column}`).closest('th');
    header?.setAttribute('aria-sort', !sorted ? 'none' : order.startsWith('-') ? 'descending' : 'ascending');
  }
}

// renderGoto offers the plant whose id is in the search field.
function renderGoto() {
  const id = wholeNumber(search().value);
  const link = $('goto', HTMLAnchorElement);
  link.hidden = !id;
  link.href = format({ page: 'plants', id });
  link.replaceChildren(`Go to plant ${id}`, h('kbd', {}, 'Enter'));
}
