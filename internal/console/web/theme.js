// The colours: those of the system, or light or dark if the user has chosen. This script
// runs before the page is painted, so it is not a module.
(() => {
  const KEY = 'plantstore.theme';
  const THEMES = ['system', 'light', 'dark'];
  const read = () => {
    try {
      return localStorage.getItem(KEY) ?? 'system';
    } catch {
      return 'system'; // storage is blocked
    }
  };
  const apply = (/** @type {string} */ theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById('theme');
    if (button) {
      button.title = `Theme: ${theme}`;
      button.ariaLabel = `Theme: ${theme}. Switch to ${next(theme)}`;
    }
  };
  const next = (/** @type {string} */ theme) => THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  apply(read());
  addEventListener('DOMContentLoaded', () => {
    apply(read());
    document.getElementById('theme')?.addEventListener('click', () => {
      const theme = next(document.documentElement.dataset.theme ?? 'system');
      try {
        if (theme === 'system') {
          localStorage.removeItem(KEY);
        } else {
          localStorage.setItem(KEY, theme);
        }
      } catch {
        // It lasts until the page is left.
      }
      apply(theme);
    });
  });
})();
