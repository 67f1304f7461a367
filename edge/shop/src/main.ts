/** The page: a tap is tracked, the prompt is computed while the recall call is out, the next call takes it along. */

import { createEdge, type Edge, type Kind } from "beforehand-edge";
import { Cards, past, recall, timed } from "./api.js";
import { changes } from "./changes.js";
import { byId, make } from "./dom.js";
import { List } from "./list.js";
import { finalOf, idsOf, showPanel, summary, type Turn } from "./panel.js";

const NUM_ITEMS = 24;
const GAP_MS = 100;
const SHOWN_TAPS = 8;

/** What `./beforehand demo --shop` writes beside the page. */
interface Config {
  keys: string[];
  users: string[];
}

class Shop {
  private readonly cards = new Cards();
  private readonly list = new List(this.cards, { look: (id) => this.tap(id, "click"), add: (id) => this.tap(id, "cart") });
  private readonly basket = new Set<string>();
  private readonly limitMs = Number(new URLSearchParams(location.search).get("limit_ms")) || GAP_MS;
  private taps: string[] = [];
  private turn: Turn | null = null;
  private running = new AbortController();

  constructor(
    private readonly edge: Edge,
    private readonly user: HTMLSelectElement,
  ) {}

  /** Begin anew for whoever is selected. */
  async enter(): Promise<void> {
    const { value } = this.user;
    this.edge.setUser(value);
    this.basket.clear();
    this.taps = [];
    void this.remember(value);
    await this.refresh(null);
  }

  tap(id: string, kind: Kind): void {
    if (kind === "cart") this.basket.add(id);
    void this.refresh({ id, kind });
  }

  forget(): void {
    this.edge.forget();
    this.edge.setUser(this.user.value);
    this.taps = [];
    byId("list-title").focus();
    void this.refresh(null);
  }

  consent(given: boolean): void {
    this.edge.setConsent(given);
    this.taps = [];
    void this.refresh(null);
  }

  /** Show the list with the last tap, or without it. */
  compare(): void {
    if (!this.turn) return;
    const { turn } = this;
    const after = idsOf(finalOf(turn));
    const without = document.querySelector<HTMLInputElement>("#compare [value=before]")!.checked;
    if (without) this.list.show(idsOf(turn.before.answer), new Map());
    else this.list.show(after, turn.after ? changes(idsOf(turn.before.answer), after) : new Map());
  }

  private async refresh(tap: { id: string; kind: Kind } | null): Promise<void> {
    this.running.abort(); // only the newest tap's list is of use
    const { signal } = (this.running = new AbortController());
    this.list.busy(true);
    try {
      const turn = await this.take(tap, signal);
      await this.cards.load([...idsOf(turn.before.answer), ...idsOf(finalOf(turn))]);
      if (!signal.aborted) this.show(turn);
    } catch (error) {
      if (!signal.aborted) this.fail(error);
    }
  }

  private async take(tap: { id: string; kind: Kind } | null, signal: AbortSignal): Promise<Turn> {
    const request = { user_id: this.user.value, k: NUM_ITEMS, exclude: [...this.basket] };
    // Attached before the tap is tracked: the first list is the one without it.
    const first = timed(() => recall(this.edge.attach(request), signal));
    first.catch(() => undefined); // told when it is awaited, after the prompt
    const prompt = tap ? await this.prompt(tap) : null;
    const [answer, span] = await first;
    const turn: Turn = { tap: tap && this.cards.get(tap.id).title, before: { answer, span }, prompt, after: null };
    if (prompt?.reason !== "ok") return turn;
    const [answered, took] = await timed(() => recall(this.edge.attach(request), signal));
    return { ...turn, after: { answer: answered, span: took } };
  }

  /** Track the tap and compute, while the call is out. Null when taps may not be used. */
  private async prompt(tap: { id: string; kind: Kind }): Promise<Turn["prompt"]> {
    const tracked = this.edge.track({ event_id: crypto.randomUUID(), item_id: tap.id, kind: tap.kind });
    if (tracked !== "ok") return null;
    this.taps = [tap.id, ...this.taps].slice(0, SHOWN_TAPS);
    const [made, span] = await timed(() => this.edge.prompt({ timeLimitMs: this.limitMs }));
    return { reason: made.reason, span };
  }

  private show(turn: Turn): void {
    this.turn = turn;
    this.list.busy(false);
    document.querySelector<HTMLInputElement>("#compare [value=after]")!.checked = true;
    byId<HTMLFieldSetElement>("compare").disabled = turn.after === null;
    this.compare();
    this.say(summary(turn), false);
    showPanel(turn, this.edge.status(), this.cards);
    byId("visit").hidden = this.taps.length === 0;
    byId("taps").replaceChildren(...this.taps.map((id) => make("li", "", this.cards.get(id).title)));
    byId("basket").textContent = this.basket.size ? `Basket: ${this.basket.size}` : "Basket: empty";
  }

  private fail(error: unknown): void {
    this.list.busy(false);
    this.say(`No new list: ${error instanceof Error ? error.message : String(error)}. The last one stays.`, true);
  }

  private say(words: string, fault: boolean): void {
    const place = byId("summary");
    place.textContent = words;
    place.classList.toggle("fault", fault);
  }

  private async remember(userId: string): Promise<void> {
    const known = await past(userId).catch(() => null);
    if (userId !== this.user.value || !known) return;
    this.edge.setUser(userId, known.bucket || 0);
    const titles = known.window.slice(0, 5).map((id) => known.titles[id] ?? id);
    const words = titles.length ? `bought ${titles.join("; ")}` : "is new here";
    byId("history").textContent = `Shopper ${userId} (${known.bucket || "no profile"}) ${words}.`;
  }
}

async function start(): Promise<void> {
  const config = (await (await fetch("config.json")).json()) as Config;
  const user = byId<HTMLSelectElement>("user");
  user.replaceChildren(...config.users.map((id) => new Option(id)));
  const edge = createEdge({
    baseUrl: `${location.origin}/v1/edge`,
    keys: config.keys,
    appVersion: "1.0",
    consent: byId<HTMLInputElement>("consent").checked,
    wasmPaths: new URL("./", location.href).href,
    worker: () => new Worker("worker.js", { type: "module" }),
  });
  const shop = new Shop(edge, user);
  user.addEventListener("change", () => void shop.enter());
  byId("who").addEventListener("submit", (event) => event.preventDefault());
  byId("consent").addEventListener("change", (event) => shop.consent((event.target as HTMLInputElement).checked));
  byId("compare").addEventListener("change", () => shop.compare());
  byId("forget").addEventListener("click", () => shop.forget());
  byId<HTMLDetailsElement>("panel").open = matchMedia("(min-width: 60rem)").matches;
  await shop.enter();
}

start().catch((error: unknown) => {
  byId("summary").textContent = `The shop can't open: ${String(error)}`;
});
