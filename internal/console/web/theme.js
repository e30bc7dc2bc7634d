// The colours: those of the system, or light or dark if the user has chosen. This script
// runs before the page is painted, so it is not a module.
(() => {
  const KEY = 'plantstore.theme';
  const THEMES = ['system', 'light', 'dark'];
  const next = (/** @type {string} */ theme) => THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  let theme = 'system'; // also if storage is blocked; then a choice lasts until the page is left
  const apply = () => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById('theme');
    if (button) {
      button.title = `Theme: ${theme}`;
      button.ariaLabel = `Theme: ${theme}. Switch to ${next(theme)}`;
    }
  };
  try {
    theme = localStorage.getItem(KEY) ?? theme;
  } catch {
    // blocked
  }
  apply();
  addEventListener('DOMContentLoaded', () => {
    apply();
    document.getElementById('theme')?.addEventListener('click', () => {
      theme = next(theme);
      apply();
      try {
        if (theme === 'system') {
          localStorage.removeItem(KEY);
        } else {
          localStorage.setItem(KEY, theme);
        }
      } catch {
        // blocked
      }
    });
  });
})();
