/** Ed25519 for browsers whose WebCrypto has none (Chromium before 137); its SHA-512 is WebCrypto's. Loaded at need. */

import { verifyAsync } from "@noble/ed25519";

export const verifyEd25519 = (key: Uint8Array, signature: Uint8Array, message: Uint8Array): Promise<boolean> =>
  verifyAsync(signature, message, key).catch(() => false);
