/** A JSON value. Integers that a number cannot hold exactly are bigints. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json };

const decimal = /^-?\d+$/;

/** An integer of 16 digits or more may not be exact as a number. */
const long = /\d{16}/;

/** Converts the source of a number. */
function toNumber(source: string): number | bigint {
  const value = Number(source);
  return decimal.test(source) && !Number.isSafeInteger(value) ? BigInt(source) : value;
}

/** A bigint, or text that could be taken for one, while JSON.stringify writes it. */
const marked = /^#+-?\d+$/;

/**
 * Is JSON.stringify for values with bigints, such as plants: it writes them as exact
 * numbers. JSON.stringify itself throws a TypeError.
 */
export function stringify(value: unknown, space?: string | number): string {
  const mark = (_key: string, value: unknown): unknown =>
    typeof value === "bigint" || (typeof value === "string" && marked.test(value)) ? `#${value}` : value;
  // A quote inside of a text is escaped, so this finds whole texts. A colon follows a name.
  return JSON.stringify(value, mark, space).replace(/(?<!\\)"#(#*)(-?\d+)"(?!:)/g, (_, more: string, digits: string) =>
    more === "" ? digits : `"${more}${digits}"`,
  );
}

type Reviver = (this: unknown, key: string, value: Json, context?: { source?: string }) => Json;

const withSource: Reviver = (_key, value, context) =>
  typeof value === "number" && context?.source !== undefined ? toNumber(context.source) : value;

const parseWithSource = JSON.parse as (text: string, reviver: Reviver) => Json;

/** Whether the engine shows a reviver the source of a number. */
const hasSource = parseWithSource("9007199254740993", withSource) === 9007199254740993n;

/**
 * Is JSON.parse without losing integers: those that a number cannot hold exactly become
 * bigints. It throws a SyntaxError.
 */
export function parse(text: string): Json {
  if (!long.test(text)) {
    return JSON.parse(text) as Json;
  }
  return hasSource ? parseWithSource(text, withSource) : parseExactly(text);
}

/** A number, or anything else that is one token of JSON but not a string. */
const token = /(-?\d[\d.eE+-]*)|[[\]{}:,]|true|false|null/y;

const space = /[ \t\r\n]*/y;

/** Returns the index after the string that begins at an index. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); ; end = text.indexOf('"', end + 1)) {
    let escape = end - 1;
    while (text[escape] === "\\") {
      escape--;
    }
    if ((end - escape) % 2 === 1) {
      return end + 1;
    }
  }
}

/** Parses JSON for engines that do not show the source of a number. */
export function parseExactly(text: string): Json {
  JSON.parse(text); // so that only valid JSON is read below
  let at = 0;
  const next = (): string => {
    space.lastIndex = at;
    space.exec(text);
    const start = space.lastIndex;
    if (text[start] === '"') {
      at = endOfString(text, start);
    } else {
      token.lastIndex = start;
      token.exec(text);
      at = token.lastIndex;
    }
    return text.slice(start, at);
  };
  const value = (found: string): Json => {
    switch (found[0]) {
      case "[":
        return array();
      case "{":
        return object();
      case '"':
      case "t":
      case "f":
      case "n":
        return JSON.parse(found) as Json;
      default:
        return toNumber(found);
    }
  };
  const array = (): Json[] => {
    const elements: Json[] = [];
    for (let found = next(); found !== "]"; found = next()) {
      if (found !== ",") {
        elements.push(value(found));
      }
    }
    return elements;
  };
  const object = (): Json => {
    const members: [string, Json][] = [];
    for (let found = next(); found !== "}"; found = next()) {
      if (found !== ",") {
        next(); // the colon
        members.push([JSON.parse(found) as string, value(next())]);
      }
    }
    return Object.fromEntries(members);
  };
  return value(next());
}
