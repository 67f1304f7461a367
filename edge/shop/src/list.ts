/** The list of items. An item that stays keeps its element, and with it the focus. */

import type { Card, Cards } from "./api.js";
import type { Change } from "./changes.js";
import { button, byId, make } from "./dom.js";

export interface Acts {
  look: (id: string) => void;
  add: (id: string) => void;
}

export class List {
  private readonly place = byId("list");
  private readonly shown = new Map<string, HTMLLIElement>();

  constructor(
    private readonly cards: Cards,
    private readonly acts: Acts,
  ) {}

  busy(busy: boolean): void {
    this.place.setAttribute("aria-busy", String(busy));
  }

  show(ids: readonly string[], changed: ReadonlyMap<string, Change>): void {
    const focused = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    const inside = focused !== null && this.place.contains(focused);
    const elements = ids.map((id) => this.element(id, changed.get(id)));
    this.place.replaceChildren(...elements);
    for (const id of [...this.shown.keys()]) if (!ids.includes(id)) this.shown.delete(id);
    // Moved elements lose the focus; that of an item that is gone goes to the list's title.
    if (inside) (this.place.contains(focused) ? focused : byId("list-title")).focus({ preventScroll: true });
  }

  private element(id: string, change: Change | undefined): HTMLLIElement {
    let element = this.shown.get(id);
    if (!element) this.shown.set(id, (element = this.build(id)));
    const badge = element.querySelector<HTMLElement>(".change")!;
    const { text, spoken } = worded(change);
    badge.className = `change ${change?.kind ?? ""}`;
    badge.replaceChildren(make("span", "", text), make("span", "hidden", spoken));
    badge.firstElementChild!.setAttribute("aria-hidden", "true");
    return element;
  }

  private build(id: string): HTMLLIElement {
    const card = this.cards.get(id);
    const top = make("div", "top", tile(card), make("span", "change"));
    const look = button("look", "", () => this.acts.look(id), card.title, make("span", "category", card.category));
    const add = button("add", `Add ${card.title} to the basket`, () => this.acts.add(id), "Add");
    const element = make("li", "", top, look, add);
    element.dataset.item = id;
    return element;
  }
}

function tile(card: Card): HTMLElement {
  const element = make("span", "tile", (card.category || card.title).slice(0, 1).toUpperCase());
  let hue = 0;
  for (const letter of card.category) hue = (hue * 31 + letter.codePointAt(0)!) % 360;
  element.style.setProperty("--hue", String(hue));
  element.setAttribute("aria-hidden", "true");
  return element;
}

function worded(change: Change | undefined): { text: string; spoken: string } {
  if (change?.kind === "new") return { text: "new", spoken: "new after the last tap" };
  if (change?.kind === "up") return { text: `▲ ${change.by}`, spoken: `up ${change.by}` };
  if (change?.kind === "down") return { text: `▼ ${change.by}`, spoken: `down ${change.by}` };
  return { text: "", spoken: "" };
}
