// The console: signing in and out, and starting the parts of the page.

import { startAlerts, stopAlerts } from './alerts.js';
import { listPlants, onUnauthorized, token } from './api.js';
import { $, STILL_WAITING, busy, refocus } from './dom.js';
import { startLive, stopLive } from './live.js';
import { editPlant, removePlant, startPlant } from './plant.js';
import { clear, firstPage, reload, sentence, startPlants } from './plants.js';
import { startTransfer } from './transfer.js';

const dialog = $('sign-in');
const button = dialog.querySelector('.primary');

// showSignIn shows the sign-in dialog: on its own, or on top of what is open, so that
// typed text is kept.
function showSignIn(reason) {
  token.clear();
  stopLive();
  stopAlerts();
  $('sign-in-reason').textContent = reason && sentence(reason);
  $('token').value = '';
  document.title = 'Sign in · Plantstore';
  if (dialog.open) {
    return;
  }
  if ($('console').hidden) {
    dialog.show();
    return;
  }
  dialog.showModal();
}

async function signIn() {
  const secret = $('token').value.trim();
  const reason = $('sign-in-reason');
  const waiting = dialog.querySelector('.waiting');
  reason.textContent = '';
  if (!/^[\x21-\x7e]+$/.test(secret)) {
    reason.textContent = secret ? 'A token has no spaces or special characters. Did you copy all of it?' : 'Paste a token first.';
    $('token').focus();
    return;
  }
  try {
    await listPlants('?limit=1', {
      secret,
      slow: () => {
        waiting.textContent = STILL_WAITING;
      },
    });
  } catch (err) {
    if (err.status !== 403) { // a token without plants:read is still valid
      reason.textContent = sentence(err.message);
      $('token').focus();
      return;
    }
  } finally {
    waiting.textContent = '';
  }
  token.save(secret);
  $('token').value = '';
  dialog.close();
  enter();
}

function enter() {
  const resumed = !$('console').hidden;
  document.title = 'Plants · Plantstore';
  $('console').hidden = false;
  $('sign-out').hidden = false;
  startLive();
  startAlerts();
  if (resumed) {
    reload();
    return;
  }
  firstPage();
}

function signOut() {
  $('console').hidden = true;
  $('sign-out').hidden = true;
  clear();
  showSignIn('');
}

onUnauthorized((reason) => {
  if (token.read()) {
    showSignIn(reason);
  }
});
dialog.querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  busy(button, signIn);
});
dialog.addEventListener('cancel', (event) => event.preventDefault());
dialog.addEventListener('close', () => {
  if (token.read()) {
    refocus();
    return;
  }
  showSignIn(''); // browsers let users close any dialog eventually
});
$('show-token').addEventListener('change', (event) => {
  $('token').type = event.target.checked ? 'text' : 'password';
});
$('sign-out').addEventListener('click', signOut);
startPlants({ edit: editPlant, remove: removePlant });
startPlant();
startTransfer();

if (token.read()) {
  enter();
} else {
  showSignIn('');
}
