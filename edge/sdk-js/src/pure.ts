/** Digests in plain JavaScript, for React Native. */

import { hashes, verify } from "@noble/ed25519";
import { sha256, sha512 } from "@noble/hashes/sha2.js";
import type { Digests } from "./types.js";

export function pureDigests(): Digests {
  hashes.sha512 = sha512;
  return {
    sha256: (bytes) => Promise.resolve(sha256(bytes)),
    verify(key, signature, message) {
      try {
        return Promise.resolve(verify(signature, message, key));
      } catch {
        return Promise.resolve(false); // it throws at what is no signature or no key
      }
    },
  };
}
