// The rules for the scripts of the console.

import js from '@eslint/js';

const browser = [
  'AbortController', 'AbortSignal', 'Blob', 'BroadcastChannel', 'CSS', 'CustomEvent', 'DOMException', 'Element', 'Event', 'EventSource', 'File',
  'FormData', 'HTMLAnchorElement', 'HTMLButtonElement', 'HTMLDialogElement', 'HTMLElement', 'HTMLFormElement', 'HTMLInputElement',
  'HTMLProgressElement', 'HTMLSelectElement', 'HTMLTableRowElement', 'HTMLTemplateElement', 'HTMLTextAreaElement', 'Headers',
  'IntersectionObserver', 'MutationObserver', 'Node', 'ReadableStream', 'Request', 'ResizeObserver', 'Response', 'TextDecoder',
  'TextDecoderStream', 'TextEncoder', 'TextEncoderStream', 'TransformStream', 'URL', 'URLSearchParams', 'XMLHttpRequest', 'addEventListener', 'btoa', 'cancelAnimationFrame',
  'clearInterval', 'clearTimeout', 'confirm', 'crypto', 'customElements', 'dispatchEvent', 'document', 'fetch', 'getComputedStyle', 'getSelection',
  'history', 'innerHeight', 'innerWidth', 'localStorage', 'location', 'matchMedia', 'navigator', 'performance', 'queueMicrotask',
  'removeEventListener', 'requestAnimationFrame', 'scrollTo', 'scrollY', 'sessionStorage', 'setInterval', 'setTimeout', 'structuredClone', 'window',
];

export default [
  js.configs.recommended,
  {
    languageOptions: { globals: Object.fromEntries(browser.map((name) => [name, 'readonly'])) },
    linterOptions: { reportUnusedDisableDirectives: 'error' },
    rules: {
      'curly': 'error',
      'eqeqeq': 'error',
      'max-len': ['error', { code: 140 }],
      'no-console': 'error',
      'no-control-regex': 'off', // texts may have them
      'no-else-return': 'error',
      'no-eval': 'error',
      'no-implied-eval': 'error',
      'no-param-reassign': 'error',
      'no-throw-literal': 'error',
      'no-unused-expressions': 'error',
      'no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      'no-use-before-define': ['error', { functions: false, classes: false, variables: false }],
      'no-var': 'error',
      'object-shorthand': 'error',
      'prefer-const': 'error',
      'prefer-template': 'error',
    },
  },
];
