// The console: signing in and out, and the router.
//
// A page changes the state with go of route.js, or with a plain link whose href is format(state).

import { page as activity } from './activity.js';
import { page as overview } from './overview.js';
import { page as plants } from './plants.js';
import { page as tokens } from './tokens.js';
import { page as webhooks, startAlerts, stopAlerts } from './webhooks.js';
import { TOKEN, call, forgetNames, identify, listen, session } from './api.js';
import { $, STILL_WAITING, busy, h, refocus, toast } from './dom.js';
import { sentence } from './format.js';
import { MENU, landing, menu } from './grants.js';
import { loaded } from './list.js';
import { forget, go, start, state } from './route.js';
import { format, parse } from './state.js';
import { stopExport } from './export.js';
import { startImport, stopImport } from './import.js';
import { forgetUndo, resumeUndo, undoLast } from './undo.js';
import { poll, sleep } from './wait.js';

/**
 * @typedef {object} Page what a module of a page exports
 * @property {string} title of the browser's tab
 * @property {(root: HTMLElement, state: import('./state.js').State) => void} show draws the state into an
 *   element of its own, which is empty when the page opens, and again whenever the state changes
 * @property {() => void} hide stops what runs: the page is left, or the user signs out
 * @property {() => void} [refresh] the user has signed in again, or the server is back
 * @property {(next: import('./state.js').State, again: () => void) => boolean} [leave] returns false to
 *   stay, because of unsaved text, and may call again when the user has discarded it
 * @property {(key: string) => boolean} [key] handles a key pressed outside fields and dialogs, or Escape
 *   anywhere but in a dialog, and returns whether it did
 */

/** @type {Record<string, Page>} */
const MODULES = { plants, activity, webhooks, tokens, overview };

const dialog = $('sign-in', HTMLDialogElement);
const field = $('token', HTMLInputElement);
const keep = $('keep', HTMLInputElement);
const showToken = $('show-token', HTMLInputElement);
const keys = $('keys', HTMLDialogElement);

let open = /** @type {{name: string, module: Page, root: HTMLElement} | null} */ (null); // the page that is shown

// draw shows the page of the state, if the user has signed in.
function draw() {
  if (!session.secret()) {
    return;
  }
  const now = state();
  const begin = landing(session.token().scopes);
  if (!location.hash && begin !== now.page) { // no link to a page
    go({ page: begin }, { replace: true });
    return;
  }
  const allowed = menu(session.token().scopes);
  const page = allowed.find(({ name }) => name === now.page);
  const turned = open !== null && open.name !== (page?.name ?? '');
  if (turned || !open) {
    close();
    const module = page ? MODULES[page.name] : nowhere;
    const root = h('div', { class: 'page', 'data-page': page?.name ?? 'nowhere' });
    $('console').append(root);
    open = { name: page?.name ?? '', module, root };
  }
  document.title = `${open.module.title} · Plantstore`;
  $('pages').replaceChildren(...allowed.map(({ name, label }) => (
    h('a', { 'href': format({ page: name }), 'aria-current': name === now.page && 'page' }, label))));
  open.module.show(open.root, now);
  if (turned && !open.root.contains(document.activeElement)) { // the link that led here is gone
    /** @type {HTMLElement | null} */ (open.root.querySelector('h1'))?.focus();
  }
}

function close() {
  open?.module.hide();
  open?.root.remove();
  open = null;
}

// nowhere is for a link to a page that does not exist, or that the token cannot use.
/** @type {Page} */
const nowhere = {
  title: 'Not found',
  show(root, { page }) {
    const known = MENU.find(({ name }) => name === page);
    const title = known ? `Your token cannot open ${known.label}` : 'There is no such page';
    const text = known && `It needs the scope ${known.scopes.join(' or ')}. Sign in with another token to see this page.`;
    root.replaceChildren(h('div', { class: 'state' }, h('h1', { tabindex: '-1' }, title), h('p', {}, text ?? 'Choose a page above.')));
  },
  hide() {},
};

// showSignIn shows the sign-in dialog: on its own, or on top of what is open, so that typed text is kept.
function showSignIn(/** @type {string} */ reason) {
  stopAlerts();
  $('sign-in-reason').textContent = reason && sentence(reason);
  field.value = '';
  document.title = 'Sign in · Plantstore';
  if (!dialog.open) {
    dialog[$('console').hidden ? 'show' : 'showModal']();
  }
}

async function signIn() {
  const secret = field.value.trim();
  const reason = $('sign-in-reason');
  const waiting = $('sign-in-waiting');
  reason.textContent = '';
  if (!/^[\x21-\x7e]+$/.test(secret)) {
    reason.textContent = secret ? 'A token has no spaces or special characters. Did you copy all of it?' : 'Paste a token first.';
    field.focus();
    return;
  }
  try {
    await identify(secret, keep.checked, () => { waiting.textContent = STILL_WAITING; });
  } catch (err) {
    reason.textContent = sentence(err.message);
    field.focus();
    return;
  } finally {
    waiting.textContent = '';
  }
  await enter();
}

// enter shows the page, once the user has signed in: with its rows, unless they take long. A
// password manager sees the field with its text disappear, and offers to save it.
async function enter() {
  const resumed = !$('console').hidden;
  forgetNames();
  draw();
  if (!resumed) {
    await Promise.race([loaded(), sleep(100)]);
    if (!session.secret()) {
      return; // refused, or signed out in another tab
    }
  }
  dialog.close();
  field.value = '';
  $('console').hidden = false;
  $('sign-out').hidden = false;
  startAlerts();
  resumeUndo();
  if (resumed) {
    open?.module.refresh?.();
  } else {
    /** @type {HTMLElement | null} */ (document.querySelector('#search') ?? document.querySelector('.page h1'))?.focus();
  }
}

// leave forgets everything that the user did or saw, when the user has signed out.
function leave() {
  close();
  asking.abort();
  stopExport();
  stopImport();
  forgetUndo();
  $('console').hidden = true;
  $('sign-out').hidden = true;
  $('pages').replaceChildren();
  $('toasts').replaceChildren();
  showToken.checked = false;
  keep.checked = false;
  field.type = 'password';
  history.replaceState(null, '', location.pathname);
  forget();
  showSignIn('');
}

const SOON = 1000;

let offline = /** @type {import('./dom.js').Toast | null} */ (null); // the message that the server is unreachable
let asking = new AbortController();

// connection tells the user that the server is unreachable, and asks until it is back.
function connection(/** @type {boolean} */ up) {
  offline?.close();
  asking.abort();
  if (up) {
    startAlerts();
    open?.module.refresh?.();
  } else if (session.secret()) {
    offline = toast('Server unreachable. Trying again…', { bad: true });
    asking = new AbortController();
    poll(asking.signal, SOON, () => call('GET', TOKEN));
  }
}

// press handles the keyboard shortcuts.
function press(/** @type {KeyboardEvent} */ event) {
  const target = /** @type {HTMLElement} */ (event.target);
  const typing = target.matches('input:not([type="checkbox"], [type="radio"]), textarea, select') && event.key !== 'Escape';
  const elsewhere = $('console').hidden || document.querySelector('dialog[open]');
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || elsewhere || typing) {
    return;
  }
  if (event.key === '?') {
    keys.showModal();
    event.preventDefault();
  } else if ((event.key === 'u' && undoLast()) || open?.module.key?.(event.key)) {
    event.preventDefault();
  }
}

listen({
  connection,
  unauthorized(reason) {
    if (session.secret()) {
      session.refuse();
      showSignIn(reason);
    }
  },
});
dialog.addEventListener('submit', (event) => {
  event.preventDefault();
  busy($('sign-in-button'), signIn);
});
dialog.addEventListener('cancel', (event) => event.preventDefault());
dialog.addEventListener('close', () => {
  if (session.secret()) {
    refocus();
  } else {
    showSignIn(''); // browsers let users close any dialog eventually
  }
});
showToken.addEventListener('change', () => { field.type = showToken.checked ? 'text' : 'password'; });
$('sign-out').addEventListener('click', () => {
  const end = () => {
    session.end();
    leave();
  };
  if (open?.module.leave?.(parse(''), end) ?? true) {
    end();
  }
});
$('help').addEventListener('click', () => keys.showModal());
$('undo').addEventListener('click', undoLast);
$('skip').addEventListener('click', (event) => {
  event.preventDefault(); // the hash is the state
  $('console').focus();
});
addEventListener('keydown', press);
start((next, again) => open?.module.leave?.(next, again) ?? true, draw);
startImport(() => open?.module.refresh?.());

if (await session.join()) {
  enter();
} else {
  forgetUndo();
  showSignIn('');
}
session.follow(enter, () => $('console').hidden || leave());
