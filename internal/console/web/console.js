// The console over the store: who is signed in, and the parts that they see.

import { listPlants, onRefused, token } from './api.js';
import { $, STILL_WAITING, busy, refocus } from './dom.js';
import { startLive, stopLive } from './live.js';
import { editPlant, removePlant, startPlant } from './plant.js';
import { clear, firstPage, reload, sentence, startPlants } from './plants.js';
import { startTransfer } from './transfer.js';

const dialog = $('sign-in');
const button = dialog.querySelector('.primary');

// askToken shows the sign-in: alone, or over whatever is open, where text that was
// typed stays.
function askToken(reason) {
  token.forget();
  stopLive();
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
    reason.textContent = secret ? 'A token has no spaces and only plain characters. Is it copied whole?' : 'Paste a token first.';
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
    if (err.status !== 403) { // a token that may not read is still a good one
      reason.textContent = sentence(err.message);
      $('token').focus();
      return;
    }
  } finally {
    waiting.textContent = '';
  }
  token.keep(secret);
  $('token').value = '';
  dialog.close();
  enter();
}

function enter() {
  const back = !$('console').hidden;
  document.title = 'Plants · Plantstore';
  $('console').hidden = false;
  $('sign-out').hidden = false;
  startLive();
  if (back) {
    reload();
    return;
  }
  firstPage();
}

function signOut() {
  $('console').hidden = true;
  $('sign-out').hidden = true;
  clear();
  askToken('');
}

onRefused((reason) => {
  if (token.read()) {
    askToken(reason);
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
  askToken(''); // a browser closes a dialog in the end if somebody insists
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
  askToken('');
}
