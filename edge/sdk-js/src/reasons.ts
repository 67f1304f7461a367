/** The closed sets of reasons: the words of `edge/names.py`; `edge/vectors/reasons.json` holds the same lists. */

/** Why there is no prompt embedding, or what became of an event. */
export const EDGE_REASONS = [
  "ok",
  "not_loaded",
  "too_old",
  "too_late",
  "no_consent",
  "no_events",
  "not_made",
  "user_changed",
  "not_finite",
  "bad_shape",
  "encode_failed",
  "no_user",
  "other_user",
  "unknown_item",
  "bad_event",
] as const;
export type EdgeReason = (typeof EDGE_REASONS)[number];

/** What became of a bundle that was offered; whatever is not `ok` leaves the present one in use. */
export const BUNDLE_REASONS = [
  "ok",
  "unreachable",
  "http_error",
  "timed_out",
  "no_offer",
  "not_newer",
  "unknown_key",
  "bad_signature",
  "corrupt",
  "too_new",
  "runtime_too_old",
  "too_large",
  "too_old",
  "does_not_load",
] as const;
export type BundleReason = (typeof BUNDLE_REASONS)[number];

/** A bundle that is refused. Stays inside the SDK. */
export class Refused extends Error {
  constructor(
    readonly reason: BundleReason,
    detail: string,
  ) {
    super(`${reason}: ${detail}`);
  }
}
