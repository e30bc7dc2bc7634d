/** Returns Web Crypto, or undefined on a page without https. Node 18 has it only as a module. */
async function subtle(): Promise<SubtleCrypto | undefined> {
  if (globalThis.crypto?.subtle !== undefined) {
    return globalThis.crypto.subtle;
  }
  if (!isNode) {
    return undefined;
  }
  const name = "node:crypto"; // so that bundlers for browsers leave it alone
  return ((await import(/* @vite-ignore */ name)) as { webcrypto: Crypto }).webcrypto.subtle;
}

/** Whether this is Node, or a runtime that is compatible with it. */
export const isNode =
  typeof (globalThis as { process?: { versions?: { node?: string } } }).process?.versions?.node === "string";

/** Reports whether one of the signatures is the HMAC-SHA256 of the data, in constant time. */
export async function verifyHmac(key: BufferSource, signatures: BufferSource[], data: BufferSource): Promise<boolean> {
  const web = await subtle();
  if (web === undefined) {
    throw new TypeError("Web Crypto is not available here: a page needs https");
  }
  const imported = await web.importKey("raw", key, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  for (const signature of signatures) {
    if (await web.verify("HMAC", imported, signature, data)) {
      return true;
    }
  }
  return false;
}

/** Decodes base64, or returns undefined if it is malformed. */
export function fromBase64(text: string) {
  if (text.length % 4 !== 0 || !/^[A-Za-z0-9+/]*={0,2}$/.test(text)) {
    return undefined;
  }
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}
