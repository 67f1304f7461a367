/** Which bundle serves: the kept one at the start, then whatever is rolled out to this device. */

import { Bundle, type Source } from "./bundle.js";
import { Refused, type BundleReason } from "./reasons.js";
import { choose, type Offer } from "./rollout.js";

const MAX_CURRENT_BYTES = 64 * 1024;
const MIN_REFRESH_S = 60;
const RETRY_MS = 5_000;
const PASSING: ReadonlySet<BundleReason> = new Set(["unreachable", "http_error", "timed_out"]);

interface Current {
  format: number;
  made_at: number;
  offers: Offer[];
  refresh_s: number;
}

export class Updates {
  bundle: Bundle | null = null;
  reason: BundleReason | null = null;
  private refreshMs = 3_600_000;
  private failures = 0;
  private seenMs = 0;
  private busy: Promise<BundleReason> | null = null;

  /** `changed` is told when another bundle serves. */
  constructor(
    private readonly source: Source,
    private readonly changed: (bundle: Bundle, before: Bundle | null) => void,
  ) {}

  /** Load what is kept; a file that is gone or damaged is fetched. What is wrong with it, the next look replaces. */
  async restore(): Promise<void> {
    try {
      const current = await this.source.kept.text("current");
      if (current) this.seenMs = (await this.source.verifier.open<Current>(current)).made_at;
      const raw = await this.source.kept.text("manifest");
      if (!raw) return;
      const { id } = await this.source.verifier.open<{ format: number; id: string }>(raw);
      const [manifest] = await Bundle.manifest(this.source, id, raw);
      this.serve(await Bundle.load(this.source, manifest));
    } catch (error) {
      this.reason = reasonOf(error);
    }
  }

  /** When to look again: as often as `current.json` says, sooner while the server can't be reached. */
  get nextMs(): number {
    return this.failures ? Math.min(this.refreshMs, RETRY_MS * 2 ** Math.min(this.failures, 10)) : this.refreshMs;
  }

  /** Resolves when no look is under way. */
  async idle(): Promise<void> {
    await this.busy;
  }

  /** Look for a bundle, once at a time. Never rejects. */
  look(): Promise<BundleReason> {
    this.busy ??= this.once()
      .catch(reasonOf)
      .then((reason) => {
        this.busy = null;
        this.failures = PASSING.has(reason) ? this.failures + 1 : 0;
        return (this.reason = reason);
      });
    return this.busy;
  }

  private async once(): Promise<BundleReason> {
    const { source } = this;
    const url = `${source.settings.baseUrl}/current.json`;
    const raw = await source.fetchFile(url, MAX_CURRENT_BYTES, true);
    const current = await source.verifier.open<Current>(raw);
    if (current.made_at < this.seenMs) return "not_newer";
    this.refreshMs = Math.max(MIN_REFRESH_S, current.refresh_s) * 1000;
    const offer = choose(current.offers, await source.kept.seed(), source.settings.appVersion);
    if (!offer) return "no_offer";
    if (offer.id !== this.bundle?.manifest.id) await this.take(offer.id);
    this.seenMs = current.made_at;
    await source.kept.put("current", raw);
    return "ok";
  }

  private async take(id: string): Promise<void> {
    const { source } = this;
    const [manifest, raw] = await Bundle.manifest(source, id);
    if (Bundle.tooOld(manifest, source.now())) throw new Refused("too_old", id);
    this.serve(await Bundle.load(source, manifest));
    await source.kept.put("manifest", raw);
    await source.kept.trim(new Set(Object.values(manifest.content.files).map((entry) => entry.sha256)));
  }

  private serve(bundle: Bundle): void {
    const before = this.bundle;
    this.bundle = bundle;
    this.changed(bundle, before);
  }
}

const reasonOf = (error: unknown): BundleReason => (error instanceof Refused ? error.reason : "corrupt");
