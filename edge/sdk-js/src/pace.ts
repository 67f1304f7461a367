/** How long the encoder usually takes on this device, and whether a limit is worth trying. */

const KEPT = 5;
const RETRY_EVERY = 5;

export class Pace {
  private readonly recent: number[] = [];
  private skipped = 0;

  /** The median of the last five runs; null before there are five: the first ones also warm the runtime. */
  get usualMs(): number | null {
    return this.recent.length < KEPT ? null : [...this.recent].sort((a, b) => a - b)[KEPT >> 1]!;
  }

  add(tookMs: number): void {
    this.recent.push(tookMs);
    if (this.recent.length > KEPT) this.recent.shift();
  }

  /** False when the usual time is more than what is left; every fifth of those is tried all the same. */
  allows(leftMs: number): boolean {
    if ((this.usualMs ?? 0) <= leftMs) return true;
    this.skipped = (this.skipped + 1) % RETRY_EVERY;
    return this.skipped === 0;
  }
}
