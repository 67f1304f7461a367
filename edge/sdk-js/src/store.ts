/** IndexedDB: where a browser keeps bundles between starts. Nothing of a user is ever put here. */

import type { Store } from "./types.js";

const DATABASE = "beforehand-edge";
const TABLE = "kept";

/** IndexedDB. Every method rejects when the browser refuses (private mode, full, damaged). */
export function indexedDbStore(factory: IDBFactory = indexedDB): Store {
  let opened: Promise<IDBDatabase> | undefined;
  const open = (): Promise<IDBDatabase> => (opened ??= openDatabase(factory));
  const run = async <T>(mode: IDBTransactionMode, act: (table: IDBObjectStore) => IDBRequest<T>): Promise<T> => {
    const transaction = (await open()).transaction(TABLE, mode);
    const request = act(transaction.objectStore(TABLE));
    return new Promise((resolve, reject) => {
      // A write is only kept when its transaction has ended: a full quota may show there first.
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = transaction.onerror = () => reject(transaction.error ?? request.error);
    });
  };
  return {
    get: (key) => run("readonly", (table) => table.get(key) as IDBRequest<Uint8Array | string | undefined>),
    put: async (key, value) => void (await run("readwrite", (table) => table.put(value, key))),
    delete: async (key) => void (await run("readwrite", (table) => table.delete(key))),
    keys: async () => (await run("readonly", (table) => table.getAllKeys())).map(String),
  };
}

function openDatabase(factory: IDBFactory): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = factory.open(DATABASE, 1);
    request.onupgradeneeded = () => void request.result.createObjectStore(TABLE);
    request.onsuccess = () => resolve(request.result);
    request.onerror = request.onblocked = () => reject(request.error ?? new Error("blocked"));
  });
}
