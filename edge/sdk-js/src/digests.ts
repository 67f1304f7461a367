/** WebCrypto; its Ed25519 is filled in where a browser lacks it. */

import type { Digests } from "./types.js";

export function webDigests(): Digests {
  const { subtle } = globalThis.crypto;
  return {
    sha256: async (bytes) => new Uint8Array(await subtle.digest("SHA-256", bytes as BufferSource)),
    async verify(key, signature, message) {
      let imported: CryptoKey;
      try {
        imported = await subtle.importKey("raw", key as BufferSource, "Ed25519", false, ["verify"]);
      } catch {
        return (await import("./ed25519.js")).verifyEd25519(key, signature, message);
      }
      return subtle.verify("Ed25519", imported, signature as BufferSource, message as BufferSource);
    },
  };
}
