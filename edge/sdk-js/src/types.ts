import type { BundleReason, EdgeReason } from "./reasons.js";

export type Kind = "impression" | "click" | "cart" | "purchase";

/** One thing that the user did here. Times are milliseconds since 1970. */
export interface EdgeEvent {
  event_id: string;
  item_id: string;
  kind: Kind;
  /** By default now. */
  at?: number;
  /** By default the user who is signed in; another's event is refused. */
  user_id?: string;
}

/** An embedding, or why there is none. With `no_events` the rows are the default rows of the user's bucket. */
export type Outcome =
  | { ok: true; reason: "ok" | "no_events"; release: string; rows: Float32Array; numRows: number; ageMs: number }
  | { ok: false; reason: EdgeReason };

/** The field `prompt` of a recall request. */
export interface PromptField {
  release: string;
  rows: string;
  num_rows: number;
  age_ms: number;
}

/** What the SDK is doing. Counts are of this page or process. */
export interface Status {
  /** An encoder is loaded and can run. */
  loaded: boolean;
  bundle: string | null;
  release: string | null;
  /** Which export the bundle holds: fp32, fp16 or int8. */
  graph: string | null;
  /** What became of the last look for a bundle; null before the first. */
  update: BundleReason | null;
  /** Bytes fetched since the start. */
  fetchedBytes: number;
  /** `full` when the last write was refused; then bundles are fetched again at the next start. */
  storage: "ok" | "full" | "none";
  /** Where the encoder runs. */
  place: "worker" | "inline";
  /** Always one: more need cross-origin isolation, and the encoder is small. */
  threads: 1;
  crossOriginIsolated: boolean;
  /** Events whose items' codes are still being fetched. */
  pending: number;
  loadMs: number | null;
  /** Of the last run. */
  encodeMs: number | null;
  /** The median of the last runs. A prompt with less time than this left is `too_late` at once; some are tried. */
  usualMs: number | null;
  events: Partial<Record<EdgeReason, number>>;
  prompts: Partial<Record<EdgeReason, number>>;
  /** What is wrong with the options, in words; null when nothing is. */
  problem: string | null;
}

/** The part of onnxruntime that is used: onnxruntime-web, onnxruntime-node and onnxruntime-react-native all have it. */
export interface Runtime {
  Tensor: new (type: "int64" | "float32", data: never, dims: readonly number[]) => unknown;
  InferenceSession: {
    create(model: Uint8Array, options?: object): Promise<Session>;
  };
  env?: { versions?: Record<string, string | undefined> };
}
export interface Session {
  run(feeds: Record<string, unknown>): Promise<Record<string, { data: unknown; dims: readonly number[] }>>;
  release?(): Promise<void>;
}

/** Where bundles are kept between starts. A method may reject: then the SDK does without. */
export interface Store {
  get(key: string): Promise<Uint8Array | string | undefined>;
  put(key: string, value: Uint8Array | string): Promise<void>;
  delete(key: string): Promise<void>;
  keys(): Promise<string[]>;
}

/** Digest and signature. */
export interface Digests {
  sha256(bytes: Uint8Array): Promise<Uint8Array>;
  /** Ed25519: a 32-byte key and a 64-byte signature. */
  verify(key: Uint8Array, signature: Uint8Array, message: Uint8Array): Promise<boolean>;
}

/** What may be sent to a worker. */
export interface Settings {
  /** Where bundles are served: `https://…/v1/edge`. */
  baseUrl: string;
  /** The keys that bundles may be signed with: 32 bytes in base64 each. */
  keys: string[];
  /** Version of the app, as numbers with dots: decides which bundles it gets. */
  appVersion: string;
  /** Of what is loaded before the first embedding. By default 8 MB. */
  maxBytes: number;
  /** Of what is kept between starts. By default 16 MB. */
  maxStoreBytes: number;
  /** `ort` is larger and loads faster; some builds of the runtime read nothing else. By default `onnx`. */
  format: "onnx" | "ort";
  /** Of one file. By default 30 s. */
  fetchTimeoutMs: number;
  /** Where the runtime's wasm files are served, when the bundler does not place them (a URL that ends in /). */
  wasmPaths: string | null;
}

export interface EdgeOptions extends Partial<Settings> {
  baseUrl: string;
  keys: string[];
  /** Whether the user has agreed. Without it nothing is fetched, kept or computed. By default false. */
  consent?: boolean;
  /** When to load: when the page is idle, or at the first `warm` or `prompt`. By default `idle`. */
  warm?: "idle" | "manual";
  /** Wall clock in ms. */
  now?: () => number;
}

/** For browsers. */
export interface WebOptions extends EdgeOptions {
  /** Makes the worker; by default the package's own. */
  worker?: () => Worker;
}

/** For runtimes that work off this thread by themselves: React Native, or Node. */
export interface NativeOptions extends EdgeOptions {
  /** onnxruntime, or a function that imports it. */
  runtime: Runtime | (() => Promise<Runtime>);
  /** `pureDigests()` of `beforehand-edge/pure`, or those of a native library. */
  digests: Digests;
  /** Where bundles are kept between starts; by default nowhere. */
  store?: Store;
  fetch?: typeof fetch;
}

/** What an app holds. No method throws; none outstays its time limit. */
export interface Edge {
  /** Sign a user in, with the name or number of a profile bucket. Another user's events and prompt are dropped. */
  setUser(userId: string, bucket?: string | number): void;
  /** Drop the user, the events and the prompt. Nothing of a user is ever stored. */
  forget(): void;
  /** Give or withdraw consent; withdrawing drops the events and the prompt. */
  setConsent(consent: boolean): void;
  /** Keep an event: `ok`, or why it was dropped. An item that the bundle lacks is found out later and counted. */
  track(event: EdgeEvent): EdgeReason;
  /** Begin to load, in the background. */
  warm(): void;
  /** The embedding of the present events, within the limit (by default 20 ms, loading included). */
  prompt(options?: { timeLimitMs?: number }): Promise<Outcome>;
  /** The last embedding of this user, its age brought up to now. */
  latest(): Outcome;
  /** `request` with the last embedding as `prompt`, or as it is when there is none to send. */
  attach<T extends object>(request: T): T & { prompt?: PromptField };
  /** Look for a new bundle now; within a minute. */
  refresh(): Promise<BundleReason>;
  status(): Status;
  /** The status, once nothing is being loaded any more; within a minute. */
  settled(): Promise<Status>;
  /** End the worker; nothing works afterwards. */
  close(): void;
}
