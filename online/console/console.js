// The operator's console: it reads what the service tells everybody who may ask, and changes nothing.
import { parse, total, byLabel, grown } from "/console/metrics.js";

const EVERY_MS = 5000;
const KEPT = 60;
const $ = (id) => document.getElementById(id);
const state = { before: null, first: null, bars: [], stages: [] };

/** An element with text or children; nothing that is read ever becomes markup. */
function make(tag, content, attributes = {}) {
  const made = document.createElement(tag);
  made.append(...(Array.isArray(content) ? content : [String(content)]));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const row = (...cells) => make("tr", cells.map((cell) => (cell instanceof Node ? make("td", [cell]) : make("td", cell))));
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–");

async function get(path) {
  const key = $("key").value;
  const answer = await fetch(path, { headers: key ? { authorization: `Bearer ${key}` } : {}, cache: "no-store" });
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Error(answer.status === 401 ? "the API key is missing or wrong" : told.error ?? `${path}: ${answer.status}`);
  }
  return answer;
}

function showReleases(report) {
  const rows = [["current", report.current], ["previous", report.previous], [`canary ${percent(report.canary_share, 1)}`, report.canary]]
    .filter(([, id]) => id)
    .map(([name, id]) => row(make("code", id), name, report.answered[id] ?? 0));
  const problems = Object.entries(report.problems).map(([id, why]) => row(make("code", id), make("span", why, { class: "bad" }), ""));
  $("releases").replaceChildren(...(rows.length + problems.length ? [...rows, ...problems] : [row("none is loaded", "", "")]));
}

function showRungs(now) {
  const name = "beforehand_answers_total";
  const all = byLabel(now, name, "rung");
  const recent = byLabel(state.before ? grown(state.before, now, name) : now, name, "rung");
  const sum = (counts) => [...counts.values()].reduce((a, b) => a + b, 0);
  $("rungs").replaceChildren(...[...all].map(([rung, count]) => row(rung, percent(recent.get(rung) ?? 0, sum(recent)), percent(count, sum(all)))));
}

function showAssets(now) {
  const name = "beforehand_assets_total";
  $("assets").replaceChildren(
    ...[...byLabel(now, name, "asset").keys()].map((asset) => {
      const states = byLabel(now, name, "state", { asset });
      const whole = [...states.values()].reduce((a, b) => a + b, 0);
      const told = [...states].map(([one, count]) => `${one} ${percent(count, whole)}`).join(", ");
      return row(asset, told, `${total(now, "beforehand_saved_seconds_total", { asset }).toFixed(1)} s`);
    }),
  );
}

function showBudget(now) {
  const sums = byLabel(state.before ? grown(state.before, now, "beforehand_stage_seconds_sum") : now, "beforehand_stage_seconds_sum", "stage");
  const counts = byLabel(state.before ? grown(state.before, now, "beforehand_stage_seconds_count") : now, "beforehand_stage_seconds_count", "stage");
  const means = new Map([...sums].map(([stage, seconds]) => [stage, counts.get(stage) > 0 ? (1000 * seconds) / counts.get(stage) : 0]));
  for (const stage of means.keys()) if (!state.stages.includes(stage)) state.stages.push(stage);
  state.bars = [...state.bars, means].slice(-KEPT);
  const tallest = Math.max(0.001, ...state.bars.map((bar) => [...bar.values()].reduce((a, b) => a + b, 0)));
  $("waterfall").replaceChildren(
    ...state.bars.map((bar) =>
      make("div", state.stages.map((stage, place) => {
        const part = make("div", "", { class: `s${place % 6}`, title: `${stage} ${(bar.get(stage) ?? 0).toFixed(2)} ms` });
        part.style.height = `${(9 * (bar.get(stage) ?? 0)) / tallest}rem`;
        return part;
      })),
    ),
  );
  const told = state.stages.map((stage) => `${stage} ${(means.get(stage) ?? 0).toFixed(2)} ms`);
  $("waterfall").setAttribute("aria-label", told.join(", ") || "no answers yet");
  $("legend").replaceChildren(...told.map((text, place) => make("li", [make("b", "", { class: `s${place % 6}` }), text])));
}

function showService(now) {
  const answers = total(now, "beforehand_answer_seconds_count");
  $("service").replaceChildren(
    row("answers", answers),
    row("late", percent(total(now, "beforehand_late_total"), answers)),
    row("refused", total(now, "beforehand_refused_total")),
    row("decodes in flight", total(now, "beforehand_decode_in_flight")),
    row("cache", `${(total(now, "beforehand_cache_bytes") / 1e6).toFixed(1)} MB`),
    row("Redis", total(now, "beforehand_circuit_open") ? make("span", "left alone: it does not answer", { class: "bad" }) : "asked"),
  );
}

async function read() {
  try {
    const now = parse(await (await get("/metrics")).text());
    showRungs(now);
    showAssets(now);
    showBudget(now);
    showService(now);
    state.before = now;
    showReleases(await (await get("/v1/releases")).json());
    $("said").textContent = `read at ${new Date().toLocaleTimeString()}`;
    $("said").className = "";
  } catch (error) {
    $("said").textContent = error.message;
    $("said").className = "bad";
  }
}

function explained(told) {
  const assets = Object.entries(told.assets).map(([name, one]) => row(name, one.state, one.reason, one.age_s == null ? "" : `${Math.round(one.age_s)} s`));
  const titled = (item) => told.titles[item] ?? item;
  const rungs = told.rungs.map((one) => row(one.rung, one.reason, `${one.took_ms.toFixed(1)} ms`, one.items.map((item) => titled(item.item_id)).join(", ")));
  return [
    make("p", `${told.user_id}: bucket ${told.bucket}, release ${told.release}`),
    make("table", assets),
    make("p", `window, newest first: ${told.window.map(titled).join(", ") || "empty"}`),
    make("table", rungs),
  ];
}

async function look(event) {
  event.preventDefault();
  try {
    const told = await (await get(`/v1/users/${encodeURIComponent($("user").value)}/explain?k=5`)).json();
    $("explained").replaceChildren(...explained(told));
  } catch (error) {
    $("explained").replaceChildren(make("p", error.message, { class: "bad" }));
  }
}

$("look").addEventListener("submit", look);
$("key").addEventListener("change", read);
read();
setInterval(read, EVERY_MS);
