/** The panel: where the time went, what the last tap changed, where the answer came from. */

import type { Status } from "beforehand-edge";
import type { Cards, Recalled, Span } from "./api.js";
import { changes, count } from "./changes.js";
import { age, byId, make, ms } from "./dom.js";

/** One answer to one tap (or to none, at the start). */
export interface Turn {
  tap: string | null; // title of the tapped item
  before: { answer: Recalled; span: Span };
  prompt: { reason: string; span: Span } | null;
  after: { answer: Recalled; span: Span } | null; // null when there was no prompt to send
}

interface Step {
  name: string;
  kind: "network" | "live" | "device";
  spans: Span[];
}

export const finalOf = (turn: Turn): Recalled => (turn.after ?? turn.before).answer;
export const idsOf = (answer: Recalled): string[] => answer.items.map((item) => item.item_id);

/** A sentence for everybody, read aloud by screen readers. */
export function summary(turn: Turn): string {
  const answer = finalOf(turn);
  const live = `${answer.items.length} items by “${answer.rung}”, ${ms(answer.ledger.total_ms)} ms live.`;
  if (!turn.tap) return live;
  if (!turn.prompt) return `${live} Your taps are not used.`;
  if (!turn.after) return `${live} No prompt in time (${turn.prompt.reason}).`;
  const changed = count(idsOf(turn.before.answer), idsOf(answer));
  const device = `on-device ${ms(turn.prompt.span.tookMs)} ms`;
  return `After “${turn.tap}”: ${changed.new} new, ${changed.up} up, ${changed.down} down. ${live.slice(0, -1)}, ${device}.`;
}

export function showPanel(turn: Turn, status: Status, cards: Cards): void {
  showTimeline(steps(turn));
  showChanges(turn, cards);
  showFacts(turn, status);
}

function steps(turn: Turn): Step[] {
  const { before, prompt, after } = turn;
  const device: Step[] = prompt ? [{ name: "Prompt embedding", kind: "device", spans: [prompt.span] }] : [];
  const first = call(after ? "First call" : "Call", before);
  return [...first, ...device, ...(after ? call("Next call", after) : [])];
}

/** The network is what the service did not spend: half of it is drawn before the live part, half behind it. */
function call(name: string, { answer, span }: { answer: Recalled; span: Span }): Step[] {
  const liveMs = Math.min(answer.ledger.total_ms, span.tookMs);
  const wayMs = (span.tookMs - liveMs) / 2;
  const live = { fromMs: span.fromMs + wayMs, tookMs: liveMs };
  const ways = [span.fromMs, live.fromMs + liveMs].map((fromMs) => ({ fromMs, tookMs: wayMs }));
  return [
    { name: `${name}: network`, kind: "network", spans: ways },
    { name: `${name}: live`, kind: "live", spans: [live] },
  ];
}

function showTimeline(all: readonly Step[]): void {
  const spans = all.flatMap((step) => step.spans);
  const from = Math.min(...spans.map((span) => span.fromMs));
  const until = Math.max(...spans.map((span) => span.fromMs + span.tookMs));
  const share = (tookMs: number): string => `${(tookMs / (until - from)) * 100}%`;
  const total = make("tr", "", header("Tap to list"), make("td", ""), make("td", "number", ms(until - from)));
  const rows = all.map((step) => {
    const bars = step.spans.map((span) => {
      const bar = make("span", "bar");
      bar.style.left = share(span.fromMs - from);
      bar.style.width = share(span.tookMs);
      return bar;
    });
    const tookMs = step.spans.reduce((sum, span) => sum + span.tookMs, 0);
    const drawn = make("td", step.kind, make("div", "lane", ...bars));
    return make("tr", "", header(step.name), drawn, make("td", "number", ms(tookMs)));
  });
  byId("timeline").querySelector("tbody")!.replaceChildren(...rows, total);
}

function header(text: string): HTMLElement {
  const element = make("th", "", text);
  element.scope = "row";
  return element;
}

const MOST = 5;

function showChanges(turn: Turn, cards: Cards): void {
  const place = byId("changes");
  if (!turn.after) {
    place.replaceChildren(make("p", "", turn.tap ? "Nothing: no prompt was sent." : "Tap an item to see."));
    return;
  }
  const [before, after] = [idsOf(turn.before.answer), idsOf(turn.after.answer)];
  const { new: fresh, up, down, gone } = count(before, after);
  const words = `${fresh} new, ${gone} gone, ${up} up, ${down} down, of ${after.length}.`;
  const entries = [...changes(before, after)].filter(([, change]) => change.kind === "new").slice(0, MOST);
  const named = entries.map(([id]) => make("li", "", `${after.indexOf(id) + 1}. ${cards.get(id).title}`));
  place.replaceChildren(make("p", "", words), make("ul", "", ...named));
}

function showFacts(turn: Turn, status: Status): void {
  const answer = finalOf(turn);
  const skipped = Object.entries(answer.skipped).map(([rung, reason]) => `${rung}: ${reason}`);
  const saved = Object.entries(answer.ledger.saved_ms).map(([name, took]) => `${name} ${ms(took)} ms`);
  const facts: [string, string][] = [
    ["Rung", [answer.rung, ...skipped].join(", ")],
    ["Intent state", asset(answer, "intent_state")],
    ["Prompt", asset(answer, "prompt_embedding")],
    ["Release", answer.release],
    ["Live", Object.entries(answer.ledger.stages_ms).map(([name, took]) => `${name} ${ms(took)}`).join(", ")],
    ["Saved", saved.join(", ") || "nothing"],
    ["Bundle", status.bundle ? `${status.bundle} (${status.graph})` : `none: ${status.problem ?? status.update ?? "loading"}`],
    ["Encoder alone", status.encodeMs === null ? "not run yet" : `${ms(status.encodeMs)} ms, one thread, in a worker`],
  ];
  byId("facts").replaceChildren(...facts.flatMap(([name, value]) => [make("dt", "", name), make("dd", "", value)]));
}

function asset(answer: Recalled, name: string): string {
  const report = answer.assets[name];
  if (!report) return "none";
  const parts = [report.state, report.reason === "ok" ? "" : report.reason];
  const old = report.age_s === null ? "" : `${age(report.age_s)} old`;
  return [...parts, old].filter(Boolean).join(", ");
}
