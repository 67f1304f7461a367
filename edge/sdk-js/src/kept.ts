/** The store, within its bound, and with its failures swallowed: without it every start is a first start. */

import type { Store } from "./types.js";

const FILE = "file:";
const MAX_SEED_BYTES = 16;

export class Kept {
  state: "ok" | "full" | "none" = "ok";

  constructor(
    private readonly store: Store,
    private readonly maxBytes: number,
  ) {}

  async text(key: "current" | "manifest" | "seed"): Promise<Uint8Array | undefined> {
    const value = await this.get(key);
    return value instanceof Uint8Array ? value : undefined;
  }

  file(sha256: string): Promise<Uint8Array | undefined> {
    return this.get(FILE + sha256);
  }

  put(key: "current" | "manifest" | "seed", value: Uint8Array): Promise<void> {
    return this.write(key, value);
  }

  putFile(sha256: string, bytes: Uint8Array): Promise<void> {
    return this.write(FILE + sha256, bytes);
  }

  dropFile(sha256: string): Promise<void> {
    return this.store.delete(FILE + sha256).catch(() => undefined);
  }

  /** This device's random number: drawn once, never sent. */
  async seed(): Promise<string> {
    const known = await this.text("seed");
    if (known) return String.fromCharCode(...known);
    const drawn = Array.from({ length: MAX_SEED_BYTES }, () => 97 + Math.floor(Math.random() * 26));
    await this.put("seed", Uint8Array.from(drawn));
    return String.fromCharCode(...drawn);
  }

  /** Drop the files that are not among `wanted`. */
  async trim(wanted: ReadonlySet<string>): Promise<void> {
    const keys = await this.store.keys().catch(() => []);
    const stale = keys.filter((key) => key.startsWith(FILE) && !wanted.has(key.slice(FILE.length)));
    await Promise.all(stale.map((key) => this.store.delete(key).catch(() => undefined)));
  }

  private async get(key: string): Promise<Uint8Array | undefined> {
    try {
      const value = await this.store.get(key);
      return value instanceof Uint8Array ? value : undefined;
    } catch {
      this.state = "none";
      return undefined;
    }
  }

  private async write(key: string, bytes: Uint8Array): Promise<void> {
    if (bytes.length > this.maxBytes) {
      this.state = "full";
      return;
    }
    try {
      await this.store.put(key, bytes);
    } catch {
      this.state = this.state === "none" ? "none" : "full";
    }
  }
}
