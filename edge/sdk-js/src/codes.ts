/** One shard of the code table, read in place (format: `edge/code_table.py`). */

import { spread32, type Hash } from "./hash.js";
import { Refused } from "./reasons.js";

const HEADER_BYTES = 16;
const MAGIC = 0x42484331; // BHC1

/** The shard of an item that shard 0 lacks; 0 when there is no other. */
export const tailShard = (hash: Hash, tailShards: number): number => (tailShards ? 1 + (spread32(hash) % tailShards) : 0);

export class Shard {
  private readonly view: DataView;
  private readonly count: number;
  private readonly codeBytes: number;

  /** Throws `Refused` (corrupt) when the bytes are no shard of `levels` levels. */
  constructor(
    bytes: Uint8Array,
    private readonly levels: number,
  ) {
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (bytes.length < HEADER_BYTES || this.view.getUint32(0) !== MAGIC) throw new Refused("corrupt", "no shard");
    this.codeBytes = this.view.getUint8(5);
    this.count = this.view.getUint32(8, true);
    const size = HEADER_BYTES + this.count * (8 + levels * this.codeBytes);
    if (this.view.getUint8(4) !== levels || this.codeBytes < 1 || this.codeBytes > 2 || bytes.length !== size) {
      throw new Refused("corrupt", "a shard of another shape");
    }
  }

  /** The codes, or null. */
  find(hash: Hash): number[] | null {
    let from = 0;
    let to = this.count;
    while (from < to) {
      const middle = (from + to) >>> 1;
      if (this.compare(middle, hash) < 0) from = middle + 1;
      else to = middle;
    }
    return from < this.count && this.compare(from, hash) === 0 ? this.codes(from) : null;
  }

  private compare(index: number, hash: Hash): number {
    const at = HEADER_BYTES + index * 8;
    return this.view.getUint32(at + 4, true) - hash.hi || this.view.getUint32(at, true) - hash.lo;
  }

  private codes(index: number): number[] {
    const start = HEADER_BYTES + this.count * 8 + index * this.levels * this.codeBytes;
    return Array.from({ length: this.levels }, (_, level) => {
      const at = start + level * this.codeBytes;
      return this.codeBytes === 1 ? this.view.getUint8(at) : this.view.getUint16(at, true);
    });
  }
}
