"""The demo's report: a few lines on the terminal, and one page of HTML that needs nothing but itself."""

from __future__ import annotations

import json
import sys
from html import escape
from pathlib import Path
from typing import Any

from infra.demo_result import TEXT
from infra.errors import LauncherError
from infra.paths import Layout

Result = dict[str, Any]
TIER_WORDS = {
    "offline": "computed offline, the night before",
    "nearline": "computed near-line, within a second of the last event",
    "edge": "computed on the device, in the gap",
    "online": "left to do live",
}


def main(args: list[str]) -> int:
    """`./beforehand report [--json]`: show the last demo's result again."""
    if set(args) - {"--json"}:
        print("usage: ./beforehand report [--json]\n\nShow the last demo's result again.", file=sys.stderr)
        return 0 if set(args) & {"-h", "--help"} else 2
    path = Layout.current().state / "report" / "demo.json"
    if not path.is_file():
        raise LauncherError("no demo has ended here yet", "./beforehand demo --small")
    result = json.loads(path.read_text())
    page = path.with_suffix(".html")
    page.write_text(render(result))
    print(json.dumps(result) if "--json" in args else f"{as_text(result)}\n\nthe page with plots: {page}")
    return 0


def as_text(result: Result) -> str:
    """The result in a dozen lines."""
    bar_ms = max(result["all_live_ms"], 0.001)
    lines = [
        "",
        f"Recall@50  {result['recall_at_50']:.4f}   item-kNN {result['knn_recall_at_50']:.4f}"
        f"   popularity {result['popularity_recall_at_50']:.4f}   (measured over HTTP, held-back events)",
        f"Recall@10  {result['recall_at_10']:.4f}   item-kNN {result['knn_recall_at_10']:.4f}"
        f"   popularity {result['popularity_recall_at_10']:.4f}",
        f"Prompt     {result['with_prompt']['recall_at_50']:.4f} with, {result['without_prompt']['recall_at_50']:.4f}"
        f" without, for the same {result['with_prompt']['users']} users (Recall@50)",
        f"Freshness  p50 {result['freshness_p50_ms']:.0f} ms, p99 {result['freshness_p99_ms']:.0f} ms"
        " from the event to a state that a reader sees",
        f"Latency    p50 {result['latency_p50_ms']:.1f} ms, p99 {result['latency_p99_ms']:.1f} ms over HTTP",
        f"Live work  {result['live_ms']:.2f} ms of {result['all_live_ms']:.1f} ms"
        f" ({result['all_live_without_text_ms']:.2f} ms without the items' texts)",
    ]
    for stage in result["waterfall"]:
        filled = "█" * max(1, round(30 * stage["ms"] / bar_ms))
        lines.append(f"           {stage['tier']:<9}{stage['ms']:>8.2f} ms  {filled} {stage['stage']}")
    rungs = ", ".join(f"{name} {count}" for name, count in result["rungs"].items())
    lines += [f"Rungs      {rungs}", f"Release    {result['release']}", f"Took       {result['seconds']:.0f} s"]
    return "\n".join(lines)


def render(result: Result) -> str:
    """The page. Every value is escaped; nothing is loaded from elsewhere."""
    template = (Path(__file__).parent / "report.html").read_text("utf-8")
    parts = {
        "RELEASE": escape(result["release"]),
        "FACTS": _facts(result),
        "RECALL": _recall(result),
        "WATERFALL": _waterfall(result["waterfall"]),
        "WITHOUT": _waterfall([stage for stage in result["waterfall"] if stage["stage"] != TEXT]),
        "RUNGS": _shares(result["rungs"]),
        "EXAMPLE": _example(result["example"]),
        "STEPS": _bars([(s["step"], s["seconds"], f"{s['seconds']:.1f} s", "") for s in result["steps"]]),
    }
    for name, value in parts.items():
        template = template.replace(f"<!--{name}-->", value)
    return template


def _facts(result: Result) -> str:
    facts = [
        (f"{result['recall_at_50']:.3f}", "Recall@50", f"item-kNN {result['knn_recall_at_50']:.3f}"),
        (f"{result['freshness_p99_ms']:.0f} ms", "event to visible, p99", f"p50 {result['freshness_p50_ms']:.0f} ms"),
        (f"{result['latency_p99_ms']:.1f} ms", "request over HTTP, p99", f"p50 {result['latency_p50_ms']:.1f} ms"),
        (
            f"{result['live_ms']:.1f} ms",
            "left to do live",
            f"of {result['all_live_ms']:.0f} ms ({result['all_live_without_text_ms']:.1f} ms without the texts)",
        ),
    ]
    return "".join(
        f"<div class=fact><b>{escape(value)}</b><span>{escape(name)}</span><small>{escape(beside)}</small></div>"
        for value, name, beside in facts
    )


def _recall(result: Result) -> str:
    names = (("", "generator", "own"), ("knn_", "item-kNN + content", ""), ("popularity_", "popularity", ""))
    groups = []
    for k in (10, 50):
        rows = [(label, result[f"{key}recall_at_{k}"], f"{result[f'{key}recall_at_{k}']:.4f}", css)
                for key, label, css in names]  # fmt: skip
        groups.append(f"<h3>Recall@{k}</h3>{_bars(rows)}")
    with_, without = result["with_prompt"], result["without_prompt"]
    rows = [
        ("with prompt", with_["recall_at_50"], f"{with_['recall_at_50']:.4f}", "own"),
        ("without", without["recall_at_50"], f"{without['recall_at_50']:.4f}", "own faint"),
    ]
    title = f"<h3>Recall@50 of the {with_['users']} users whose device knew more than the cloud</h3>"
    return "".join([*groups, title, _bars(rows)])


def _waterfall(stages: list[dict[str, Any]]) -> str:
    total, at, rows = sum(stage["ms"] for stage in stages) or 1, 0.0, []
    for stage in stages:
        left, width = 100 * at / total, max(0.4, 100 * stage["ms"] / total)
        rows.append(
            f"<div class=row><span class=label>{escape(stage['stage'])}"
            f"<small>{TIER_WORDS[stage['tier']]}</small></span>"
            f"<span class=track><i class={stage['tier']} style='margin-left:{min(left, 99.6):.2f}%;width:{width:.2f}%'>"
            f"</i></span><span class=value>{stage['ms']:.2f} ms</span></div>"
        )
        at += stage["ms"]
    return "".join(rows)


def _shares(rungs: dict[str, int]) -> str:
    total = max(1, sum(rungs.values()))
    return _bars([(name, n, f"{n} ({100 * n / total:.1f} %)", "own") for name, n in rungs.items()])


def _example(example: Result) -> str:
    assets = "".join(
        f"<tr><td>{escape(name)}</td><td>{escape(a['state'])}</td><td>{escape(a['reason'])}</td>"
        f"<td>{_age(a.get('age_s'))}</td></tr>"
        for name, a in example["assets"].items()
    )
    stages = ", ".join(f"{escape(k)} {v:.2f}" for k, v in example["ledger"]["stages_ms"].items())
    return (
        f"<p>User <code>{escape(example['user_id'])}</code>, rung <code>{escape(example['rung'])}</code>,"
        f" {example['ledger']['total_ms']:.2f} of {example['ledger']['budget_ms']:.0f} ms ({stages}).</p>"
        f"<div class=two><div><h3>Last events</h3><ol>{_list(example['window'])}</ol></div>"
        f"<div><h3>Answer</h3><ol>{_list(example['items'])}</ol></div></div>"
        f"<table><tr><th>asset<th>state<th>reason<th>age</tr>{assets}</table>"
    )


def _age(age_s: float | None) -> str:
    return "" if age_s is None else f"{age_s:.1f} s"


def _list(titles: list[str]) -> str:
    return "".join(f"<li>{escape(title)}</li>" for title in titles)


def _bars(rows: list[tuple[str, float, str, str]]) -> str:
    """Rows of label, size, words and class; the longest bar is the widest."""
    most = max((size for _, size, _, _ in rows), default=0) or 1
    return "".join(
        f"<div class=row><span class=label>{escape(label)}</span><span class=track>"
        f"<i class='{css}' style='width:{100 * size / most:.2f}%'></i></span>"
        f"<span class=value>{escape(words)}</span></div>"
        for label, size, words, css in rows
    )
