// JSON with exact ids. It touches no DOM.

// parse parses JSON and keeps every number as a string: an id has 64 bits, and a
// JavaScript number only 53.
export function parse(/** @type {string} */ text) {
  const exact = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
  return JSON.parse(text.replace(exact, (part) => (part[0] === '"' ? part : `"${part}"`)));
}

// plantJSON encodes a plant. The id is sent as typed if it is a number, and as a string
// otherwise, so that the server's error message says what is wrong.
/** @type {(plant: {id?: string, name: string, tag?: string, if_version?: string}) => string} */
export function plantJSON({ id, name, tag, if_version: version }) {
  const members = [];
  if (id !== undefined && id !== '') {
    members.push(`"id":${idJSON(id)}`);
  }
  members.push(`"name":${JSON.stringify(name)}`);
  if (tag !== undefined) {
    members.push(`"tag":${JSON.stringify(tag)}`);
  }
  if (version !== undefined) {
    members.push(`"if_version":${JSON.stringify(version)}`);
  }
  return `{${members.join(',')}}`;
}

function idJSON(/** @type {string} */ text) {
  if (/^[+-]?\d+$/.test(text)) {
    return BigInt(text).toString();
  }
  return /^-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?$/.test(text) ? text : JSON.stringify(text);
}

// indent returns JSON with line breaks and indentation, and every number and string as it
// was. What is not one JSON value, such as NDJSON, stays as it is.
export function indent(/** @type {string} */ text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  let out = '';
  let line = '\n';
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === '{' || token === '[') {
      line += '  ';
      out += token + line;
    } else if (token === '}' || token === ']') {
      line = line.slice(0, -2);
      out += line + token;
    } else if (token === ',') {
      out += token + line;
    } else {
      out += token === ':' ? ': ' : token.replace(/^([{[])\s+/, '$1');
    }
  }
  return out;
}
