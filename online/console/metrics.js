// Prometheus's text format as numbers. Pure.

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** The samples of an exposition: [{name, labels, value}]. */
export function parse(text) {
  return text
    .split("\n")
    .map((line) => (line.startsWith("#") ? null : LINE.exec(line)))
    .filter(Boolean)
    .map(([, name, labels, value]) => ({
      name,
      labels: Object.fromEntries([...(labels ?? "").matchAll(LABEL)].map(([, one, held]) => [one, held])),
      value: Number(value),
    }));
}

const matching = (samples, name, wanted) =>
  samples.filter((one) => one.name === name && Object.entries(wanted).every(([label, value]) => one.labels[label] === value));

/** The sum of a metric's samples with these labels. */
export const total = (samples, name, wanted = {}) => matching(samples, name, wanted).reduce((sum, one) => sum + one.value, 0);

/** Sums by the values of one label. */
export function byLabel(samples, name, label, wanted = {}) {
  const sums = new Map();
  for (const one of matching(samples, name, wanted)) {
    const value = one.labels[label] ?? "";
    sums.set(value, (sums.get(value) ?? 0) + one.value);
  }
  return sums;
}

/** What a counter grew by between two readings; all of it when the service started anew. */
export function grown(before, now, name) {
  const key = (one) => JSON.stringify(Object.entries(one.labels).sort());
  const old = new Map(before.filter((one) => one.name === name).map((one) => [key(one), one.value]));
  return now
    .filter((one) => one.name === name)
    .map((one) => {
      const last = old.get(key(one)) ?? 0;
      return { ...one, value: one.value >= last ? one.value - last : one.value };
    });
}
