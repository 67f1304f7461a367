/** Fetch one file, within a time and a size. */

import { Refused } from "./reasons.js";

export type FetchFile = (url: string, maxBytes: number, revalidate?: boolean) => Promise<Uint8Array>;

/** Rejects with `Refused`: unreachable, http_error, timed_out, too_large. */
export function fileFetcher(fetching: typeof fetch, timeoutMs: number, count: (bytes: number) => void): FetchFile {
  return async (url, maxBytes, revalidate = false) => {
    const abort = new AbortController();
    const timer = setTimeout(() => abort.abort(), timeoutMs);
    try {
      const response = await fetching(url, {
        signal: abort.signal,
        credentials: "omit",
        ...(revalidate ? { cache: "no-cache" as const } : {}),
      });
      if (!response.ok) throw new Refused("http_error", `${response.status} ${url}`);
      const bytes = await read(response, maxBytes, abort);
      count(bytes.length);
      return bytes;
    } catch (error) {
      if (error instanceof Refused) throw error;
      throw new Refused(abort.signal.aborted ? "timed_out" : "unreachable", `${url}: ${String(error)}`);
    } finally {
      clearTimeout(timer);
    }
  };
}

async function read(response: Response, maxBytes: number, abort: AbortController): Promise<Uint8Array> {
  const reader = response.body?.getReader?.();
  if (!reader) return bounded(new Uint8Array(await response.arrayBuffer()), maxBytes); // React Native has no streams
  const parts: Uint8Array[] = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > maxBytes) {
      const refused = new Refused("too_large", response.url);
      abort.abort();
      throw refused;
    }
  }
  const whole = new Uint8Array(size);
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}

function bounded(bytes: Uint8Array, maxBytes: number): Uint8Array {
  if (bytes.length > maxBytes) throw new Refused("too_large", `${bytes.length} bytes`);
  return bytes;
}
