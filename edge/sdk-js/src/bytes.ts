/** Bytes and text, with nothing that React Native lacks. */

const encoder = new TextEncoder();

export const utf8 = (text: string): Uint8Array => encoder.encode(text);

export function text(bytes: Uint8Array): string {
  if (typeof TextDecoder !== "undefined") return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  return decodeURIComponent(Array.from(bytes, (byte) => `%${byte.toString(16).padStart(2, "0")}`).join(""));
}

export const hex = (bytes: Uint8Array): string =>
  Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

export const fromBase64 = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));

/** Float32 little-endian rows in base64, as a recall request carries them. */
export function rowsToBase64(rows: Float32Array): string {
  const view = new DataView(new ArrayBuffer(rows.length * 4));
  rows.forEach((value, index) => view.setFloat32(index * 4, value, true));
  return btoa(String.fromCharCode(...new Uint8Array(view.buffer)));
}
