/** Whether what an app hands in is an event. */

import { KINDS } from "./features.js";
import type { EdgeEvent } from "./types.js";
import type { Tracked } from "./visit.js";

const MIN_AT_MS = 946_684_800_000; // 2000-01-01: anything smaller is seconds, or a mistake
const MAX_AT_MS = 4_102_444_800_000; // 2100-01-01: anything larger is microseconds, or a mistake
const MAX_ID_LENGTH = 256;
const CONTROL = /[\u0000-\u001f\u007f]/;
const LONE_SURROGATE = /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/;

/** As `schemas.event.Id`: 1 to 256 characters, none of them a control character. */
export function isId(id: unknown): id is string {
  return (
    typeof id === "string" && id !== "" && [...id].length <= MAX_ID_LENGTH && !CONTROL.test(id) && !LONE_SURROGATE.test(id)
  );
}

/** The event, whole, or null when it is none. */
export function judged(event: EdgeEvent | null | undefined, nowMs: number): Tracked | null {
  if (typeof event !== "object" || event === null) return null;
  const { event_id, item_id, kind, at = nowMs } = event;
  const good =
    isId(event_id) && isId(item_id) && KINDS.includes(kind) && Number.isInteger(at) && at >= MIN_AT_MS && at <= MAX_AT_MS;
  return good ? { event_id, item_id, kind, at } : null;
}
