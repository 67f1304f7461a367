/** The app's half: who is signed in, what was asked, and a limit on every wait. Does next to nothing itself. */

import { rowsToBase64 } from "./bytes.js";
import { isId, judged } from "./judge.js";
import { sharedMs, type EngineStatus, type FromEngine, type Port } from "./messages.js";
import type { BundleReason, EdgeReason } from "./reasons.js";
import type { Edge, EdgeEvent, Outcome, PromptField, Settings, Status } from "./types.js";

const DEFAULT_LIMIT_MS = 20;
const MAX_LIMIT_MS = 60_000;

type Counts = Partial<Record<EdgeReason, number>>;
type Prompted = FromEngine & { type: "prompt" };
type Made = { release: string; rows: Float32Array; numRows: number; madeAtMs: number };

/** What the facade is given by `createEdge`. */
export interface Frame {
  settings: Settings;
  consent: boolean;
  problem: string | null;
  place: "worker" | "inline";
  now: () => number;
  /** Opens the line to the engine; called once, at the first need. Undefined when there is no engine to be had. */
  connect: (receive: (message: FromEngine) => void, failed: () => void) => Port | undefined;
}

export class Facade implements Edge {
  private port: Port | undefined;
  private opened = false;
  private userId: string | null = null;
  private bucket: string | number = 0;
  private visit = 1;
  private consent: boolean;
  private made: Made | null = null;
  private nextId = 1;
  private readonly prompts = new Map<number, (message: Prompted) => void>();
  private readonly waiting = new Map<number, (status: EngineStatus | null) => void>();
  private readonly eventCounts: Counts = {};
  private readonly promptCounts: Counts = {};
  private engine: EngineStatus | null = null;

  constructor(private readonly frame: Frame) {
    this.consent = frame.consent;
  }

  setUser(userId: string, bucket: string | number = 0): void {
    if (!isId(userId)) return this.forget();
    const same = this.userId === userId;
    this.userId = userId;
    this.bucket = bucket;
    this.begin(!same);
  }

  forget(): void {
    this.userId = null;
    this.bucket = 0;
    this.begin(true);
  }

  setConsent(consent: boolean): void {
    if (consent === this.consent) return;
    this.consent = consent === true;
    if (!this.consent) this.begin(true);
    this.port?.send({ type: "pause", paused: !this.consent });
  }

  track(event: EdgeEvent): EdgeReason {
    const reason = this.judge(event);
    this.eventCounts[reason] = (this.eventCounts[reason] ?? 0) + 1;
    return reason;
  }

  warm(): void {
    if (this.consent) this.open();
  }

  async prompt(options: { timeLimitMs?: number } = {}): Promise<Outcome> {
    const begun = sharedMs();
    const limitMs = Math.min(Number(options?.timeLimitMs ?? DEFAULT_LIMIT_MS), MAX_LIMIT_MS);
    const { visit } = this;
    let outcome: Outcome = { ok: false, reason: this.consent ? "too_late" : "no_consent" };
    if (this.consent && limitMs > 0) outcome = this.judgeAnswer(await this.ask(visit, begun, limitMs), begun, limitMs);
    if (outcome.ok && visit !== this.visit) {
      outcome = { ok: false, reason: this.consent ? "user_changed" : "no_consent" };
    }
    if (outcome.ok) {
      const { release, rows, numRows } = outcome;
      this.made = { release, rows, numRows, madeAtMs: begun };
    }
    this.promptCounts[outcome.reason] = (this.promptCounts[outcome.reason] ?? 0) + 1;
    return outcome;
  }

  latest(): Outcome {
    if (!this.made) return { ok: false, reason: "not_made" };
    const { release, rows, numRows, madeAtMs } = this.made;
    const ageMs = Math.max(0, Math.round(sharedMs() - madeAtMs));
    if (ageMs > (this.engine?.promptUsableForS ?? 0) * 1000) return { ok: false, reason: "too_old" };
    return { ok: true, reason: "ok", release, rows, numRows, ageMs };
  }

  attach<T extends object>(request: T): T & { prompt?: PromptField } {
    const asked = (request as { user_id?: unknown } | null)?.user_id;
    const latest = this.latest();
    // A request for somebody else never carries this user's prompt.
    if (!latest.ok || (asked !== undefined && asked !== this.userId)) return request;
    const prompt = {
      release: latest.release,
      rows: rowsToBase64(latest.rows),
      num_rows: latest.numRows,
      age_ms: latest.ageMs,
    };
    return { ...request, prompt };
  }

  async refresh(): Promise<BundleReason> {
    if (!this.consent) return "no_offer";
    return (await this.question("refresh"))?.update ?? "timed_out";
  }

  status(): Status {
    const { frame, engine } = this;
    const isolated = (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated === true;
    const unknown = engine?.unknown ?? 0;
    return {
      loaded: engine?.loaded ?? false,
      bundle: engine?.bundle ?? null,
      release: engine?.release ?? null,
      graph: engine?.graph ?? null,
      update: engine?.update ?? null,
      fetchedBytes: engine?.fetchedBytes ?? 0,
      storage: engine?.storage ?? "ok",
      place: frame.place,
      threads: 1,
      crossOriginIsolated: isolated,
      pending: engine?.pending ?? 0,
      loadMs: engine?.loadMs ?? null,
      encodeMs: engine?.encodeMs ?? null,
      usualMs: engine?.usualMs ?? null,
      events: { ...this.eventCounts, ...(unknown ? { unknown_item: unknown } : {}) },
      prompts: { ...this.promptCounts },
      problem: frame.problem,
    };
  }

  async settled(): Promise<Status> {
    if (this.consent) await this.question("settled");
    return this.status();
  }

  close(): void {
    this.port?.close();
    this.fail("the SDK was closed");
  }

  private begin(anew: boolean): void {
    this.made = null;
    if (anew) this.visit += 1;
    this.port?.send({ type: "visit", visit: this.visit, bucket: this.bucket, anew });
  }

  private judge(event: EdgeEvent): EdgeReason {
    if (!this.consent) return "no_consent";
    const tracked = judged(event, this.frame.now());
    if (!tracked) return "bad_event";
    if (this.userId === null) return "no_user";
    if (event.user_id !== undefined && event.user_id !== this.userId) return "other_user";
    const port = this.open();
    if (!port) return "not_loaded";
    port.send({ type: "track", event: tracked });
    return "ok";
  }

  private open(): Port | undefined {
    if (!this.opened) {
      this.opened = true;
      this.port = this.frame.connect(
        (message) => this.receive(message),
        () => this.fail("the worker failed"),
      );
      this.port?.send({ type: "start", settings: this.frame.settings });
      this.port?.send({ type: "visit", visit: this.visit, bucket: this.bucket, anew: false });
    }
    return this.port;
  }

  /** The engine's answer, or null when the limit came first. */
  private ask(visit: number, begun: number, limitMs: number): Promise<Prompted | null> {
    const port = this.open();
    if (!port) return Promise.resolve(null);
    const id = this.nextId++;
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(null), limitMs);
      const finish = (message: Prompted | null): void => {
        clearTimeout(timer);
        this.prompts.delete(id);
        resolve(message);
      };
      this.prompts.set(id, finish);
      port.send({ type: "prompt", id, visit, nowMs: this.frame.now(), deadlineMs: begun + limitMs });
    });
  }

  private judgeAnswer(message: Prompted | null, begun: number, limitMs: number): Outcome {
    const tookMs = sharedMs() - begun;
    if (!message) return { ok: false, reason: this.engine?.loaded ? "too_late" : "not_loaded" };
    const { reason, rows, release, numRows } = message;
    if (!rows || (reason !== "ok" && reason !== "no_events")) return { ok: false, reason };
    if (tookMs > limitMs) return { ok: false, reason: "too_late" };
    return { ok: true, reason, release, rows, numRows, ageMs: Math.round(tookMs) };
  }

  private question(type: "refresh" | "settled"): Promise<EngineStatus | null> {
    const port = this.open();
    if (!port) return Promise.resolve(null);
    const id = this.nextId++;
    return new Promise((resolve) => {
      const timer = setTimeout(() => finish(null), MAX_LIMIT_MS);
      const finish = (status: EngineStatus | null): void => {
        clearTimeout(timer);
        this.waiting.delete(id);
        resolve(status);
      };
      this.waiting.set(id, finish);
      port.send({ type, id });
    });
  }

  private receive(message: FromEngine): void {
    if (message.type === "prompt") {
      if (this.engine) Object.assign(this.engine, { encodeMs: message.encodeMs, usualMs: message.usualMs });
      this.prompts.get(message.id)?.(message);
      return;
    }
    this.engine = message.status;
    if (message.type === "done") {
      this.waiting.get(message.id)?.(message.status);
    }
  }

  private fail(problem: string): void {
    this.port = undefined;
    this.opened = true;
    this.engine = null;
    this.frame.problem ??= problem;
    for (const finish of [...this.waiting.values()]) finish(null);
  }
}
