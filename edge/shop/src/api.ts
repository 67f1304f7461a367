/** The look-up service, as this page asks it. Each call says when it began and what it took. */

export interface Recalled {
  items: { item_id: string }[];
  rung: string;
  release: string;
  assets: Record<string, { state: string; reason: string; age_s: number | null }>;
  skipped: Record<string, string>;
  ledger: { total_ms: number; stages_ms: Record<string, number>; saved_ms: Record<string, number> };
}

export interface Card {
  title: string;
  category: string;
}

/** What this shopper did before, as the near-line tier knows it. */
export interface Past {
  bucket: string;
  window: string[];
  titles: Record<string, string>;
}

/** A stretch of time, in ms from `performance.now()`. */
export interface Span {
  fromMs: number;
  tookMs: number;
}

/** Time `act`, failed or not. */
export async function timed<T>(act: () => Promise<T>): Promise<[T, Span]> {
  const fromMs = performance.now();
  const made = await act();
  return [made, { fromMs, tookMs: performance.now() - fromMs }];
}

/** Rejects with a sentence for people. */
export function recall(request: object, signal: AbortSignal): Promise<Recalled> {
  return ask<Recalled>("/v1/recall", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(request),
    signal,
  });
}

export const past = (userId: string): Promise<Past> =>
  ask<Past>(`/v1/users/${encodeURIComponent(userId)}/explain?k=1`, {});

/** Titles by item id, asked for once. */
export class Cards {
  private readonly known = new Map<string, Card>();

  get(id: string): Card {
    return this.known.get(id) ?? { title: id, category: "" };
  }

  async load(ids: readonly string[]): Promise<void> {
    const wanted = ids.filter((id) => !this.known.has(id));
    if (!wanted.length) return;
    const query = wanted.map((id) => `ids=${encodeURIComponent(id)}`).join("&");
    const { items } = await ask<{ items: Record<string, Card> }>(`/v1/items?${query}`, {});
    for (const [id, card] of Object.entries(items)) this.known.set(id, card);
  }
}

async function ask<T>(path: string, options: RequestInit): Promise<T> {
  const response = await fetch(path, options);
  if (!response.ok) throw new Error(`the service answered ${response.status}`);
  return (await response.json()) as T;
}
