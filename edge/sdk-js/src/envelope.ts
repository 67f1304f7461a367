/** Signed JSON: nothing in the payload is believed before the signature is checked (`edge/envelope.py`). */

import { fromBase64, hex, text, utf8 } from "./bytes.js";
import { Refused } from "./reasons.js";
import type { Digests } from "./types.js";

const FORMAT = 1;

/** Checks against the pinned keys. */
export class Verifier {
  private readonly byId: Promise<Map<string, Uint8Array>>;

  constructor(
    private readonly digests: Digests,
    keys: readonly string[],
  ) {
    this.byId = this.identify(keys);
    this.byId.catch(() => undefined);
  }

  /** The payload. Throws `Refused`: corrupt, unknown_key, bad_signature, too_new. */
  async open<T extends { format: number }>(raw: Uint8Array): Promise<T> {
    const { key, payload, signature } = parseEnvelope(raw);
    const known = (await this.byId).get(key);
    if (!known) throw new Refused("unknown_key", key);
    const message = utf8(payload);
    const genuine = signature.length === 64 && (await this.digests.verify(known, signature, message));
    if (!genuine) throw new Refused("bad_signature", key);
    const value = parse(payload) as T | null;
    if (typeof value?.format !== "number") throw new Refused("corrupt", "no format");
    if (value.format > FORMAT) throw new Refused("too_new", `format ${value.format}`);
    return value;
  }

  /** Throws `Refused` (corrupt) when the bytes have another digest. */
  async check(bytes: Uint8Array, sha256: string): Promise<void> {
    if (hex(await this.digests.sha256(bytes)) !== sha256) throw new Refused("corrupt", "other bytes");
  }

  private async identify(keys: readonly string[]): Promise<Map<string, Uint8Array>> {
    const known = new Map<string, Uint8Array>();
    for (const pinned of keys) {
      const key = fromBase64(pinned);
      known.set(hex(await this.digests.sha256(key)).slice(0, 16), key);
    }
    return known;
  }
}

function parseEnvelope(raw: Uint8Array): { key: string; payload: string; signature: Uint8Array } {
  try {
    const { key, payload, signature } = JSON.parse(text(raw)) as Record<string, unknown>;
    if (typeof key === "string" && typeof payload === "string" && typeof signature === "string") {
      return { key, payload, signature: fromBase64(signature) };
    }
  } catch {
    // what can't be parsed is as corrupt as what lacks a part
  }
  throw new Refused("corrupt", "no signed file");
}

function parse(payload: string): unknown {
  try {
    return JSON.parse(payload);
  } catch {
    throw new Refused("corrupt", "no JSON");
  }
}
