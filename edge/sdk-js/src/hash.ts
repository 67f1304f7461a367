/** 64-bit FNV-1a in two halves, and its spread: `edge/code_table.py` in JavaScript. */

import { utf8 } from "./bytes.js";

export interface Hash {
  hi: number;
  lo: number;
}

/** Of the id's UTF-8. The prime is 2^40 + 0x1b3: each half is multiplied by 0x1b3, and the low one shifted up by 40. */
export function itemHash(id: string): Hash {
  let hi = 0xcbf29ce4;
  let lo = 0x84222325;
  for (const byte of utf8(id)) {
    lo = (lo ^ byte) >>> 0;
    const low = lo * 0x1b3;
    hi = (hi * 0x1b3 + Math.floor(low / 2 ** 32) + ((lo << 8) >>> 0)) % 2 ** 32;
    lo = low % 2 ** 32;
  }
  return { hi, lo };
}

/** 32 evenly spread bits (murmur's finaliser). */
export function spread32({ hi, lo }: Hash): number {
  let mixed = (hi ^ lo) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 16), 0x85ebca6b) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 13), 0xc2b2ae35) >>> 0;
  return (mixed ^ (mixed >>> 16)) >>> 0;
}
