/** The working half: bundle, events, encoder. Runs in the worker, or beside the app where there is none. */

import type { Bundle, Source } from "./bundle.js";
import { Verifier } from "./envelope.js";
import { features } from "./features.js";
import { fileFetcher } from "./fetching.js";
import { Kept } from "./kept.js";
import { sharedMs, type EngineStatus, type FromEngine, type ToEngine } from "./messages.js";
import { Pace } from "./pace.js";
import type { EdgeReason } from "./reasons.js";
import type { Digests, Runtime, Settings, Store } from "./types.js";
import { Updates } from "./updates.js";
import { Visit } from "./visit.js";

/** What can't be sent to a worker. */
export interface Parts {
  runtime: (settings: Settings) => Promise<Runtime>;
  store: () => Store;
  digests: Digests;
  fetch: typeof fetch;
  now: () => number;
}

type Made = { reason: EdgeReason; rows: Float32Array | null };

export class Engine {
  private readonly visit = new Visit(() => (this.unknown += 1));
  private updates: Updates | null = null;
  private source: Source | null = null;
  private started: Promise<void> = Promise.resolve();
  private queue: Promise<void> = Promise.resolve();
  private visitNumber = 0;
  private bucket: string | number = 0;
  private paused = false;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private fetchedBytes = 0;
  private unknown = 0;
  private loadMs: number | null = null;
  private encodeMs: number | null = null;
  private pace = new Pace();

  constructor(
    private readonly parts: Parts,
    private readonly answer: (message: FromEngine, transfer: Transferable[]) => void,
  ) {}

  /** One message, in order of arrival. Never throws. */
  receive(message: ToEngine): void {
    switch (message.type) {
      case "start":
        this.started = this.start(message.settings);
        break;
      case "visit":
        this.visitNumber = message.visit;
        this.bucket = message.bucket;
        if (message.anew) this.visit.clear();
        break;
      case "track":
        this.visit.track(message.event, this.updates?.bundle ?? null);
        break;
      case "prompt":
        void this.prompt(message);
        break;
      case "refresh":
        void this.look().then(() => this.done(message.id));
        break;
      case "settled":
        void this.settle().then(() => this.done(message.id));
        break;
      case "pause":
        this.paused = message.paused;
        break;
    }
  }

  close(): void {
    clearTimeout(this.timer);
    this.visit.clear();
  }

  private async start(settings: Settings): Promise<void> {
    const begun = sharedMs();
    const { parts } = this;
    const runtime = once(() => parts.runtime(settings));
    this.source = {
      settings,
      verifier: new Verifier(parts.digests, settings.keys),
      fetchFile: fileFetcher(parts.fetch, settings.fetchTimeoutMs, (bytes) => (this.fetchedBytes += bytes)),
      kept: new Kept(parts.store(), settings.maxStoreBytes),
      runtime,
      now: parts.now,
    };
    this.updates = new Updates(this.source, (bundle, before) => this.changed(bundle, before, begun));
    await this.updates.restore();
    const looked = this.look();
    if (!this.updates.bundle) await looked;
  }

  private changed(bundle: Bundle, before: Bundle | null, begun: number): void {
    this.loadMs ??= sharedMs() - begun;
    this.pace = new Pace(); // another graph, another pace
    this.queue = this.queue.then(() => before?.encoder.release()).catch(() => undefined);
    this.visit.rebase(bundle);
    this.report();
  }

  private async look(): Promise<void> {
    if (this.paused || !this.updates) return;
    await this.updates.look();
    this.report();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.look(), this.updates.nextMs);
    (this.timer as { unref?: () => void }).unref?.(); // in Node a timer would keep the process alive
  }

  private async settle(): Promise<void> {
    await this.started;
    await this.updates?.idle();
    for (let turns = 0; this.visit.pending && turns < 200; turns += 1) {
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    await this.queue;
  }

  /** Answers in order, one run at a time; what is late by then is not run at all. */
  private async prompt(asked: ToEngine & { type: "prompt" }): Promise<void> {
    await this.started;
    this.queue = this.queue.then(async () => {
      const { reason, rows } = await this.make(asked);
      const content = this.updates?.bundle?.manifest.content;
      const numRows = content?.sizes.prompt_rows ?? 0;
      const { id } = asked;
      const release = content?.release ?? "";
      const { encodeMs, pace } = this;
      const message = { type: "prompt", id, reason, release, numRows, rows, encodeMs, usualMs: pace.usualMs } as const;
      this.answer(message, rows ? [rows.buffer as ArrayBuffer] : []);
    });
  }

  private async make(asked: ToEngine & { type: "prompt" }): Promise<Made> {
    const bundle = this.updates?.bundle;
    if (asked.visit !== this.visitNumber) return none("user_changed");
    if (!bundle) return none("not_loaded");
    const { made_at: madeAt, usable_for_s: usableForS } = bundle.manifest.content;
    if (Math.max(0, asked.nowMs - madeAt) > usableForS * 1000) return none("too_old");
    const leftMs = asked.deadlineMs - sharedMs();
    if (leftMs < 0) return none("too_late");
    const bucket = bundle.bucket(this.bucket);
    const { events } = this.visit;
    if (!events.length) return { reason: "no_events", rows: bundle.defaultRows(bucket) };
    // A run can't be stopped: one that would come too late only costs the device its battery.
    if (!this.pace.allows(leftMs)) return none("too_late");
    const begun = sharedMs();
    const rows = await bundle.encoder.run(features(events, bundle.sizes, bucket, asked.nowMs));
    this.encodeMs = sharedMs() - begun;
    this.pace.add(this.encodeMs);
    return typeof rows === "string" ? none(rows) : { reason: "ok", rows };
  }

  private done(id: number): void {
    this.answer({ type: "done", id, status: this.status() }, []);
  }

  private report(): void {
    this.answer({ type: "status", status: this.status() }, []);
  }

  private status(): EngineStatus {
    const manifest = this.updates?.bundle?.manifest;
    return {
      loaded: manifest !== undefined,
      bundle: manifest?.id ?? null,
      release: manifest?.content.release ?? null,
      graph: manifest?.content.graph ?? null,
      update: this.updates?.reason ?? null,
      fetchedBytes: this.fetchedBytes,
      storage: this.source?.kept.state ?? "ok",
      pending: this.visit.pending,
      unknown: this.unknown,
      loadMs: this.loadMs,
      encodeMs: this.encodeMs,
      usualMs: this.pace.usualMs,
      promptUsableForS: manifest?.content.prompt_usable_for_s ?? 0,
    };
  }
}

const none = (reason: EdgeReason): Made => ({ reason, rows: null });

/** `make` once; its failure is not kept, so that the next load tries again. */
function once<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | null = null;
  return () => {
    made ??= make();
    made.catch(() => (made = null));
    return made;
  };
}
