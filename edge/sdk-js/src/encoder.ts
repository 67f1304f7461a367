/** A session of the runtime, fed with arrays. */

import { shapes, type Feeds, type Sizes } from "./features.js";
import { Refused, type EdgeReason } from "./reasons.js";
import { atLeast } from "./rollout.js";
import type { Runtime, Session } from "./types.js";

/** Refuses a bundle that needs a newer runtime than this one. A runtime that does not tell its version is trusted. */
export function checkRuntime(runtime: Runtime, needed: string | undefined): void {
  const installed = runtime.env?.versions?.["web"] ?? runtime.env?.versions?.["common"];
  if (needed && installed && !atLeast(installed, needed)) {
    throw new Refused("runtime_too_old", `${installed}, needs ${needed}`);
  }
}

export class Encoder {
  private constructor(
    private readonly runtime: Runtime,
    private readonly session: Session,
    private readonly sizes: Sizes,
  ) {}

  /** Throws `Refused` (does_not_load). */
  static async load(runtime: Runtime, graph: Uint8Array, sizes: Sizes): Promise<Encoder> {
    try {
      return new Encoder(runtime, await runtime.InferenceSession.create(graph), sizes);
    } catch (error) {
      throw new Refused("does_not_load", String(error));
    }
  }

  /** The rows [P × d], or why there are none. */
  async run(feeds: Feeds): Promise<Float32Array | EdgeReason> {
    let rows: unknown;
    try {
      rows = (await this.session.run(this.tensors(feeds)))["prompt"]?.data;
    } catch {
      return "encode_failed";
    }
    if (!(rows instanceof Float32Array) || rows.length !== this.sizes.prompt_rows * this.sizes.width) return "bad_shape";
    return rows.every(Number.isFinite) ? rows.slice() : "not_finite";
  }

  /** Give the runtime's memory back. */
  async release(): Promise<void> {
    await this.session.release?.();
  }

  private tensors(feeds: Feeds): Record<string, unknown> {
    const dims = shapes(this.sizes);
    const made = (Object.keys(dims) as (keyof Feeds)[]).map((name) => {
      const type = feeds[name] instanceof Float32Array ? "float32" : "int64";
      return [name, new this.runtime.Tensor(type, feeds[name] as never, dims[name])] as const;
    });
    return Object.fromEntries(made);
  }
}
