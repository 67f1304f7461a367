/** What the present user did here, as far as the encoder can use it. In memory only. */

import type { Bundle } from "./bundle.js";
import { newest, type KnownEvent } from "./features.js";
import type { Kind } from "./types.js";

const MAX_WAITING = 64;

export interface Tracked {
  event_id: string;
  item_id: string;
  kind: Kind;
  at: number;
}
type Waiting = Tracked & { order: number };
type Known = KnownEvent & Waiting;

export class Visit {
  private known: Known[] = [];
  private waiting: Waiting[] = [];
  private arrived = 0;

  /** `unknown` is told of every event that is dropped because the bundle lacks its item. */
  constructor(private readonly unknown: () => void) {}

  /** Events whose codes are not here yet. */
  get pending(): number {
    return this.waiting.length;
  }

  get events(): readonly KnownEvent[] {
    return this.known;
  }

  clear(): void {
    this.known = [];
    this.waiting = [];
  }

  /** Keep an event; without a bundle it waits for one. */
  track(event: Tracked, bundle: Bundle | null): void {
    this.sort({ ...event, order: this.arrived++ }, bundle);
  }

  /** Another bundle: the codes of all events are looked up anew. */
  rebase(bundle: Bundle): void {
    const all = [...this.known, ...this.waiting];
    this.clear();
    for (const event of all) this.sort(event, bundle);
  }

  private sort(event: Waiting, bundle: Bundle | null): void {
    const codes = bundle ? bundle.codes(event.item_id) : undefined;
    if (Array.isArray(codes)) {
      this.known = newest([...this.known, { ...event, codes }], bundle!.sizes.local_events) as Known[];
    } else if (codes === null) {
      this.unknown();
    } else {
      this.waiting = [...this.waiting, event].slice(-MAX_WAITING);
      // A shard that does not come leaves its events out; the next event of it asks again.
      codes?.then(
        () => this.retry(event, bundle),
        () => this.remove(event),
      );
    }
  }

  private retry(event: Waiting, bundle: Bundle | null): void {
    if (this.remove(event)) this.sort(event, bundle);
  }

  private remove(event: Waiting): boolean {
    const before = this.waiting.length;
    this.waiting = this.waiting.filter((other) => other !== event);
    return this.waiting.length < before;
  }
}
