/** A store for the life of the page or process. */

import type { Store } from "./types.js";

export function memoryStore(): Store {
  const kept = new Map<string, Uint8Array | string>();
  return {
    get: (key) => Promise.resolve(kept.get(key)),
    put: (key, value) => Promise.resolve(void kept.set(key, value)),
    delete: (key) => Promise.resolve(void kept.delete(key)),
    keys: () => Promise.resolve([...kept.keys()]),
  };
}
