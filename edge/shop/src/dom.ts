/** Small help with the page. Text is only ever set as text. */

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page lacks #${id}`);
  return found as T;
}

type Child = Node | string;

/** An element with a class and children. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  className: string,
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

export function button(className: string, label: string, act: () => void, ...children: Child[]): HTMLButtonElement {
  const element = make("button", className, ...children);
  element.type = "button";
  if (label) element.setAttribute("aria-label", label);
  element.addEventListener("click", act);
  return element;
}

export const ms = (value: number): string => value.toFixed(value < 100 ? 1 : 0);

export function age(seconds: number): string {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86_400)} d`;
}
