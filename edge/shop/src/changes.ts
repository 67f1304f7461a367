/** How one list differs from another. */

export type Change = { kind: "new" } | { kind: "up" | "down"; by: number } | { kind: "same" };

/** What became of each item of `after`. */
export function changes(before: readonly string[], after: readonly string[]): Map<string, Change> {
  const was = new Map(before.map((id, place) => [id, place]));
  return new Map(after.map((id, place) => [id, changeOf(was.get(id), place)]));
}

function changeOf(was: number | undefined, place: number): Change {
  if (was === undefined) return { kind: "new" };
  if (was === place) return { kind: "same" };
  return { kind: place < was ? "up" : "down", by: Math.abs(was - place) };
}

export interface Count {
  new: number;
  up: number;
  down: number;
  gone: number;
}

/** How many of each kind, and how many of `before` are gone. */
export function count(before: readonly string[], after: readonly string[]): Count {
  const all = [...changes(before, after).values()];
  const of = (kind: Change["kind"]): number => all.filter((change) => change.kind === kind).length;
  const kept = new Set(after);
  return { new: of("new"), up: of("up"), down: of("down"), gone: before.filter((id) => !kept.has(id)).length };
}
