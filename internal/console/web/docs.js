// The API reference: Swagger UI over this server's own openapi.json. It uses the token of the console.

import { API, session } from './api.js';
import { $, h } from './dom.js';
import { indent } from './json.js';
import { menu } from './grants.js';
import { format } from './state.js';

const place = $('swagger-ui');
const SAMPLE = 'http://127.0.0.1:8080'; // the server in the samples

// What Swagger UI gives no name for screen readers.
const NAMES = {
  '.examples-select-element': 'Example',
  'textarea': 'Request body',
  '.copy-to-clipboard button': 'Copy',
  '.close-modal': 'Close',
};

function addNames() {
  const name = (/** @type {string} */ selector, /** @type {(element: Element) => string} */ nameOf) => (
    place.querySelectorAll(`:is(${selector}):not([aria-label])`).forEach((element) => element.setAttribute('aria-label', nameOf(element))));
  Object.entries(NAMES).forEach(([selector, text]) => name(selector, () => text));
  // A parameter with few values.
  name('[data-param-name] select', (element) => element.closest('tr')?.getAttribute('data-param-name') ?? '');
  // As headings, these skip a level.
  place.querySelectorAll('.models > h4').forEach((element) => element.setAttribute('aria-level', '2'));
  place.querySelectorAll('.modal-ux h6').forEach((element) => element.setAttribute('aria-level', '5'));
  // What is typed there is a token.
  place.querySelectorAll('.modal-ux input[type="text"]').forEach((element) => element.setAttribute('type', 'password'));
  // These have a text and another name.
  place.querySelectorAll('.modal-btn[aria-label]').forEach((element) => element.removeAttribute('aria-label'));
}

// The colours of code. They follow the theme of the page.
const NUMBER = { color: 'light-dark(#1c64b5, #8fc1ff)' };
const COLOURS = {
  'hljs': { background: 'var(--hover)', color: 'var(--text)' },
  'hljs-attr': { color: 'var(--muted)' },
  'hljs-string': { color: 'var(--accent)' },
  'hljs-number': NUMBER,
  'hljs-literal': NUMBER,
};

// The request of an operation: as openapi.json calls a language, its name, and the highlighting
// that Swagger UI has for it. The one for curl has what was typed, the others are examples.
const CURL = 'sh';
const LANGUAGES = [
  [CURL, 'curl', 'bash'],
  ['go', 'Go example', 'javascript'],
  ['ts', 'TypeScript example', 'javascript'],
  ['python', 'Python example', 'javascript'],
];
let chosen = CURL; // the language of what is opened next

// curl returns the request of an operation with the values in its fields, and with the token in a variable.
function curl(/** @type {any} */ { Im, fn, specSelectors, oas3Selectors }, /** @type {string} */ path, /** @type {string} */ method) {
  const spec = specSelectors.specJsonWithResolvedSubtrees().toJS();
  const operation = spec.paths[path][method];
  const values = specSelectors.parameterValues([path, method], false).toJS();
  const missing = (operation.parameters ?? []).filter((/** @type {any} */ one) => one.in === 'path' && !values[`path.${one.name}`]);
  const request = fn.buildRequest({
    spec,
    operationId: operation.operationId,
    parameters: { ...values, ...Object.fromEntries(missing.map((/** @type {any} */ { name }) => [name, `{${name}}`])) },
    requestContentType: oas3Selectors.requestContentType(path, method),
    responseContentType: oas3Selectors.responseContentType(path, method) || '*/*',
    requestBody: oas3Selectors.requestBodyValue(path, method),
    server: API,
  });
  const command = fn.requestSnippetGenerator_curl_bash(Im.fromJS(request)).replaceAll('%7B', '{').replaceAll('%7D', '}');
  const open = operation.security?.length === 0;
  return open ? command : `${command} \\\n  -H "Authorization: Bearer $PLANTSTORE_TOKEN"`;
}

const changes = (/** @type {any} */ { React: { Fragment, createElement: el, useState, useSyncExternalStore } }) => ({
  components: {
    // Swagger UI looks for a component for the ids in a list, and warns that it has none.
    JsonSchema_integer_int64: (/** @type {any} */ props) => el(props.getComponent('JsonSchema_string'), props),
  },
  wrapComponents: {
    SyntaxHighlighter: (/** @type {any} */ Original) => (/** @type {any} */ props) => (
      el(Original, { ...props, syntaxHighlighting: { defaultStyle: COLOURS } })),
    curl: () => () => null, // the request is above the responses
    responses: (/** @type {any} */ Original, /** @type {any} */ system) => function Responses(/** @type {any} */ props) {
      const { getComponent, getStore, specSelectors } = system;
      const { path, method } = props;
      const [language, choose] = useState(chosen);
      const { subscribe, getState } = getStore();
      useSyncExternalStore(subscribe, getState);
      const samples = specSelectors.specJson().getIn(['paths', path, method, 'x-codeSamples']);
      const sample = samples?.find((/** @type {any} */ one) => one.get('lang') === language)?.get('source');
      const source = language === CURL || !samples ? curl(system, path, method) : sample.replaceAll(SAMPLE, API).trimEnd();
      const highlighting = samples && LANGUAGES.find(([name]) => name === language)?.[2] || 'bash';
      const tab = (/** @type {string[]} */ [name, label]) => {
        const onClick = () => {
          chosen = name;
          choose(name);
        };
        const looks = { 'key': name, 'type': 'button', 'className': 'sample-language', 'aria-pressed': name === language };
        return el('button', { ...looks, onClick }, label);
      };
      const header = el('div', { className: 'opblock-section-header' }, el('h4', null, 'Request'), ...(samples ? LANGUAGES.map(tab) : []));
      const code = el(getComponent('HighlightCode', true), { language: highlighting, canCopy: true }, source);
      return el(Fragment, null, el('div', { className: 'samples' }, header, code), el(Original, props));
    },
    // Swagger UI parses a JSON response to indent it, which rounds ids beyond 2^53.
    responseBody: (/** @type {any} */ Original, /** @type {any} */ { getComponent }) => function ResponseBody(/** @type {any} */ props) {
      const { content, contentType } = props;
      if (typeof content !== 'string' || !/json/i.test(contentType)) {
        return el(Original, props);
      }
      const options = { language: 'json', canCopy: true, downloadable: true, fileName: 'response.json' };
      return el('div', null, el('h5', null, 'Response body'), el(getComponent('HighlightCode', true), options, indent(content)));
    },
    // An operation's path is in a button, where a link cannot be reached.
    DeepLink: () => (/** @type {any} */ { text }) => el('span', null, text),
    ServersContainer: () => () => null, // there is only one
  },
});

let ui = /** @type {any} */ (null);

// authorize uses the token of the console, if the user has signed in there.
function authorize() {
  if (!session.secret()) {
    return;
  }
  const link = (/** @type {import('./grants.js').Entry} */ { name, label }) => h('a', { href: `.${format({ page: name })}` }, label);
  $('pages').replaceChildren(...menu(session.token().scopes).map(link));
  ui?.preauthorizeApiKey('bearer', session.secret());
}

await session.join();
session.follow(authorize, () => location.reload());
authorize();
new MutationObserver(addNames).observe(place, { childList: true, subtree: true, attributeFilter: ['aria-label'] });
try {
  const response = await fetch('openapi.json');
  if (!response.ok) {
    throw new Error(`status ${response.status}`);
  }
  const spec = await response.json();
  // The page may have been opened under a different host name than the one in the
  // base URL. "Try it out" calls the host that the page came from.
  spec.servers = [{ url: API }];
  ui = /** @type {any} */ (globalThis).SwaggerUIBundle({
    spec,
    domNode: place,
    deepLinking: true,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    validatorUrl: null,
    defaultModelsExpandDepth: 0,
    plugins: [changes],
    onComplete: authorize,
  });
} catch (err) {
  const problem = `The API description could not be loaded (${err.message}). Reload the page to try again.`;
  place.replaceChildren(h('p', { class: 'problem' }, problem));
}
