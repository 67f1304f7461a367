/** A bundle, verified and loaded; its tail shards come when they are asked for. */

import { Shard, tailShard } from "./codes.js";
import { checkRuntime, Encoder } from "./encoder.js";
import type { Verifier } from "./envelope.js";
import type { Sizes } from "./features.js";
import type { FetchFile } from "./fetching.js";
import { itemHash } from "./hash.js";
import type { Kept } from "./kept.js";
import { Refused } from "./reasons.js";
import type { Runtime, Settings } from "./types.js";

const MAX_MANIFEST_BYTES = 4 * 1024 * 1024;
const MAX_TAIL_SHARDS = 8;

interface FileEntry {
  sha256: string;
  num_bytes: number;
}

export interface Manifest {
  format: number;
  id: string;
  content: {
    release: string;
    made_at: number;
    graph: string;
    sizes: Sizes;
    buckets: string[];
    files: Record<string, FileEntry>;
    tail_shards: number;
    minimum_runtimes: Record<string, string>;
    usable_for_s: number;
    prompt_usable_for_s: number;
  };
}

/** What loading needs. */
export interface Source {
  settings: Settings;
  verifier: Verifier;
  fetchFile: FetchFile;
  kept: Kept;
  runtime: () => Promise<Runtime>;
  now: () => number;
}

const shardName = (number: number): string => `codes/${number}.bin`;

export class Bundle {
  private readonly tail = new Map<number, Shard>();
  private readonly loading = new Map<number, Promise<void>>();

  private constructor(
    private readonly source: Source,
    readonly manifest: Manifest,
    readonly encoder: Encoder,
    private readonly defaults: DataView,
    private readonly head: Shard,
  ) {}

  /** The manifest as it is kept or served, verified. Throws `Refused`. */
  static async manifest(source: Source, id: string, kept?: Uint8Array): Promise<[Manifest, Uint8Array]> {
    const url = `${source.settings.baseUrl}/${id}/manifest.json`;
    const raw = kept ?? (await source.fetchFile(url, MAX_MANIFEST_BYTES));
    const manifest = await source.verifier.open<Manifest>(raw);
    if (manifest.id !== id) throw new Refused("corrupt", "the manifest of another bundle");
    return [manifest, raw];
  }

  /** Past its age by this device's clock. */
  static tooOld(manifest: Manifest, nowMs: number): boolean {
    return Math.max(0, nowMs - manifest.content.made_at) > manifest.content.usable_for_s * 1000;
  }

  /** Fetch what is not kept, verify everything, load the graph. Throws `Refused`. */
  static async load(source: Source, manifest: Manifest): Promise<Bundle> {
    const { content } = manifest;
    const names = [`model.${source.settings.format}`, "defaults.bin", shardName(0)];
    const size = names.reduce((sum, name) => sum + entry(manifest, name).num_bytes, 0);
    if (size > source.settings.maxBytes) throw new Refused("too_large", `${size} bytes`);
    const [graph, defaults, head] = await Promise.all(names.map((name) => file(source, manifest, name)));
    const rows = checkedDefaults(defaults!, content.sizes);
    const shard = new Shard(head!, content.sizes.levels);
    const runtime = await source.runtime().catch((error: unknown) => {
      throw new Refused("does_not_load", String(error));
    });
    checkRuntime(runtime, content.minimum_runtimes["onnxruntime"]);
    return new Bundle(source, manifest, await Encoder.load(runtime, graph!, content.sizes), rows, shard);
  }

  get sizes(): Sizes {
    return this.manifest.content.sizes;
  }

  /** The item's codes, null when the bundle lacks it, or a promise when that has to be found out first. */
  codes(itemId: string): number[] | null | Promise<void> {
    const hash = itemHash(itemId);
    const found = this.head.find(hash);
    const number = tailShard(hash, this.manifest.content.tail_shards);
    if (found || !number) return found;
    return this.tail.get(number)?.find(hash) ?? (this.tail.has(number) ? null : this.fetchTail(number));
  }

  /** The number of a bucket given by name or number; 0, everybody, when the release lacks it. */
  bucket(given: string | number): number {
    const number = typeof given === "string" ? this.manifest.content.buckets.indexOf(given) : given;
    return Number.isInteger(number) && number >= 0 && number < this.sizes.num_buckets ? number : 0;
  }

  defaultRows(bucket: number): Float32Array {
    const size = this.sizes.prompt_rows * this.sizes.width;
    return Float32Array.from({ length: size }, (_, i) => this.defaults.getFloat32((bucket * size + i) * 4, true));
  }

  private fetchTail(number: number): Promise<void> {
    let loading = this.loading.get(number);
    if (!loading) {
      loading = file(this.source, this.manifest, shardName(number))
        .then((bytes) => this.keepTail(number, new Shard(bytes, this.sizes.levels)))
        .finally(() => this.loading.delete(number));
      this.loading.set(number, loading);
    }
    return loading;
  }

  private keepTail(number: number, shard: Shard): void {
    const oldest = this.tail.keys().next().value;
    if (this.tail.size >= MAX_TAIL_SHARDS && oldest !== undefined) this.tail.delete(oldest);
    this.tail.set(number, shard);
  }
}

function entry(manifest: Manifest, name: string): FileEntry {
  const found = manifest.content.files[name];
  if (!found) throw new Refused("corrupt", `the manifest lacks ${name}`);
  return found;
}

/** One file: from the store when its digest is there, from whatever bundle; else fetched. Verified either way. */
async function file(source: Source, manifest: Manifest, name: string): Promise<Uint8Array> {
  const { sha256, num_bytes: size } = entry(manifest, name);
  const kept = await source.kept.file(sha256);
  if (kept) {
    const intact = await source.verifier.check(kept, sha256).then(
      () => true,
      () => false,
    );
    if (intact) return kept;
    await source.kept.dropFile(sha256);
  }
  const url = `${source.settings.baseUrl}/${manifest.id}/${name}`;
  const bytes = await source.fetchFile(url, Math.min(size, source.settings.maxBytes) + 1);
  if (bytes.length !== size) throw new Refused("corrupt", `${name} has ${bytes.length} bytes`);
  await source.verifier.check(bytes, sha256);
  await source.kept.putFile(sha256, bytes);
  return bytes;
}

function checkedDefaults(bytes: Uint8Array, sizes: Sizes): DataView {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length !== 4 * sizes.num_buckets * sizes.prompt_rows * sizes.width) {
    throw new Refused("corrupt", "default rows of another shape");
  }
  for (let at = 0; at < bytes.length; at += 4) {
    if (!Number.isFinite(view.getFloat32(at, true))) throw new Refused("corrupt", "default rows that are not finite");
  }
  return view;
}
